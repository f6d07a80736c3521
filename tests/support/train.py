"""Train small models by torch's own parallel wrappers, over gloo and over ours, and compare.

Every rank runs this: ``python tests/support/train.py`` with RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT set. Rank 0 prints a line for each program: its name, and how far the losses differ.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

STEPS = 4
ALLOWED, ALLOWED_IN_HALF = 1e-5, 1e-3
"""The difference of two orders of addition, in a loss of about 1; where gradients are float16."""


def model(width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 8), nn.BatchNorm1d(8))


class Branches(nn.Module):
    """One of two layers is unused in every step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        return self.layers[step % 2](x)


def train(net: Any, optimizer: Any = None, *arguments: Any, same: bool = False) -> list[float]:
    """Return the losses of some steps; every rank has data of its own, unless `same`."""
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(1 if same else 1 + dist.get_rank())
    losses = []
    for step in range(STEPS):
        skips = hasattr(net, "no_sync") and "no_sync" in arguments and step % 2 == 0
        with net.no_sync() if skips else nullcontext():
            given = (step,) if "step" in arguments else ()
            loss = (net(torch.randn(16, 8), *given) - torch.randn(16, 8)).pow(2).mean()
            loss.backward()
        if not skips:
            optimizer.step()
            optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / dist.get_world_size())
    return losses


def ddp() -> list[float]:
    return train(DistributedDataParallel(model(), bucket_cap_mb=0.001))


def ddp_views() -> list[float]:
    return train(DistributedDataParallel(model(), gradient_as_bucket_view=True, static_graph=True))


def ddp_no_sync() -> list[float]:
    return train(DistributedDataParallel(model()), None, "no_sync")


def ddp_unused() -> list[float]:
    return train(DistributedDataParallel(Branches(), find_unused_parameters=True), None, "step")


def ddp_hook() -> list[float]:
    net = DistributedDataParallel(model())
    net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return train(net)


def ddp_own_hook() -> list[float]:
    net = DistributedDataParallel(model())

    def hook(group, bucket):  # torch refuses annotations that are text
        future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / dist.get_world_size())

    net.register_comm_hook(dist.group.WORLD, hook)
    return train(net)


def zero() -> list[float]:
    net = DistributedDataParallel(model())
    return train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01))


def fsdp() -> list[float]:
    net = nn.Sequential(*list(model())[:3])
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
    return train(net)


def tensor_parallel() -> list[float]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    net = parallelize_module(nn.Sequential(*list(model(24))[:3]), mesh, plan)
    return train(net, same=True)


PROGRAMS: tuple[Callable[[], list[float]], ...] = (
    ddp, ddp_views, ddp_no_sync, ddp_unused, ddp_hook, ddp_own_hook, zero, fsdp, tensor_parallel,
)  # fmt: skip


def run_all(backend: str, store: Any) -> dict[str, list[float]]:
    """Return the losses of every program over one backend."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(backend, store=dist.PrefixStore(backend, store), rank=rank,
                            world_size=size)  # fmt: skip
    found = {program.__name__: program() for program in PROGRAMS}
    dist.destroy_process_group()
    return found


def main() -> None:
    from torchcoll.backend.registration import register

    register()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, size, rank == 0)
    expected, ours = (run_all(backend, store) for backend in ("gloo", "torchcoll"))
    wrong = False
    for name, losses in expected.items():
        difference = max(abs(a - b) for a, b in zip(losses, ours[name], strict=True))
        allowed = ALLOWED_IN_HALF if name == "ddp_hook" else ALLOWED
        wrong |= not difference <= allowed or losses[0] == losses[-1]
        if rank == 0:
            print(f"{name} {difference:.1e} {losses[0]:.4f} {losses[-1]:.4f}", flush=True)
    store.set(f"done {rank}", "")
    store.wait([f"done {each}" for each in range(size)])
    sys.exit(wrong)


if __name__ == "__main__":
    main()
