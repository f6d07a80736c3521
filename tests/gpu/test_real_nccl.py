"""What one rank shows of NCCL, and of which GPU a process takes, on a real GPU.

NCCL takes a GPU for every rank: what several ranks do together is tested on a fake
(`tests/on_ranks/test_nccl.py`). Each program runs in a process of its own, as a thread that uses a
GPU keeps it.
"""

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

UNUSED = """
from mpicoll.gpu.current import uses_gpu
assert not uses_gpu()
import torch
torch.cuda.get_device_properties(0)
print("looking at it uses it:", uses_gpu())
torch.cuda.set_device(0)
print("set_device(0) uses it:", uses_gpu())
x = torch.zeros(1, device="cuda")
assert uses_gpu()
import threading
other = []
thread = threading.Thread(target=lambda: other.append(uses_gpu()))
thread.start(); thread.join()
print("another thread uses it:", other[0])
"""

UNUSED_BY_CUPY = """
from mpicoll.gpu.current import uses_gpu
import cupy
cupy.cuda.runtime.getDeviceCount()
print("counting uses it:", uses_gpu())
cupy.cuda.Device(0).use()
print("Device(0).use() uses it:", uses_gpu())
cupy.empty(1)
assert uses_gpu()
"""

WORLD = """
import torch, torchcoll
with torchcoll.world(backend="nccl") as c:
    assert c.transport.nccl is not None and c.transport.gpu_transport == "direct", c.library
    like = c.gpu()
    x = torch.arange(1000.0, device="cuda")
    ways = c.gpu_transports()
    assert ways["direct"] == "", ways
    assert c.transport.nccl.device == like.device == x.device
    with c.split(0) as part:
        for group in (c, part):
            for name in ("allreduce", "broadcast", "allgather", "reduce_scatter", "alltoall"):
                given = x.reshape(1, -1) if name in ("reduce_scatter", "alltoall") else x
                for algorithm in ("native", "auto"):
                    with group.plan(name, given, algorithm=algorithm) as plan:
                        plan.run()
                        plan.start().wait()
                        assert torch.equal(plan.out.flatten(), x), (name, algorithm)
        average = part.allreduce(x.bfloat16(), "avg", algorithm="native")
        assert torch.equal(average, x.bfloat16())
    print(c.library)
"""

BOUND = """
import torch, torchcoll
import torch.distributed as dist
gpu = torch.device("cuda", 0)
store = dist.HashStore()
dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1, device_id=gpu)
assert dist.group.WORLD.bound_device_id == gpu
with torchcoll.world() as c, c.split(0) as part:
    assert dist.group.WORLD.bound_device_id == gpu
    x = torch.ones(100, device=gpu)
    assert torch.equal(part.allreduce(x, algorithm="native"), x)
dist.destroy_process_group()
"""

NCCL_ALONE = """
import torch, torchcoll
import torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
with torchcoll.world() as c:
    assert c.transport.nccl.device == torch.device("cuda", 0)
    x = torch.ones(100, device="cuda")
    assert torch.equal(c.allreduce(x, algorithm="native"), x)
    assert torch.equal(c.sendrecv(x, 0, torch.zeros_like(x)), x)
dist.destroy_process_group()
"""

CUPY = """
import cupy, mpicoll
from cupy.cuda import nccl
if not nccl.available:
    print("CuPy finds no NCCL")
    raise SystemExit
print("NCCL", nccl.get_version(), type(nccl.get_unique_id()), len(nccl.get_unique_id()))
with mpicoll.world() as c:
    for dtype in ("float32", "int8", "uint64", "float16", "complex64", "bool", "bfloat16"):
        try:
            x = c.transport.arrays.empty((1000,), dtype, c.gpu())
        except mpicoll.Unavailable as refused:
            print(refused)
            continue
        c.transport.arrays.from_host(x, cupy.arange(1000).get() % 2)
        for name in ("allreduce", "reduce", "broadcast", "allgather", "reduce_scatter", "alltoall",
                     "gather", "scatter"):
            given = x.reshape(1, -1) if name in ("reduce_scatter", "alltoall", "scatter") else x
            op = "lor" if dtype == "bool" else "sum"
            with c.plan(name, given, op=op, algorithm="native:nccl") as plan:
                plan.run()
                plan.start().wait()
                assert (plan.out.reshape(-1) == x).all(), (name, dtype)
    stream = cupy.cuda.Stream(non_blocking=True)
    y = cupy.ones(1 << 20)
    with c.plan("allreduce", y, algorithm="native:nccl") as plan:
        with stream:
            y += 1
            request = plan.start()
        request.wait()
        assert (plan.out == 2).all()
"""

PROBE = """
import os, sys
from mpicoll.mpi import gpu_trial
from mpicoll.mpi.gpu_awareness import GpuAwareness
found = GpuAwareness.detect()
print(found, repr(gpu_trial.obstacle(0)) if found.aware else "")
command = [sys.executable, "-c", gpu_trial._CHILD, "0"]
print("a child:", repr(gpu_trial.run(command, gpu_trial.alone(os.environ))))
"""


@pytest.mark.parametrize(
    "program", [UNUSED, UNUSED_BY_CUPY, WORLD, BOUND, NCCL_ALONE, CUPY, PROBE],
    ids=["torch's GPU", "CuPy's GPU", "world", "device_id", "NCCL alone", "CuPy", "trial"],
)  # fmt: skip
def test_one_rank(program: str) -> None:
    done = python("-c", program, timeout=120)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
