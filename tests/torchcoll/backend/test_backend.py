"""The backend of torch.distributed under real programs: all its calls, and torch's wrappers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from joining import by_hand
from launcher import ROOT, SUPPORT, mpirun, python, ranks

pytest.importorskip("torch")


def check(printed: Sequence[str]) -> None:
    """Fail unless each rank, whose lines are given, has passed all checks."""
    checks = re.findall(r"^def (check_\w+)", (SUPPORT / "check_backend.py").read_text(), re.M)
    for rank, lines in enumerate(printed):
        assert re.findall(rf"rank {rank}: ok (\w+)", lines) == checks, lines


@pytest.mark.launches
def test_calls_over_gloo() -> None:
    found = by_hand(SUPPORT / "check_backend.py", "torchcoll", size=3)
    check([each.output for each in found])
    assert [each.returncode for each in found] == [0, 0, 0]


@pytest.mark.launches
@pytest.mark.skipif(not mpirun(), reason="no mpirun")
def test_calls_over_mpi() -> None:
    """They meet through MPI: no variable of torch's is set. The group is destroyed in the end."""
    environment = {"PYTHONPATH": str(ROOT)}
    program = str(SUPPORT / "check_backend.py")
    done = ranks(2, program, "mpicoll", "destroy", environment=environment)
    check([done.stdout] * 2)
    assert done.returncode == 0


@pytest.mark.launches
def test_torch_trains_as_over_gloo() -> None:
    first, second = by_hand(SUPPORT / "train.py", size=2)
    assert (first.returncode, second.returncode) == (0, 0), f"{first.output}\n{second.output}"
    programs = re.findall(r"^    (\w+(?:, \w+)+),$", (SUPPORT / "train.py").read_text(), re.M)[-1]
    assert re.findall(r"^(\w+) \d\.\de", first.output, re.M) == programs.split(", ")


SOME = "all_reduce_sum|all_gather|reduce_sum|broadcast|scatter|all_to_all_single_unequal_split"


@pytest.mark.launches
def test_some_of_the_suite_of_torch_passes() -> None:
    """`tests/support/torch_suite.py` runs all of it, beside stock gloo."""
    pytest.importorskip("expecttest")
    command = str(SUPPORT / "torch_suite.py"), "--columns", "ours", "--tests", rf"test_({SOME})$"
    done = python(*command, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout
    assert re.search(r"^ok +6$", done.stdout, re.M), done.stdout


SHARDED = """
import torch, torch.distributed as dist
from torch.distributed._shard import sharded_tensor, sharding_spec
from torchcoll.backend.registration import register
register()
dist.init_process_group("torchcoll", store=dist.HashStore(), rank=0, world_size=1)
spec = sharding_spec.ChunkShardingSpec(0, ["rank:0/cpu"])
out = torch.zeros(3)
sharded_tensor.ones(spec, 3).gather(0, out)
print(out.tolist())
"""


@pytest.mark.skipif("__import__('torch').backends.cuda.is_built()", reason="this torch has CUDA")
def test_a_torch_without_cuda_is_not_asked_for_a_gpu() -> None:
    """ShardedTensor takes one for its calls, where it does not know the backend by name."""
    done = python("-c", SHARDED, environment={"PYTHONPATH": str(ROOT)})
    assert done.stdout.splitlines()[-1] == "[1.0, 1.0, 1.0]", done.stdout


FAILS = """
import torch, torch.distributed as dist
from torchcoll.backend.registration import register
from torchcoll.backend.works import QueuedWork

def fail():
    raise ConnectionError("rank 3 has ended")

def allreduce(group, *_):
    work = QueuedWork((fail,), [], group.order, str)
    group.order.add(work)
    return work

register()
dist.init_process_group("torchcoll", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
type(dist.group.WORLD).allreduce = allreduce
try:
    model(torch.ones(2)).sum().backward()
except RuntimeError as error:
    print(error)
"""


def test_a_step_of_ddp_ends_by_the_error_of_its_call() -> None:
    """C++ waits for the future there, and ends the process where an error is taken for tensors."""
    done = python("-c", FAILS, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and "rank 3 has ended" in done.stdout, done.stdout
