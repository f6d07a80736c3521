"""A rank that dies or never comes: the others say so in time, and no shared memory stays."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from joining import by_hand
from launcher import ROOT, mpirun, python

pytestmark = pytest.mark.launches

VICTIM = """
import os, signal, sys, time
import numpy as np
from mpicoll import RankLost
if sys.argv[1] == "torch":
    import torch, torchcoll
    c = torchcoll.world()
    x = torch.ones(200_000)
else:
    import mpicoll
    c = mpicoll.world()
    x = np.ones(200_000, np.float32)
how, algorithm = sys.argv[2], sys.argv[3]
if algorithm.partition("@")[2] not in c.transports:
    print(f"no {algorithm} here", flush=True)
    os._exit(5)
plan = c.plan("allreduce", x, algorithm=algorithm)
others = c.exchange(os.getpid())[:-1]
for turn in range(200):
    if turn == 100 and how == "late":
        c.deadline = 2
    if turn == 100 and c.rank == c.size - 1:
        if how == "late":
            while any(os.path.exists(f"/proc/{each}") for each in others):
                time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        plan.run()
    except RankLost as error:
        print(f"rank {c.rank} after {time.monotonic() - began:.1f} s: {error}", flush=True)
        os._exit(7)
print("survived")
os._exit(0)
"""
SIZE = 3


def leftovers() -> set[str]:
    """Return the files in shared memory that no process maps, nor is about to.

    Other tests may be at work here, too: a file of theirs is mapped soon after it is made.
    """
    found, before = unmapped(), set[str]()
    while found != before:
        time.sleep(0.5)
        found, before = found & unmapped(), found
    return found


def unmapped() -> set[str]:
    listed, mapped = {each.name for each in Path("/dev/shm").iterdir()}, set[str]()
    for each in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            mapped |= set(re.findall(r"/dev/shm/(\S+)", each.read_text()))
    return listed - mapped


@pytest.mark.parametrize(
    ("how", "why", "algorithm"),
    [
        ("killed", "has ended", "two_shot@symmetric"),
        ("killed", "has ended", "two_shot@cma"),
        ("killed", "has ended", "ring@symmetric"),
        ("late", "did not come in", "ring@symmetric"),
    ],
)
def test_survivors_name_the_lost_rank(tmp_path: Path, how: str, why: str, algorithm: str) -> None:
    """Those that wait for the lost rank name it; the others name whom they wait for."""
    before = leftovers()
    script = tmp_path / "victim.py"
    script.write_text(VICTIM)
    done = by_hand(script, "torch", how, algorithm, size=SIZE)
    told = "\n".join(each.output for each in done)
    if {each.returncode for each in done} == {5}:
        pytest.skip(told)
    assert [each.returncode for each in done[:-1]] == [7] * (SIZE - 1), told
    assert re.search(rf"allreduce {algorithm.partition('@')[0]}, round \d of \d", told)
    assert re.search(rf"rank {SIZE - 1} \(process \d+\), which {why}", told), told
    # Less than the deadline.
    assert max(float(each) for each in re.findall(r"after ([\d.]+) s", told)) < 100
    # Without MPI, its files are those of other runs on this machine.
    assert not [each for each in leftovers() - before if not each.startswith("mpich_shm")]


KILLED = """
import os, signal, time
import torch, torchcoll
from mpicoll import RankLost
from mpicoll.engine import extension

