"""The batch scripts, on a real Slurm that this test brings up."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path

import psutil
import pytest
from launcher import LIMIT, mpirun
from minislurm import ALL, CORES, NODES, Cluster, cluster, missing, search_path, wait_until
from study_environments import small_study

from mpicoll.p2p.host_lists import slurm_list
from mpicoll.records.lines import CaseRecord, PairRecord
from mpicoll.records.reading import load, only
from mpicoll.selection import tables

JOBS = Path(__file__).parent.parent.parent / "jobs"
SPACED = "jobs of 'mine'"
"""The folder that jobs are submitted from has a name that a shell would split."""

RANKS = NODES * CORES
PAIR = ("--ntasks-per-node=1",)
# Both hosts are the same cores: bound, ranks of one each would share the first.
FREE = {"MPICOLL_BIND": "none"}
MPI_ONLY = ("--backends", "mpi4py")
MPIRUN = {"MPICOLL_LAUNCHER": "mpirun"}
BOUND = {"MPICOLL_BIND": "cores"}
TINY = ("--collectives", "allreduce", "--sizes", "1K", "-n", "3", "--algorithms", "native")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A controller and two nodes."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with cluster(tmp_path_factory.mktemp("slurm")) as found:
        (found.state / SPACED).symlink_to(JOBS)
        yield found


@dataclass
class Job:
    """A script that was submitted from a folder, and is waited for."""

    slurm: Cluster
    folder: Path
    process: subprocess.Popen[str]

    def output(self) -> str:
        """Return what it has said so far; a launcher that loses its place says any bytes."""
        path = self.folder / "job.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def end(self, status: int = 0) -> str:
        """Wait for its end, fail unless it had this status, and return what it said."""
        _, complaint = self.process.communicate(timeout=LIMIT)
        output = self.output()
        assert self.process.returncode == status, f"{complaint}\n{output}\n{self.slurm.logs()}"
        return output


def submit(
    slurm: Cluster, folder: Path, script: str, *arguments: str, options: Sequence[str] = (),
    **variables: str,
) -> Job:  # fmt: skip
    """Submit a script from a folder, on two nodes of two ranks."""
    command = (
        "sbatch", "--wait", f"--nodes={NODES}", f"--ntasks-per-node={CORES}", "--output=job.out",
        *options, str(slurm.state / SPACED / script), *arguments,
    )  # fmt: skip
    process = subprocess.Popen(
        slurm.command(*command), env={**slurm.environment, **FREE, **variables}, cwd=folder,
        text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    return Job(slurm, folder, process)


def records(folder: Path, pattern: str) -> list[CaseRecord]:
    """Return the records of cases in the one file that matches."""
    (path,) = folder.glob(pattern)
    return only(CaseRecord, load(path))


def check(found: list[CaseRecord], ranks: int = RANKS) -> None:
    """Fail unless there are records, all right, of so many ranks."""
    assert {record.ranks for record in found} == {ranks}
    assert {record.correct for record in found} == {True}


def vendor() -> str:
    from mpi4py import MPI

    return str(MPI.get_vendor()[0])


@pytest.mark.parametrize(
    "script", sorted([*JOBS.glob("*.sbatch"), *JOBS.glob("*.sh")]), ids=lambda path: path.name
)
def test_is_valid_bash(script: Path) -> None:
    subprocess.run(("bash", "-n", str(script)), check=True)


@pytest.mark.parametrize("script", sorted(JOBS.glob("*.sbatch")), ids=lambda path: path.name)
def test_every_script_finds_the_common_file_alike(script: Path) -> None:
    """Slurm's copy of a script must find `common.sh` before anything can be shared."""
    begin = "# Slurm runs a copy"
    lines = [
        path.read_text().split(begin)[1].split("\n\n")[0] for path in (script, JOBS / "cpu.sbatch")
    ]
    assert lines[0] == lines[1]


