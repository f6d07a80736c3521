"""The batch scripts, on a real Slurm of two nodes that this test brings up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from minislurm import CORES, NODES, Cluster, cluster, missing

from mpicoll.bench.journal import Line, cases, read

JOBS = Path(__file__).parent.parent / "jobs"
RANKS = NODES * CORES
TINY = ("--collectives", "allreduce", "--sizes", "1K", "-n", "3", "--algorithms", "native")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A controller and two nodes."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


def submit(
    slurm: Cluster, folder: Path, script: str, *arguments: str, options: tuple[str, ...] = (),
    status: int = 0, **variables: str,
) -> str:  # fmt: skip
    """Submit a script from a folder, wait for its end, and return what it said."""
    done = slurm.run(
        "sbatch", "--wait", f"--nodes={NODES}", f"--ntasks-per-node={CORES}", "--output=job.out",
        *options, JOBS / script, *arguments, cwd=folder, **variables,
    )  # fmt: skip
    output = (folder / "job.out").read_text() if (folder / "job.out").exists() else ""
    assert done.returncode == status, f"{done.stderr}\n{output}\n{slurm.logs()}"
    return output


def records(folder: Path, pattern: str) -> list[Line]:
    """Return the records of cases in the one file that matches."""
    (path,) = folder.glob(pattern)
    return cases(read(path))


def check(found: list[Line], ranks: int = RANKS) -> None:
    """Fail unless there are records, all right, of so many ranks."""
    assert {record["ranks"] for record in found} == {ranks}
    assert {record["correct"] for record in found} == {True}


def vendor() -> str:
    from mpi4py import MPI

    return str(MPI.get_vendor()[0])


@pytest.mark.parametrize(
    "script", sorted([*JOBS.glob("*.sbatch"), *JOBS.glob("*.sh")]), ids=lambda path: path.name
)
def test_is_valid_bash(script: Path) -> None:
    subprocess.run(("bash", "-n", str(script)), check=True)


@pytest.mark.parametrize("script", sorted(JOBS.glob("*.sbatch")), ids=lambda path: path.name)
def test_finds_what_all_share_in_the_same_way(script: Path) -> None:
    """Slurm's copy of a script must find `common.sh` before anything can be shared."""
    begin = "# Slurm runs a copy"
    lines = [
        path.read_text().split(begin)[1].split("\n\n")[0] for path in (script, JOBS / "cpu.sbatch")
    ]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("launcher", ["srun-pmi2", "srun-pmix", "mpirun"])
def test_cpu_comparison_runs(slurm: Cluster, launcher: str, tmp_path: Path) -> None:
    """Options at sbatch override the script's, arguments reach the benchmark."""
    if (vendor(), launcher) in (("Open MPI", "srun-pmi2"), ("MPICH", "srun-pmix")):
        pytest.skip(f"{vendor()} from PyPI does not speak {launcher}")
    output = submit(slurm, tmp_path, "cpu.sbatch", *TINY, MPICOLL_LAUNCHER=launcher)
    assert "Out of bounds values : 0 OK" in output
    found = records(tmp_path, "mpicoll-cpu-*.jsonl")
    check(found)
    assert {record["backend"] for record in found} == {"mpi4py", "torch"}


@pytest.mark.parametrize("rendezvous", ["env", "tcp", "torchrun"])
def test_torch_runs_alone(slurm: Cluster, rendezvous: str, tmp_path: Path) -> None:
    submit(slurm, tmp_path, "torch.sbatch", *TINY, MPICOLL_RENDEZVOUS=rendezvous)
    check(records(tmp_path, "mpicoll-torch-*.jsonl"))
