"""A rank of a program whose calls of torch.distributed are interrupted on rank 0.

Each group prints what its ranks have got from the call that is interrupted, and from those after.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from torchcoll.backend import group, works
from torchcoll.backend.registration import register

FILES = group.__file__, works.__file__, distributed_c10d.__file__
issued = threading.Event()
"""Whether this rank has issued an asynchronous call. Its wait may be in C++, without a frame."""


class Late(Exception):
    pass


def _raise_late(*_: object) -> None:
    raise Late


def blocking(group: Any, value: float) -> float:
    x = torch.full((5,), value)
    dist.all_reduce(x, group=group)
    return float(x[0])


def asynchronous(group: Any, value: float) -> float:
    x = torch.full((5,), value)
    work = dist.all_reduce(x, group=group, async_op=True)
    issued.set()
    if work is not None:
        work.wait()
    issued.clear()
    return float(x[0])


def strided(group: Any, value: float) -> float:
    """Make a call that Python runs each time."""
    x = torch.full((5, 2), value)[:, 0]
    dist.all_reduce(x, group=group)
    return float(x[0])


def uneven(group: Any, value: float) -> float:
    """Make a call of several collectives."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    sent, received = [rank + 1] * size, [peer + 1 for peer in range(size)]
    out = torch.empty(sum(received))
    x = torch.full((sum(sent),), value)
    dist.all_to_all_single(out, x, received, sent, group=group)
    return float(sum(block[0] for block in out.split(received)))


def by_gloo(group: Any, value: float) -> float:
    """Make a call that is gloo's, as no schedule folds so."""
    x = torch.full((5,), int(value), dtype=torch.int64)
    dist.all_reduce(x, op=dist.ReduceOp.BOR, group=group)
    return float(x[0] * dist.get_world_size(group))


WAYS: dict[str, Callable[[Any, float], float]] = {
    function.__name__: function for function in (blocking, asynchronous, strided, uneven, by_gloo)
}


def is_in_a_call(thread: int) -> bool:
    """Whether the thread is in a call of a group, or in a wait for one."""
    frame = sys._current_frames()[thread]
    while frame is not None and frame.f_code.co_filename not in FILES:
        frame = frame.f_back
    return frame is not None


@contextmanager
def interrupted(store: Any, key: str) -> Iterator[None]:
    """Send this process an alarm once it is in a call; then tell the other ranks, by a key."""
    first = threading.get_ident()

    def interrupt() -> None:
        while not (is_in_a_call(first) or issued.is_set()):
            time.sleep(0.001)
        time.sleep(0.02)  # so that the call waits
        signal.pthread_kill(first, signal.SIGALRM)
        time.sleep(0.02)
        store.set(key, "")

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        issued.clear()


def attempt(call: Callable[[Any, float], float], group: Any, value: float) -> object:
    try:
        return call(group, value)
    except Late:
        return "late"
    except RuntimeError as error:
        return repr(error)


def main() -> None:
    register()
    dist.init_process_group("torchcoll")
    store, rank = distributed_c10d._get_default_store(), dist.get_rank()
    signal.signal(signal.SIGALRM, _raise_late)
    for name, call in WAYS.items():
        for calls in (0, 1, 12):
            ranks, key = dist.new_group(), f"{name} {calls}"
            for _ in range(calls):
                call(ranks, 1.0)
            if rank == 0:
                with interrupted(store, key):
                    results = [attempt(call, ranks, 2.0)]
            else:
                while not store.check([key]):
                    time.sleep(0.01)
                results = [attempt(call, ranks, 2.0)]
            results += [attempt(call, ranks, value) for value in (3.0, 4.0)]
            print(f"rank {rank}: {key}: {results}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
