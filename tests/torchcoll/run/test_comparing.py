"""A program for torch.distributed with and without torchcoll, run in turn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launcher import ROOT, python, ranks

pytest.importorskip("torch")

PROGRAM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(100)
for _ in range(30):
    dist.all_reduce(x)
work = dist.broadcast(x, 0, async_op=True)
work.wait()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.ones(1, 2)).sum().backward()
if dist.get_rank() == 0:
    print(f"{dist.get_world_size()} ranks")
dist.destroy_process_group()
"""
LINES = {
    call: 1 + PROGRAM[: PROGRAM.index(f"dist.{call}(")].count("\n")
    for call in ("all_reduce", "broadcast")
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def check(output: str, folder: Path) -> None:
    """Fail if the output of one round is not that of the program on two ranks."""
    assert output.count("2 ranks") == 1
    counts = re.search(r"mpicoll ran (\d+) of (\d+) collective calls", output)
    assert counts and int(counts[1]) >= 31 and int(counts[2]) >= int(counts[1])
    short = f"{folder.name}/train.py"
    assert f"allreduce at {short}:{LINES['all_reduce']} " in output
    assert f"broadcast at {short}:{LINES['broadcast']} " in output
    # torch makes these calls in C++, and they are seen on one side alone.
    assert f"{short}:{LINES['broadcast'] + 3} " not in output


@pytest.mark.launches
def test_a_program_under_torchrun_is_compared(program: Path) -> None:
    command = (
        "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "torchcoll.run",
        "--compare", "1", str(program),
    )  # fmt: skip
    done = python(*command, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout
    check(done.stdout, program.parent)


@pytest.mark.launches
def test_a_program_under_mpirun_is_compared(program: Path) -> None:
    done = ranks(2, "-m", "torchcoll.run", "--compare", "1", str(program))
    assert done.returncode == 0, done.stdout
    check(done.stdout, program.parent)


MESSAGES = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(100)
for _ in range(5):
    if dist.get_rank():
        dist.recv(x, 0)
    else:
        dist.send(x, 1)
dist.destroy_process_group()
"""


@pytest.mark.launches
def test_messages_of_torch_are_recorded_with_torchcoll_too(tmp_path: Path) -> None:
    """Its groups leave them to a class in C++, which calls what stands in its own place."""
    (path := tmp_path / "messages.py").write_text(MESSAGES)
    done = ranks(2, "-m", "torchcoll.run", "--compare", "1", str(path))
    assert done.returncode == 0, done.stdout
    assert "recv at " in done.stdout and "send at " in done.stdout
