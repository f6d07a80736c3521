"""A program for gloo whose groups join processes that have no default group in common.

Frameworks that train and serve a language model make them so, by torch's own helper.
"""

from __future__ import annotations

import datetime
import os

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import (
    Backend,
    PrefixStore,
    _new_process_group_helper,
    _world,
)

import torchcoll
from torchcoll.backend import describe_group

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def join(name: str, store: dist.Store) -> dist.ProcessGroup:
    group, _ = _new_process_group_helper(
        SIZE, RANK, [], Backend("gloo"), PrefixStore(name, store), group_name=name,
        backend_options=None, timeout=datetime.timedelta(seconds=200),
    )  # fmt: skip
    _world.pg_group_ranks[group] = {rank: rank for rank in range(SIZE)}
    return group


def use(group: dist.ProcessGroup) -> None:
    for _ in range(3):
        x = torch.full((4,), RANK + 1.0, device="cpu")
        dist.broadcast(x, src=1, group=group)
        assert x.tolist() == [2.0] * 4
        dist.all_reduce(x, group=group)
        assert x.tolist() == [2.0 * SIZE] * 4
        y = torch.eye(2, device="cpu").to_sparse()
        dist.all_reduce(y, group=group)  # gloo's
        assert y.to_dense().tolist() == [[SIZE, 0], [0, SIZE]]


def use_by_name(group: dist.ProcessGroup) -> None:
    """Have `torchcoll.world` take the group, and split it."""
    c = torchcoll.world(group)
    assert (c.rank, c.size) == (RANK, SIZE)
    assert c.allreduce(torch.ones(1), algorithm="native").tolist() == [SIZE]
    whole = c.split(0, -RANK)
    assert whole.rank == SIZE - 1 - RANK
    assert whole.allreduce(torch.ones(1), algorithm="native").tolist() == [SIZE]
    whole.free()


def main() -> None:
    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore("127.0.0.1", port + 7, SIZE, is_master=RANK == 0)
    first = join("without a default group", store)
    with torch.device("meta"):  # as a model is built
        dist.barrier(first)
        dist.barrier(first, async_op=True).wait()
        use(first)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    second = join("beside default groups", store)
    use(second)
    use_by_name(second)
    print(f"rank {RANK}: {describe_group(second)}; {describe_group()}\n", end="")


if __name__ == "__main__":
    main()
