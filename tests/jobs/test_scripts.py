"""The batch scripts without a Slurm: how they find their files, whatever their folder is called."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launcher import LIMIT, ROOT

JOBS = ROOT / "jobs"
SCRIPTS = [
    *sorted((ROOT / ".ci").iterdir()), *sorted(JOBS.glob("*.sh")), *sorted(JOBS.glob("*.sbatch"))
]  # fmt: skip
FOLDERS = ["with a space", 'it\'s "quoted"', "-n", "$(date) *", "a b/c d", "ünïcode"]


def test_shellcheck_finds_nothing() -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("no shellcheck: as root, run .ci/packages")
    done = subprocess.run(
        (shellcheck, "-x", *(str(each.relative_to(ROOT)) for each in SCRIPTS)),
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


# -- where common.sh is ----------------------------------------------------------------------

# It tells what it is, and ends the script.
COMMON = 'echo "of $MPICOLL_JOBS, with $*"; exit 0\n'
SCONTROL = '#!/bin/sh\nprintf "   UserId=you(0)\\n   Command=%s\\n   WorkDir=/\\n" "$COMMAND"\n'


def submitted(folder: Path, base: Path, *arguments: str, **variables: str) -> str:
    """Return the output of a script of `folder` as Slurm runs it: a copy, in its spool."""
    spool, submit, commands = base / "spool", base / "submit", base / "bin"
    for each in (folder, spool, submit, commands):
        each.mkdir(parents=True)
    copy = shutil.copy(JOBS / "cpu.sbatch", spool / "slurm_script")
    (folder / "common.sh").write_text(COMMON)
    (commands / "scontrol").write_text(SCONTROL)
    (commands / "scontrol").chmod(0o755)
    # Slurm joins the script and its arguments by spaces, and quotes nothing.
    command = " ".join((str(folder / "cpu.sbatch"), *arguments))
    environment = {name: text for name, text in os.environ.items() if name != "MPICOLL_JOBS"}
    environment |= {"PATH": f"{commands}:{os.environ['PATH']}", "COMMAND": command,
                    "SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(submit), **variables}  # fmt: skip
    done = subprocess.run(
        ("bash", str(copy), *arguments), cwd=submit, env=environment, capture_output=True, text=True
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [(), ("-e", "64M"), ("-J", "a/b c/d.jsonl", "")], ids=str)
@pytest.mark.parametrize("name", FOLDERS)
def test_a_job_sources_the_file_beside_its_script(
    name: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "home" / name
    # Of the path up to a space, or in the folder of the job: another's.
    for elsewhere in (tmp_path, tmp_path / "home"):
        elsewhere.mkdir(exist_ok=True)
        (elsewhere / "common.sh").write_text("echo another\n")
    output = submitted(folder, tmp_path, *arguments)
    assert output == f"of {folder}, with {' '.join(arguments)}\n"


def test_the_folder_can_be_stated(tmp_path: Path) -> None:
    other = tmp_path / "-other jobs"
    other.mkdir()
    (other / "common.sh").write_text("echo stated; exit 0\n")
    assert submitted(tmp_path / "jobs", tmp_path, MPICOLL_JOBS=str(other)) == "stated\n"


@pytest.mark.parametrize(
    ("job", "command"), [("", "{theirs}/cpu.sbatch"), ("7", "(null)"), ("7", "cpu.sbatch")]
)
def test_nothing_else_is_sourced_instead(job: str, command: str, tmp_path: Path) -> None:
    """Slurm may not know where the script was; without a job it lists those of everyone."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "common.sh").write_text("echo another\n")
    output = submitted(
        tmp_path / "jobs", tmp_path, SLURM_JOB_ID=job, COMMAND=command.format(theirs=theirs)
    )
    assert output.splitlines()[-1] == "set MPICOLL_JOBS to the folder jobs/ of mpicoll"
    assert "another\n" not in output


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("inside", [True, False], ids=["inside it", "beside it"])
def test_a_script_runs_without_slurm(inside: bool, name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(JOBS, folder)
    (folder / "common.sh").write_text(COMMON)
    cwd, script = (folder, "cpu.sbatch") if inside else (tmp_path, f"{name}/cpu.sbatch")
    done = subprocess.run(("bash", "--", script), cwd=cwd, capture_output=True, text=True)
    assert done.stdout == f"of {'.' if inside else name}, with \n", done.stderr


def test_a_file_to_source_is_of_this_folder_not_of_the_path(tmp_path: Path) -> None:
    for folder in ("bin", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "setup.sh").write_text(f"echo {folder}; exit 0\n")
    done = subprocess.run(
        ("bash", str(JOBS / "cpu.sbatch")), cwd=tmp_path / "here", capture_output=True, text=True,
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "MPICOLL_SETUP": "setup.sh"},
    )  # fmt: skip
    assert done.stdout == "here\n", done.stderr


# -- a program of the user --------------------------------------------------------------------