world = torchcoll.world()
c = world.split(world.rank // 2)
world.barrier()  # all have their part before a rank ends, perhaps the one with the store
part, by_method = world.rank // 2 / (world.size // 2 - 1), world.rank // 2 % 2
x = torch.ones(2000)
make, made = extension._compiled, []


class Short:
    def __getattr__(self, name):
        return getattr(make, name)

    def Program(self, rows, *given, **options):
        count = len(rows) // make.COLUMNS
        made.append((round(part * count), count))
        return make.Program(rows[: made[-1][0] * make.COLUMNS], *given, **options)


if c.rank == 1:
    extension._compiled = Short()
call = lambda: c.allreduce(x, algorithm="ring@symmetric")
if not by_method:
    call = c.plan("allreduce", x, algorithm="ring@symmetric").run
began = time.monotonic()
try:
    call()
    if c.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    call()
    print("survived")
except RankLost as error:
    print(f"rank {world.rank} after {time.monotonic() - began:.1f} s: {error}", flush=True)
try:
    c.barrier()
    print("survived")
except RankLost as error:
    print(f"then {error}", flush=True)
os._exit(0)
"""


def test_a_rank_killed_in_the_middle_of_a_program(tmp_path: Path) -> None:
    """One rank of each pair runs another part of its instructions, and is killed."""
    script, pairs = tmp_path / "killed.py", 3
    script.write_text(KILLED)
    done = by_hand(script, size=2 * pairs)
    for each in done[::2]:
        assert re.search(r"after \d\.\d s: .*which has ended", each.output), each.output
        assert "survived" not in each.output, each.output
        assert re.search("then .*has ended", each.output), each.output
    assert [each.returncode for each in done[1::2]] == [-9] * pairs, done


@pytest.mark.exhaustive
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_a_rank_killed_before_each_row_of_a_program() -> None:
    """The other one completes its run, or names the rank that has ended."""
    prefix = (str(mpirun()), "-n", "2")
    script = str(ROOT / "tests" / "support" / "killed_rows.py")
    done = python(script, prefix=prefix)
    assert done.returncode == 0, done.stdout
    found = re.findall(r"of (\d+) rows: (\d+) named, (\d+) complete, 0 otherwise", done.stdout)
    assert len(found) >= 3, done.stdout
    assert all(int(named) and int(rows) == int(named) + int(complete)
               for rows, named, complete in found)  # fmt: skip


PLAIN = """
import os, signal
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
MPI.COMM_WORLD.Barrier()
"""


def left_by(script: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """Run ranks of which one is killed; return how many files stay in shared memory."""
    before = leftovers()
    prefix = (str(mpirun()), "-n", str(SIZE))
    done = python(str(script), *arguments, prefix=prefix)
    new = leftovers() - before
    for name in new:
        Path("/dev/shm", name).unlink(missing_ok=True)
    return done, len(new)


@pytest.mark.skipif(mpirun() is None, reason="no mpirun here")
def test_mpi_ends_the_job_and_leaves_no_more_than_mpi_does(tmp_path: Path) -> None:
    """A killed MPI leaves files of its own; shared memory adds none to them.

    Another run on this machine may leave some meanwhile, but hardly in three attempts.
    """
    script, plain = tmp_path / "victim.py", tmp_path / "plain.py"
    script.write_text(VICTIM)
    plain.write_text(PLAIN)
    for _ in range(3):
        done, own = left_by(script, "mpi", "killed", "two_shot@symmetric")
        assert done.returncode != 0
        assert "killed after" not in done.stdout and "survived" not in done.stdout
        if own <= left_by(plain)[1]:
            return
    pytest.fail(f"{own} files stay in shared memory")


IDLE = """
import resource, sys, time
import numpy as np
import mpicoll
c = mpicoll.world()
x = np.ones(4)
with c.plan("allreduce", x, algorithm="one_shot@symmetric") as plan:
    plan.run()
    began, used = time.monotonic(), time.process_time()
    if c.rank == 0:
        time.sleep(2)
    plan.run()
    seconds, used = time.monotonic() - began, time.process_time() - used
    print(f"rank {c.rank} used {used / seconds:.3f} of its time", flush=True)
"""


@pytest.mark.skipif(mpirun() is None, reason="no mpirun here")
def test_a_rank_that_waits_long_sleeps(tmp_path: Path) -> None:
    """A waiting rank burns a few per cent of a core."""
    script = tmp_path / "idle.py"
    script.write_text(IDLE)
    done = python(str(script), prefix=(str(mpirun()), "-n", "2"))
    used = [float(each) for each in re.findall(r"used ([\d.]+) of", done.stdout)]
    assert len(used) == 2, done.stdout
    assert max(used) < 0.25