@dataclass(frozen=True)
class Run:
    """What a script is submitted with, and how many ranks there must be."""

    script: str
    arguments: Sequence[str]
    options: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    ranks: int = RANKS


# Slurm 22.05 does not tell Open MPI which ranks share a node.
STATED = ("--ranks-per-node", str(CORES))
LONG = LIMIT // 2
"""Seconds after which a step of the benchmark hangs, on a busy machine, too."""
RUNS: dict[str, Run] = {
    **{launcher: Run("cpu.sbatch", (*TINY, *MPI_ONLY, *stated, "--timeout", str(LONG)),
                     variables={"MPICOLL_LAUNCHER": launcher, **BOUND})
       for launcher, stated in (("srun-pmi2", ()), ("srun-pmix", STATED), ("mpirun", ()))},
    **{rendezvous: Run("torch.sbatch", TINY, PAIR, {"MPICOLL_RENDEZVOUS": rendezvous}, NODES)
       for rendezvous in ("env", "tcp", "torchrun")},
    "both": Run("cpu.sbatch", TINY, PAIR, MPIRUN, NODES),
    "p2p": Run("p2p.sbatch", (*MPI_ONLY, "--sizes", "8,1K", "--transports", "point-to-point",
                              "--time", "1"), variables=MPIRUN),
    "allreduce": Run("allreduce.sbatch", (*MPI_ONLY, "-e", "64", "-n", "3"), variables=MPIRUN),
    "gpu": Run("gpu.sbatch", (*TINY, *MPI_ONLY),
               ("--nodes=1", "--gpus-per-node=1", "--cpus-per-task=1", *PAIR)),
}  # fmt: skip


def unfit(name: str) -> str | None:
    """Say why a run cannot be here, None if it can."""
    if (vendor(), name) in (("Open MPI", "srun-pmi2"), ("MPICH", "srun-pmix")):
        return f"{vendor()} from PyPI does not speak {name}"
    return "there is a GPU here" if name == "gpu" and gpu_count() else None


@pytest.fixture(scope="module")
def submitted(
    slurm: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Job]:
    """All runs that tests ask for, at once: Slurm fills the nodes with them."""
    asked = {
        item.callspec.params.get("name") for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }  # fmt: skip
    return {
        name: submit(slurm, tmp_path_factory.mktemp(name), run.script, *run.arguments,
                     options=run.options, **run.variables)
        for name, run in RUNS.items() if name in asked and not unfit(name)
    }  # fmt: skip


@pytest.fixture
def job(submitted: dict[str, Job], name: str) -> Job:
    """One of them."""
    if reason := unfit(name):
        pytest.skip(reason)
    return submitted[name]


@pytest.mark.slurm
@pytest.mark.parametrize("name", ["srun-pmi2", "srun-pmix", "mpirun"])
def test_cpu_comparison_runs(job: Job, name: str) -> None:
    """Options at sbatch override the script's, arguments reach the benchmark."""
    assert "Out of bounds values : 0 OK" in job.end()
    found = records(job.folder, "mpicoll-cpu-*.jsonl")
    check(found)
    assert {record.nodes for record in found} == {NODES}


@pytest.mark.slurm
@pytest.mark.parametrize("name", ["both"])
def test_both_backends_run_side_by_side(job: Job, name: str) -> None:
    job.end()
    found = records(job.folder, "mpicoll-cpu-*.jsonl")
    check(found, NODES)
    assert {record.backend for record in found} == {"mpi4py", "torch"}


@pytest.mark.slurm
@pytest.mark.parametrize("name", ["env", "tcp", "torchrun"])
def test_torch_runs_alone(job: Job, name: str) -> None:
    job.end()
    check(records(job.folder, "mpicoll-torch-*.jsonl"), NODES)


