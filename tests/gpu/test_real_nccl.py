"""What NCCL does on a real GPU, and which GPU a process takes.

Each program runs in processes of its own, as a thread that uses a GPU keeps it, and a rank that
does not come ends its group. Several ranks take a GPU each, or an NCCL that lets them share one;
what they do together is in `tests/on_ranks/test_nccl.py` and `test_native_nccl.py`, too.
"""

from __future__ import annotations

import os
import socket
from functools import partial
from subprocess import CompletedProcess
from typing import Any

import pytest
from launcher import python, ranks

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
print("a child:", repr(gpu_trial.run(command, gpu_trial.singleton_environment(os.environ))))
"""


@pytest.mark.parametrize(
    "program", [UNUSED, UNUSED_BY_CUPY, WORLD, BOUND, NCCL_ALONE, CUPY, PROBE],
    ids=["torch's GPU", "CuPy's GPU", "world", "device_id", "NCCL alone", "CuPy", "trial"],
)  # fmt: skip
def test_one_rank(program: str) -> None:
    done = python("-c", program)
    print(done.stdout)
    assert done.returncode == 0, done.stdout


# -- a rank that does not come ----------------------------------------------------------------

LATE = """
import importlib, os, sys, time
package, algorithm, how = sys.argv[1:]
c = importlib.import_module(package).world()
arrays, like = c.transport.arrays, c.gpu()
x = arrays.empty((1000,), "float32", like)
arrays.from_host(x, range(1000))
from mpicoll import RankLost, Unavailable
try:
    plan = c.plan("allreduce", x, algorithm=algorithm)
except Unavailable as refused:
    print("SKIPPED", refused, flush=True)
    os._exit(0)
print(f"{c.rank} {c.transport.library} {plan.transport}", flush=True)
plan.run()
if how == "mixed":
    # The first message between two ranks connects them, which NCCL waits for in the call.
    c.sendrecv(x, 1 - c.rank, arrays.empty((1000,), "float32", like))
arrays.synchronize(x)
c.barrier()
begin = time.monotonic()
try:
    if c.rank == 1 and how == "killed":
        os._exit(0)
    if how == "mixed":
        # A short message may end before it is received: NCCL has room for it.
        c.rank == 0 and c.isend(arrays.empty((1 << 24,), "float32", like), 1).wait()
        c.rank == 1 and c.irecv(arrays.empty((1 << 24,), "float32"), 0).wait()
    elif c.rank == 1:
        time.sleep(10 if how == "unwatched" else 6)
    elif how == "unwatched":
        plan.run()
        arrays.synchronize(x)
        print("RESULT", flush=True)
    else:
        plan.run() if how == "run" else plan.start().wait()
except RankLost as lost:
    print(f"LOST rank {c.rank} after {time.monotonic() - begin:.1f} s: {lost}", flush=True)
    arrays.synchronize(x)
    print("the stream has ended", flush=True)
os._exit(0)
"""
APART = """
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$0"
for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank "$@" & started="$started $!"; done
status=0
for each in $started; do wait $each || status=$?; done
exit $status
"""


def apart(*command: str, **given: Any) -> CompletedProcess[str]:
    """Run two ranks that nothing ends when one of them ends: MPICH's launcher does."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return python(*command, prefix=("sh", "-c", APART, str(port)), **given)


def late(package: str, algorithm: str, how: str, **environment: str) -> str:
    """Return what two ranks print, of whom the second does not come."""
    launch = apart if package == "torchcoll" else partial(ranks, 2)
    command = "-c", LATE, package, algorithm, how
    done = launch(*command, timeout=30, environment=environment)
    print(done.stdout)
    if "SKIPPED" in done.stdout or " needs a GPU of its own" in done.stdout:
        pytest.skip("NCCL does not serve two ranks here")
    assert done.stdout.count(" direct") >= 2, done.stdout
    return done.stdout


SPLIT = """
import os, torch, torchcoll
import torch.distributed as dist
gpu = torch.device("cuda", int(os.environ["RANK"]) % torch.cuda.device_count())
torch.cuda.set_device(gpu)
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=gpu)
with torchcoll.world() as c:
    x = torch.full((100,), c.rank + 1.0, device=gpu)
    for color, wanted in ((0, 3.0), (c.rank, c.rank + 1.0), (0 if c.rank else None, 2.0)):
        part = c.split(color)
        if part is not None:
            assert part.allreduce(x, algorithm="native").eq(wanted).all(), (color, wanted)
            part.free()
dist.destroy_process_group()
print("split and freed")
"""


def test_some_ranks_split_a_group_with_a_device() -> None:
    """torch splits its communicator by all ranks of the group, also by those that leave."""
    out = apart("-c", SPLIT, timeout=50).stdout
    if "Duplicate GPU detected" in out:
        pytest.skip("NCCL does not let two ranks share this GPU")
    assert out.count("split and freed") == 2, out


@pytest.mark.launches
@pytest.mark.parametrize(
    ("package", "algorithm", "how"),
    [("torchcoll", "native", "run"), ("torchcoll", "native", "start"),
     ("torchcoll", "native", "killed"), ("torchcoll", "ring@direct", "start"),
     ("torchcoll", "ring@direct", "killed"), ("mpicoll", "native:nccl", "run"),
     ("mpicoll", "native:nccl", "start")],
)  # fmt: skip
def test_the_host_gives_up_at_the_deadline(package: str, algorithm: str, how: str) -> None:
    """MPI's launcher ends a job of which a process ends: there is none to be killed."""
    wait = {"MPICOLL_NCCL_BLOCKING_WAIT": "1"}
    out = late(package, algorithm, how, MPICOLL_DEADLINE="20" if how == "killed" else "3", **wait)
    assert "LOST rank 0 after" in out
    assert "the stream has ended" in out
    assert float(out.partition("LOST rank 0 after ")[2].partition(" s")[0]) < 6


@pytest.mark.launches
def test_a_gpu_message_that_meets_a_host_one() -> None:
    out = late("torchcoll", "native", "mixed", MPICOLL_NCCL_BLOCKING_WAIT="1", MPICOLL_DEADLINE="3")
    for rank, memory in enumerate(("GPU", "host")):
        assert f"LOST rank {rank} after" in out
        assert f"in {memory} memory, which never meets" in out


@pytest.mark.launches
def test_torch_ends_a_process_that_nobody_waits_for() -> None:
    """Without our wait, the rank ends a little after the deadline, by torch's own watch."""
    # After a dump, for which it waits up to a minute by default.
    soon = {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "500", "TORCH_FR_BUFFER_SIZE": "0"}
    out = late("torchcoll", "native", "unwatched", MPICOLL_DEADLINE="3", **soon)
    assert "RESULT" not in out
    assert "Watchdog caught collective operation timeout" in out
    assert "we are taking the entire process down" in out