PROGRAM_FORM = """\
# The program is a command that starts on every rank, as after srun: "python -m mpicoll.run
# solver.py". A file without its command is refused before anything starts.
"""
REFUSED = {
    ("solver.py", "--steps", "9"): (
        "solver.py is no command: give python -m mpicoll.run solver.py, or python solver.py"
    ),
    ("./solver.py",): "./solver.py is no command: give python -m mpicoll.run ./solver.py, or",
    ("sovler",): "there is no command sovler: name the program as python -m mpicoll.run solver.py",
    ("",): "there is no command : name the program",
}


def run_program(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script without Slurm, with an mpirun that prints its command."""
    commands = folder / "bin"
    commands.mkdir()
    (commands / "mpirun").write_text('#!/bin/sh\necho "started $*"\n')
    (commands / "mpirun").chmod(0o755)
    environment = {name: text for name, text in os.environ.items() if "SLURM" not in name}
    python = Path(sys.executable).parent
    environment |= {"PATH": f"{commands}:{python}:{os.environ['PATH']}"}
    return subprocess.run(
        ("bash", str(JOBS / script), *arguments), cwd=folder, env=environment, timeout=LIMIT,
        capture_output=True, text=True,
    )  # fmt: skip


PROGRAM_SCRIPTS = ["preflight.sbatch", "program.sbatch"]


@pytest.mark.parametrize("script", PROGRAM_SCRIPTS)
def test_all_scripts_say_in_the_same_words_how_a_program_is_named(script: str) -> None:
    assert PROGRAM_FORM in (JOBS / script).read_text()
    sentences = " ".join(PROGRAM_FORM.replace("# ", "").replace('"', "`").split())
    for page in ("study_on_slurm", "check_a_cluster"):
        text = (ROOT / "mpicoll" / "docs" / "howto" / f"{page}.md").read_text()
        assert sentences in " ".join(text.split())


@pytest.mark.parametrize("words", REFUSED, ids=str)
@pytest.mark.parametrize("flags", [(), ("--drain",), ("--torch",)], ids=str)
@pytest.mark.parametrize("script", PROGRAM_SCRIPTS)
def test_a_program_that_is_no_command_is_refused_before_anything_starts(
    script: str, flags: tuple[str, ...], words: tuple[str, ...], tmp_path: Path
) -> None:
    if flags and ("--torch" in flags) != (script == "program.sbatch"):
        pytest.skip("a flag of the other script")
    (tmp_path / "solver.py").write_text("print(1)")
    done = run_program(script, tmp_path, *flags, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {REFUSED[words]}")


@pytest.mark.parametrize(
    "words", [("python", "-m", "mpicoll.run", "solver.py"), ("./solver.py",)], ids=str
)
@pytest.mark.parametrize("script", PROGRAM_SCRIPTS)
def test_a_command_is_started_as_it_is(script: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "solver.py").write_text("#!/usr/bin/env python\n")
    (tmp_path / "solver.py").chmod(0o755)
    done = run_program(script, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(f"-n 4 {' '.join(words)}")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "name the program, as a command: python -m mpicoll.run solver.py"),
        (("--torch",), "name the program, as a command: python -m mpicoll.run solver.py"),
        (("--torch", "sh", "x"), "with --torch the program is a command of python, not of sh"),
    ],
)
def test_a_job_without_a_program_says_how_to_name_it(
    arguments: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    done = run_program("program.sbatch", tmp_path, *arguments)
    assert (done.returncode, done.stderr) == (2, f"Error: {text}\n")


# -- variables -------------------------------------------------------------------------------


def test_the_variables_of_the_documents_are_read() -> None:
    """Each one that stands before a command with a script of jobs/."""
    documents = [ROOT / "README.md", *(ROOT / "mpicoll").rglob("*.md"), JOBS / "README.md",
                 *JOBS.glob("*.s*")]  # fmt: skip
    commands = [
        found for each in documents
        for found in re.findall(r"^[# ]*(.*\b(?:sbatch|bash) .*jobs/.*)", each.read_text(), re.M)
    ]  # fmt: skip
    named = {name for each in commands for name in re.findall(r"\b([A-Z_]{3,})=", each)}
    scripts = "".join(each.read_text() for each in JOBS.glob("*.s*"))
    read = set(re.findall(r"\$\{?([A-Z_]+)", scripts))
    assert named <= read
    assert {"RANKS", "MPICOLL_LAUNCHER", "MPICOLL_VENV"} <= named


# -- the suite on a GPU ----------------------------------------------------------------------


def test_jobs_on_gpus_leave_cores_and_time() -> None:
    """For the threads of NCCL beside each rank, and for about 100 kernels, compiled in a second."""
    job, suite = ((JOBS / name).read_text() for name in ("gpu.sbatch", "gpu_suite.sh"))
    (cores,) = re.findall(r"^#SBATCH --cpus-per-task=(\d+)", job, re.M)
    (seconds,) = re.findall(r"by_rank (\d+) arrays ", suite)
    assert int(cores) >= 4 and int(seconds) >= 120


@pytest.mark.parametrize("how", ["fails", "is terminated"])
def test_the_gpu_suite_leaves_no_folder(how: str, tmp_path: Path) -> None:
    """Wheels are installed into a temporary folder; here pip fails, or waits to be terminated."""
    jobs, commands, temporary = (tmp_path / name for name in ("jobs", "bin", "tmp"))
    for each in (commands, temporary, tmp_path / ".whl"):
        each.mkdir()
    shutil.copytree(JOBS, jobs)
    (tmp_path / ".whl" / "some.whl").touch()
    (commands / "python3").write_text(
        "#!/bin/sh\necho installing\n" + ("exit 1\n" if how == "fails" else "exec sleep 60\n")
    )
    (commands / "python3").chmod(0o755)
    environment = {"PATH": f"{commands}:{os.environ['PATH']}", "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        ("bash", str(jobs / "gpu_suite.sh")), env=environment, text=True, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "installing\n"
    if how == "is terminated":
        assert list(temporary.iterdir())
        os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(timeout=LIMIT) != 0
    assert not list(temporary.iterdir())


PYTHON = """#!/bin/sh
case $1 in
    -) PYTHONPATH={packages}:$PYTHONPATH exec {python} "$@" ;;
    *) echo "$@" >>{calls} ;;