@pytest.mark.slurm
@pytest.mark.parametrize("name", ["p2p"])
def test_pairs_are_measured(job: Job, name: str) -> None:
    job.end()
    (path,) = job.folder.glob("mpicoll-p2p-*.jsonl")
    pairs = only(PairRecord, load(path))
    assert {(each.source, each.target) for each in pairs} >= set(permutations(range(RANKS), 2))


@pytest.mark.slurm
@pytest.mark.parametrize("name", ["allreduce"])
def test_allreduce_over_numbers_of_ranks(job: Job, name: str) -> None:
    assert "reduce_scatter + allgather" in job.end()
    for ranks in (2, 4):
        check(records(job.folder, f"mpicoll-allreduce-*-{ranks}.jsonl"), ranks)


PROGRAM = """
import sys
from mpi4py import MPI
import numpy as np

c = MPI.COMM_WORLD
total = np.empty(1)
c.Allreduce(np.ones(1), total)
hosts = c.gather(MPI.Get_processor_name())
if c.rank == 0:
    print(f"{total[0]:g} ranks on {len(set(hosts))} hosts by {type(c).__module__}")
"""

TRAINING = """
import os
import torch

torch.distributed.init_process_group("gloo")
total = torch.ones(1)
torch.distributed.all_reduce(total)
hosts = [None] * torch.distributed.get_world_size()
torch.distributed.all_gather_object(hosts, os.uname().nodename)
if torch.distributed.get_rank() == 0:
    backend = torch.distributed.get_backend_config()
    print(f"{total.item():g} ranks on {len(set(hosts))} hosts by {backend}")
torch.distributed.destroy_process_group()
"""

STUCK = """
import time
import numpy as np
import mpicoll

def load_data():
    time.sleep(600)

with mpicoll.world() as c:
    c.deadline = 3
    for _ in range(3):
        c.allreduce(np.ones(1))
    if c.rank == 3:
        load_data()
    c.allreduce(np.ones(1))
"""


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("program", "option", "module"),
    [(PROGRAM, ("python", "-m", "mpicoll.run"), "mpicoll"),
     (TRAINING, ("--torch", "python", "-m", "torchcoll.run"), "gloo")],
    ids=["mpi4py", "torch"],
)  # fmt: skip
def test_a_program_runs_on_two_nodes(
    slurm: Cluster, tmp_path: Path, program: str, option: Sequence[str], module: str
) -> None:
    (tmp_path / "program.py").write_text(program)
    output = submit(slurm, tmp_path, "program.sbatch", *option, "program.py").end()
    assert f"{RANKS} ranks on {NODES} hosts by " in output
    assert module in output.partition("hosts by ")[2]


@pytest.mark.slurm
def test_a_program_that_hangs_gets_a_post_mortem(slurm: Cluster, tmp_path: Path) -> None:
    """Of all nodes: the rank to blame is on the second one."""
    (tmp_path / "program.py").write_text(STUCK)
    command = ("python", "-m", "mpicoll.run", "program.py")
    output = submit(slurm, tmp_path, "program.sbatch", *command).end(status=128 + signal.SIGTERM)
    report = " ".join(output.partition(", 4 ranks\n")[2].split())  # long paths break its lines
    assert report.startswith("Rank 3 keeps the others waiting.")
    assert "in load_data" in report and "on host1" in report


def slow_link(slurm: Cluster) -> None:
    """Limit all links: a busy processor would make the healthy ones of unlimited hosts differ."""
    for host in range(ALL):
        slurm.hosts.limit(host, "80mbit")
    slurm.hosts.limit_pair(1, 2, "8mbit")


