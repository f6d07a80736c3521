"""A program for gloo that starts its ranks itself, and knows nothing of torchcoll."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist


def work(rank: int, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [2.0] * 3
    dist.monitored_barrier()
    print(
        f"rank {rank}: {dist.get_backend()} {type(dist.group.WORLD).__module__}\n",
        end="",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, sys.argv[1:], 2)