esac
"""
MPIRUN = """#!/bin/sh
echo "$LD_PRELOAD $@" >>{calls}
case "$*" in *mpicoll.p2p*) exit {status} ;; esac
"""
DRIVER = """
int cuInit(unsigned flags) {{ return 0; }}
int cuDeviceGetCount(int *count) {{ *count = {gpus}; return 0; }}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Callable[..., tuple[int, str, list[str]]]:
    """Run the suite on a machine of so many GPUs, where nothing but its own checks runs."""
    pytest.importorskip("torch")
    commands, packages, calls = (tmp_path / name for name in ("bin", "packages", "calls"))
    commands.mkdir()
    calls.touch()
    (packages / "cupy").mkdir(parents=True)
    (packages / "cuda").mkdir()

    def run(gpus: int | None, status: int = 0, **given: str) -> tuple[int, str, list[str]]:
        facts = {"packages": packages, "python": sys.executable, "calls": calls, "status": status}
        for name, text in (("python3", PYTHON), ("mpirun", MPIRUN)):
            (commands / name).write_text(text.format(**facts))
            (commands / name).chmod(0o755)
        if gpus is not None:
            (tmp_path / "driver.c").write_text(DRIVER.format(gpus=gpus))
            library = packages / "libcuda.so.1"
            subprocess.run(("cc", "-shared", "-o", library, tmp_path / "driver.c"), check=True)
        environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}",
                       "LD_LIBRARY_PATH": str(packages), **given}  # fmt: skip
        done = subprocess.run(
            ("bash", str(JOBS / "gpu_suite.sh"), str(tmp_path / "out")), env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT,
        )  # fmt: skip
        return done.returncode, done.stdout, calls.read_text().splitlines()

    return run


@pytest.mark.parametrize(
    ("gpus", "found"),
    [(None, "no CUDA driver ("), (0, "finds no GPU (CUDA error 0): see nvidia-smi")],
)
def test_the_gpu_suite_says_what_it_lacks(suite: Any, gpus: int | None, found: str) -> None:
    status, output, calls = suite(gpus)
    assert status == 2 and found in output and not calls


@pytest.mark.parametrize(
    ("gpus", "ranks", "with_nccl", "left_out"),
    [(1, {2, 4}, set(), 8), (2, {2, 4}, {2}, 3), (8, {2, 4, 8}, {2, 4, 8}, 0)],
)
def test_the_gpu_suite_serves_the_gpus_that_there_are(
    suite: Any, gpus: int, ranks: set[int], with_nccl: set[int], left_out: int, tmp_path: Path
) -> None:
    """NCCL serves ranks that have a GPU each; all results are in one file."""
    status, output, calls = suite(gpus)
    assert status == 0, output
    launched = [each for each in calls if " -n " in f" {each}"]

    def counts(of: str) -> set[int]:
        return {int(each.split("-n ")[1].split()[0]) for each in launched if of in each}

    assert counts("on_ranks/gpu") == counts("@staged") == ranks
    assert counts("test_native_nccl.py") == counts("native:nccl") == with_nccl
    assert output.count("left out, as") == left_out
    assert f"{gpus} GPU(s)" in output
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        assert {"out/machine.log", "out/summary.log", "out/failed"} <= set(archive.getnames())


def test_the_gpu_suite_names_what_fails(suite: Any) -> None:
    status, output, calls = suite(1, status=3, NCCL_LIBRARY="libnccl.so")
    assert status != 0 and "failed: p2p" in output
    assert any(each.startswith("libnccl.so") and "test_native_nccl" in each for each in calls)