def slow_host(slurm: Cluster) -> None:
    slurm.hosts.join(1, 2)
    slurm.hosts.limit(2, "8mbit")


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("plant", "flags", "variables", "lines"),
    [
        (slow_link, (), MPIRUN, ("SICK link host1 host2: ", "left out for their links: host2")),
        (slow_host, ("--drain",), {}, ("SICK host host2: ", "sick hosts: host2")),
    ],
    ids=["link", "host"],
)  # fmt: skip
def test_a_program_runs_on_the_healthy_hosts(
    slurm: Cluster, tmp_path: Path, plant: Callable[[Cluster], None], flags: Sequence[str],
    variables: Mapping[str, str], lines: Sequence[str],
) -> None:  # fmt: skip
    """Of three, after a check; an operator's job also drains the sick one."""
    plant(slurm)
    (tmp_path / "program.py").write_text(PROGRAM)
    output = submit(
        slurm, tmp_path, "preflight.sbatch", *flags, "python", "program.py",
        options=("--partition=all", f"--nodes={ALL}", *PAIR), **variables,
    ).end()  # fmt: skip
    assert all(line in output for line in lines), output
    assert "running on 2 of 3 hosts" in output
    assert "2 ranks on 2 hosts by mpi4py" in output
    state = slurm.run("sinfo", "-h", "-N", "-n", "host2", "-o", "%T %E").stdout
    assert ("drain" in state and "mpicoll pre-flight of job" in state) is bool(flags), state


@pytest.mark.slurm
def test_slurm_reads_the_lists_of_a_check(slurm: Cluster) -> None:
    hosts = ["n01", "n02", "n03", "n07", "n9", "n10", "login", "r1-n9", "r1-n10", "a3x"]
    shown = slurm.run("scontrol", "show", "hostnames", slurm_list(hosts)).stdout.split()
    assert sorted(shown) == sorted(hosts)


@pytest.mark.slurm
def test_a_study_runs_in_an_allocation(slurm: Cluster, tmp_path: Path) -> None:
    """Each launch is a job step, which places the ranks on the nodes."""
    (tmp_path / "study.toml").write_text(small_study("here", 0.3))
    output = submit(slurm, tmp_path, "study.sbatch", "study.toml").end()
    assert "findings.md" in output
    found = records(tmp_path, "mpicoll-study-*/launches/here-2-of-1-choice-000.jsonl")
    check(found, NODES)
    assert {each.nodes for each in found} == {NODES}
    assert {tuple(each.run.hosts) for each in found} == {("host0", "host1")}


@pytest.mark.slurm
@pytest.mark.parametrize("name", ["gpu"])
def test_missing_gpus_are_reported(job: Job, name: str) -> None:
    """Slurm grants what stands for GPUs here, and the benchmark says that there are none."""
    assert "GPU" in job.end(status=2).partition("Error: ")[2]


@pytest.mark.slurm
def test_tuning_goes_on_with_its_table(slurm: Cluster, tmp_path: Path) -> None:
    few = (*MPI_ONLY, "--sizes", "64", "--time", "12")
    submit(slurm, tmp_path, "tune.sbatch", *few, "allreduce", options=PAIR, **MPIRUN).end()
    (table,) = tmp_path.glob("mpicoll-tune-*.json")
    earlier = table.stem.rpartition("-")[2]
    output = submit(
        slurm, tmp_path, "tune.sbatch", *few, "allreduce", "bcast", options=PAIR,
        MPICOLL_RESUME=earlier, **MPIRUN,
    ).end()  # fmt: skip
    assert f"{table.name} has allreduce already" in output
    entries = tables.read(table)["entries"]
    assert sorted(entry["collective"] for entry in entries) == ["allreduce", "broadcast"]


def gpu_count() -> int:
    import torch

    return torch.cuda.device_count()


# -- the end at the time limit --------------------------------------------------------------


