"""Process groups of torch.distributed that still exist when the interpreter ends."""

from __future__ import annotations

import pytest
from launcher import python

pytest.importorskip("torch")

LATE = """
import threading, time
from datetime import timedelta
import torch
import torch.distributed as dist
import torchcoll.groups

store, groups, begun = dist.HashStore(), {}, threading.Event()

def connect(rank):
    groups[rank] = dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=30))

threads = [threading.Thread(target=connect, args=(rank,)) for rank in range(2)]
for each in threads:
    each.start()
for each in threads:
    each.join()

def spin(future):
    begun.set()
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        pass

work = groups[0].allreduce([torch.ones(1)])
if FINISHES:
    work.get_future().then(spin)
    groups[1].allreduce([torch.ones(1)]).wait()
    begun.wait()
"""


@pytest.mark.parametrize("finishes", [True, False])
def test_a_thread_of_gloo_outlasts_no_interpreter(finishes: bool) -> None:
    """The program ends while gloo still finishes a call, or while a call waits for its peer."""
    done = python(
        "-c", f"FINISHES = {finishes}\n{LATE}", timeout=60,
        environment={"GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
