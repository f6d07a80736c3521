"""Our backend of torch.distributed beside NCCL, on a real GPU: one rank, as NCCL takes one each."""

from __future__ import annotations

import os

import pytest
from launcher import python

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        os.environ.get("MPICOLL_TEST_GPU", "") in ("", "0"),
        reason="needs a GPU: MPICOLL_TEST_GPU=1",
    ),
]

GROUP = """
import os, sys, torch
import torch.distributed as dist
from torchcoll.backend.registration import register

name, device_id = sys.argv[1:]
if name == "cpu:gloo,cuda:nccl":
    os.environ["TORCHCOLL_AS_GLOO"] = "1"
register()
gpu = torch.device("cuda", 0)
torch.cuda.set_device(gpu)
dist.init_process_group(name, store=dist.HashStore(), rank=0, world_size=1,
                        device_id=gpu if device_id == "bound" else None)
for group in (dist.group.WORLD, dist.new_group([0]), dist.new_group([0], backend=name)):
    assert type(group).__module__ == "torchcoll.backend.group", type(group)
    assert dist.get_backend(group) == name, dist.get_backend(group)
    assert group._get_backend(gpu).name() == "nccl", group._get_backend(gpu).name()
    assert group._get_backend(torch.device("cpu")).name() == "gloo"
    for device in ("cpu", "cuda"):
        x, y = torch.arange(6.0, device=device), torch.empty(6, device=device)
        dist.all_reduce(x, group=group)
        work = dist.all_reduce(x, group=group, async_op=True)
        work.wait()
        dist.broadcast(x, 0, group=group)
        dist.all_gather_into_tensor(y, x, group=group)
        assert torch.equal(x, torch.arange(6.0, device=device)) and torch.equal(x, y)
        dist.reduce_scatter_tensor(y, x, group=group)
        dist.all_to_all_single(y, x, group=group)
        found = [torch.empty_like(x)]
        dist.all_gather(found, x, group=group)
        with dist._coalescing_manager(group):
            dist.all_reduce(x, group=group)
            dist.all_reduce(y, group=group)
        assert torch.equal(found[0], y)
    dist.barrier(group)
    said = [None]
    dist.all_gather_object(said, "object", group=group)
    assert said == ["object"]
    module = torch.nn.Linear(3, 2).to(gpu)
    wrapped = torch.nn.parallel.DistributedDataParallel(module, process_group=group)
    wrapped(torch.ones(1, 3, device=gpu)).sum().backward()
    assert module.weight.grad.eq(1).all()
torch.cuda.synchronize()
dist.destroy_process_group()
print("served by NCCL and by ours")
"""


@pytest.mark.parametrize(
    ("name", "device_id"),
    [("cpu:torchcoll,cuda:nccl", "bound"), ("cpu:torchcoll,cuda:nccl", "not bound"),
     ("cuda:nccl,cpu:torchcoll", "not bound"), ("cpu:gloo,cuda:nccl", "bound")],
)  # fmt: skip
def test_nccl_serves_the_gpu_beside_ours(name: str, device_id: str) -> None:
    done = python("-c", GROUP, name, device_id)
    assert "served by NCCL and by ours" in done.stdout, done.stdout