@dataclass
class Long:
    """A job that measures for so long that a signal finds it in the midst of it."""

    slurm: Cluster
    folder: Path
    job: str = ""

    sizes = tuple(str(1024 * each) for each in range(1, 25))
    arguments = (*MPI_ONLY, "--collectives", "allreduce", "--algorithms", "ring",
                 "--sizes", ",".join(sizes), "-n", "3")  # fmt: skip

    def begin(self, **variables: str) -> None:
        """Submit it, and wait until it has measured something."""
        done = self.slurm.run(
            "sbatch", "--parsable", f"--nodes={NODES}", *PAIR, "--output=job.out",
            JOBS / "cpu.sbatch", *self.arguments, cwd=self.folder, **FREE, **MPIRUN, **variables,
        )  # fmt: skip
        self.job = done.stdout.strip()
        wait_until(lambda: self.lines(self.path) > 2, self.slurm)

    @property
    def path(self) -> Path:
        return self.folder / f"mpicoll-cpu-{self.job}.jsonl"

    @staticmethod
    def lines(path: Path) -> int:
        return path.read_text().count("\n") if path.exists() else 0

    def state(self) -> str:
        return self.slurm.state_of(self.job)

    def output(self) -> str:
        return (self.folder / "job.out").read_text()

    def check_half(self) -> None:
        """Fail unless some is measured, and all that is stands in whole lines."""
        assert self.path.read_bytes().endswith(b"\n")
        assert 0 < len(only(CaseRecord, load(self.path))) < 3 * len(self.sizes)

    def check_whole(self) -> None:
        """Fail unless every case is there once, and some were left out the second time."""
        found = only(CaseRecord, load(self.path))
        check(found, NODES)
        kinds = Counter((record.bytes_total, record.algorithm, record.call) for record in found)
        calls = (("native", "plan"), ("native", "method"), ("ring", "plan"))
        wanted = Counter({(int(size), *each): 1 for size in self.sizes for each in calls})
        assert kinds == wanted, self.output()
        assert f"of {len(self.sizes)} groups are measured already" in self.output()


@pytest.fixture
def long(slurm: Cluster, tmp_path: Path) -> Long:
    return Long(slurm, tmp_path)


@pytest.mark.slurm
def test_a_job_that_was_ended_is_completed_by_another(long: Long) -> None:
    long.begin()
    long.slurm.run("scancel", long.job)
    wait_until(lambda: long.state() == "", long.slurm)
    long.check_half()
    assert f"submit again with MPICOLL_RESUME={long.job}" in long.output()
    submit(long.slurm, long.folder, "cpu.sbatch", *long.arguments, options=PAIR,
           MPICOLL_RESUME=long.job, **MPIRUN).end()  # fmt: skip
    long.check_whole()


@pytest.mark.slurm
def test_a_job_at_its_limit_queues_again_and_completes_itself(long: Long) -> None:
    long.begin(MPICOLL_REQUEUE="1")
    long.slurm.run("scancel", "--batch", "--signal=USR1", long.job)
    wait_until(lambda: long.state() == "PENDING", long.slurm)
    long.check_half()
    # Slurm lets a job that queues again wait for two minutes: its nodes refuse it while their
    # clocks show the second in which they ended it ("Job credential revoked").
    time.sleep(2)
    long.slurm.run("scontrol", "update", f"jobid={long.job}", "StartTime=now")
    wait_until(lambda: long.state() == "", long.slurm)
    long.check_whole()


@pytest.mark.launches
def test_sigterm_ends_the_benchmark_at_once(tmp_path: Path) -> None:
    """What Slurm, or anyone, sends to the ranks themselves."""
    path = tmp_path / "records.jsonl"
    benchmark = ("-m", "mpicoll.bench", *Long.arguments, "--output", str(path), "-n", "99")
    process = subprocess.Popen((str(mpirun()), "-n", "1", sys.executable, *benchmark))
    try:
        while Long.lines(path) < 3 and process.poll() is None:
            time.sleep(0.05)
        (rank,) = (
            child for child in psutil.Process(process.pid).children(recursive=True)
            if "mpicoll.bench" in child.cmdline() and not child.name().startswith("hydra")
        )  # fmt: skip
        rank.terminate()
        assert process.wait(timeout=LIMIT) == signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert path.read_bytes().endswith(b"\n")
    check(only(CaseRecord, load(path)), 1)


