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


@pytest.mark.launches
@pytest.mark.parametrize("finishes", [True, False])
def test_a_thread_of_gloo_outlasts_no_interpreter(finishes: bool) -> None:
    """The program ends while gloo still finishes a call, or while a call waits for its peer."""
    done = python(
        "-c", f"FINISHES = {finishes}\n{LATE}",
        environment={"GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


BOUND = """
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
import torchcoll

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
gpu = torch.device("cuda", 0)
dist.group.WORLD.bound_device_id = gpu  # as init_process_group(device_id=...) leaves it
c10d._get_split_source = lambda group: print("split from", group)
with torchcoll.world() as world, world.split(0) as part:
    print(part.size, dist.group.WORLD.bound_device_id == gpu)
"""


def test_a_group_is_not_split_from_nccl_communicator_of_the_world() -> None:
    """ncclCommSplit is called by all ranks of the world, but only members make a group."""
    done = python("-c", BOUND, environment={"GLOO_SOCKET_IFNAME": "lo"})
    assert (done.returncode, done.stdout) == (0, "1 True\n")