# -- scaling -------------------------------------------------------------------------------


@pytest.mark.slurm
def test_scaling_is_an_array_with_one_merge(slurm: Cluster, tmp_path: Path) -> None:
    """Each task of the array gets the nodes that it uses, and the merge has them all."""
    tiny = (*TINY, *MPI_ONLY)
    done = slurm.run(
        "bash",
        JOBS / "scaling.sh",
        "1,2",
        f"--ntasks-per-node={CORES}",
        "--",
        *tiny,
        cwd=tmp_path,
        **MPIRUN,
    )
    assert done.returncode == 0, done.stderr
    merge = done.stdout.split("job ")[1].split()[0]
    output = tmp_path / f"mpicoll-merge-{merge}.out"
    wait_until(lambda: slurm.state_of(merge) == "", slurm)
    wait_until(output.exists, slurm)
    array = done.stdout.split("array ")[1].split(";")[0]
    for nodes in (1, 2):
        output_of_task = (tmp_path / f"mpicoll-scaling-{array}_{nodes}.out").read_text()
        assert f"{CORES * nodes} ranks on {nodes} of {nodes} nodes" in output_of_task
    found = records(tmp_path, f"mpicoll-scaling-{array}.jsonl")
    assert {record.ranks for record in found} == {CORES, 2 * CORES}, output.read_text()
    # The report is one page, where what draws it is installed.
    if importlib.util.find_spec("mpicoll.report"):
        assert (tmp_path / f"mpicoll-scaling-{array}.html").exists(), output.read_text()
    assert len(found) == sum(
        len(records(tmp_path, f"mpicoll-scaling-{array}-{nodes}.jsonl")) for nodes in (1, 2)
    )


@pytest.mark.slurm
def test_a_merge_leaves_torn_lines_out_and_names_what_is_missing(
    slurm: Cluster, tmp_path: Path
) -> None:
    part = tmp_path / "my parts" / "a-1.jsonl"
    part.parent.mkdir()
    subprocess.run(
        (sys.executable, "-m", "mpicoll.bench", *TINY, *MPI_ONLY, "--output", str(part)), check=True
    )
    whole = part.read_text()
    part.write_text(whole + whole[:9])
    output = submit(
        slurm, tmp_path, "merge.sbatch", "a", "my parts/a-1.jsonl", "my parts/a-2.jsonl",
        options=("--nodes=1", "--ntasks=1"),
    ).end(status=2)  # fmt: skip
    assert (tmp_path / "a.jsonl").read_text() == whole
    assert "nothing was measured in my parts/a-2.jsonl" in output


# -- refusals --------------------------------------------------------------------------------


def local(folder: Path, script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script without Slurm."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
    return subprocess.run(
        ("bash", str(script)), env={**own, "PATH": search_path(), **variables}, cwd=folder,
        capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"MPICOLL_LAUNCHER": "srun"}, "MPICOLL_LAUNCHER is srun-pmi2, srun-pmix or mpirun, not"),
        ({"MPICOLL_SETUP": "nowhere.sh"}, "no file nowhere.sh"),
        ({"MPICOLL_VENV": "nowhere"}, "no such MPICOLL_VENV"),
        ({"PATH": "/usr/bin:/bin", "PYTHONPATH": ""}, "has no mpicoll"),
    ],
)
def test_bad_settings_are_refused(variables: dict[str, str], text: str, tmp_path: Path) -> None:
    done = local(tmp_path, JOBS / "cpu.sbatch", **variables)
    assert done.returncode == 2
    assert text in done.stderr


def test_a_missing_common_file_is_reported(tmp_path: Path) -> None:
    alone = shutil.copy(JOBS / "cpu.sbatch", tmp_path)
    done = local(tmp_path, Path(alone), SLURM_JOB_ID="0")
    assert done.returncode == 2
    assert "set MPICOLL_JOBS" in done.stderr
