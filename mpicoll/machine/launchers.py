"""The launchers of ranks: which one started this process, and whether it fits the MPI."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from mpicoll.text.files import content_of
from mpicoll.text.numbers import whole


class Launcher(NamedTuple):
    """A launcher, and the environment variables by which a process knows its place.

    Attributes:
        local_size: the variable with the number of ranks on this host, None where there is none.
    """

    name: str
    rank: str
    size: str
    local_size: str | None = None


_LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "SLURM_LOCALID",
)  # fmt: skip

_OTHER_RANKS = (
    "PMIX_RANK", "PALS_RANKID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK", "ALPS_APP_PE",
    "MV2_COMM_WORLD_RANK",
)  # fmt: skip
"""The variables of launchers that are not in `LAUNCHERS`."""

PACKAGES = ("mpicoll", "torchcoll")
_OF_TORCH = ("bench", "p2p", "tune")
"""The commands of torchcoll."""
_GRACE, _PEER_GRACE = 1.5, 3.0
"""Seconds in which the first rank of each host prints why it ends, and the launcher ends others."""
TORCHRUN, SRUN = "torchrun", "srun"
LAUNCHERS = (
    Launcher("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_SIZE"),
    Launcher("MPICH's mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    Launcher(TORCHRUN, "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    Launcher(SRUN, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)  # fmt: skip
"""In the order in which they are believed: RANK may be left over in the environment of an mpirun,
and an mpirun or torchrun may run inside an srun."""


_LAUNCHER_PROGRAMS = {
    "mpirun", "mpiexec", "mpiexec.hydra", "mpiexec.gforker", "orterun", "prterun", "srun",
    "torchrun", "torch.distributed.run",
}  # fmt: skip
"""The programs that a person calls; some start daemons, which start the ranks."""


class Launch(NamedTuple):
    """Which launcher started this process, how many it started, and which one this is."""

    launcher: str
    size: int
    rank: int


def find_launch(variables: Mapping[str, str] = os.environ) -> Launch | None:
    """Return how this process was launched, None where no launcher started it."""
    for launcher in LAUNCHERS:
        try:
            return Launch(
                launcher.name, int(variables[launcher.size]), int(variables.get(launcher.rank, "0"))
            )
        except (KeyError, ValueError):
            continue
    return None


def find_foreign(variables: Mapping[str, str] = os.environ) -> str | None:
    """Return the variable of a launcher that is not in `LAUNCHERS`, None where none is set."""
    names = [name for name in _OTHER_RANKS if name in variables]
    return names[0] if names and find_launch(variables) is None else None


def end_other_ranks(status: int) -> None:
    """Have MPICH's launcher end all ranks, before this process ends without having started MPI.

    Other launchers do so by themselves. This one waits, as the other ranks do in `MPI_Init`.
    """
    mpi: Any = sys.modules.get("mpi4py.MPI")
    text = os.environ.get("PMI_FD", "")
    if not text.isdecimal() or (mpi is not None and mpi.Is_initialized()):
        return
    with suppress(OSError, OverflowError):
        if stat.S_ISSOCK(os.fstat(int(text)).st_mode):
            time.sleep(_GRACE)
            os.write(int(text), f"cmd=abort exitcode={status}\n".encode())


def ranks_of_host(variables: Mapping[str, str] = os.environ) -> int | None:
    """Return how many ranks were started on this host, None where no launcher says so."""
    for launcher in LAUNCHERS:
        if launcher.size in variables and launcher.local_size is not None:
            text = variables.get(launcher.local_size, "")
            return whole(text, 1 << 20)
    return None


def planned_ranks(variables: Mapping[str, str] = os.environ) -> list[int]:
    """Return how many ranks a launcher starts on each host that it is given; [] without a list.

    Slurm gives the list to its jobs, and ``HYDRA_HOST_FILE`` gives it to the mpirun of MPICH.

    >>> planned_ranks({"SLURM_TASKS_PER_NODE": "4(x2),1"})
    [4, 4, 1]
    """
    if (path := variables.get("HYDRA_HOST_FILE")) and Path(path).is_file():
        lines = content_of(Path(path)).decode(errors="replace").split()
        return [whole(line.partition(":")[2], 1 << 20) or 1 for line in lines]
    tasks = variables.get("SLURM_TASKS_PER_NODE", "")
    groups = re.findall(r"(\d{1,7})(?:\(x(\d{1,7})\))?(?:,|$)", tasks)
    return [int(count) for count, times in groups for _ in range(int(times or 1))]


def hosts_of(ranks: int, variables: Mapping[str, str] = os.environ) -> int:
    """Return on how many hosts a launcher starts so many ranks.

    >>> [hosts_of(ranks, {"SLURM_TASKS_PER_NODE": "2(x3)"}) for ranks in (2, 3, 6)]
    [1, 2, 3]
    """
    planned = list(accumulate(planned_ranks(variables)))
    return 1 + sum(count < ranks for count in planned[:-1])


def is_first_process(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether this process prints for all: rank 0 of its launcher, or the only one."""
    launch = find_launch(variables)
    return launch is None or launch.rank == 0


def is_first_of_host() -> bool:
    """Whether this process prints for those of its host, as files differ between hosts.

    Where nobody says which process that is, as where each was started by hand, it is any.
    """
    ranks = (os.environ[variable] for variable in _LOCAL_RANKS if variable in os.environ)
    return is_first_process() or next(ranks, "0") == "0"


def is_by_hand() -> bool:
    """Whether somebody started this process, and gave it its place, as torchrun would have."""
    launch = find_launch()
    by_torchrun = launch is not None and launch.launcher == TORCHRUN
    return by_torchrun and "TORCHELASTIC_RUN_ID" not in os.environ


def let_first_print() -> None:
    """Wait so that the first rank of this host prints an error that all have.

    Its launcher ends this rank meanwhile. A rank that has the error alone prints it afterwards.
    """
    time.sleep(0 if is_first_of_host() else _PEER_GRACE)


def place(*, is_for_all: bool = False) -> str:
    """Return the rank and the host of this process, to begin a message; '' where it is alone.

    Args:
        is_for_all: all ranks have this message, so the first one that prints it names no rank.
    """
    launch = find_launch()
    if launch is None or launch.size == 1:
        return ""
    if is_for_all and is_first_process() and not is_by_hand():
        return ""
    return f"rank {launch.rank} on {os.uname().nodename}: "


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a person's terminal; a launcher may put a pipe behind a pty."""
    return stream.isatty() and find_launch() is None


class LauncherProcess(NamedTuple):
    """The process of a launcher on this host, and the words of its command."""

    number: int
    words: list[str]

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the launcher at its start."""
        texts = Path(f"/proc/{self.number}/environ").read_bytes().split(b"\0")
        pairs = (os.fsdecode(text).partition("=") for text in texts if text)
        return {name: value for name, _, value in pairs}


def launcher_process() -> LauncherProcess | None:
    """Return the launcher that started this process, None where it runs on another host."""
    process = os.getppid()
    while process > 1:
        try:
            parent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
            command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return None
        words = [os.fsdecode(word) for word in command[:-1]]
        if {os.path.basename(word) for word in words[:4]} & _LAUNCHER_PROGRAMS:
            return LauncherProcess(process, words)
        process = int(parent)
    return None


def launcher_terminal() -> str | None:
    """Return the terminal on which the launcher of this rank prints errors.

    A rank writes to a pipe of its launcher. None for a launcher on another host, or one that writes
    to a file.
    """
    launcher = launcher_process()
    try:
        errors = os.readlink(f"/proc/{launcher.number}/fd/2") if launcher else ""
    except OSError:
        return None
    return errors if errors.startswith(("/dev/pts/", "/dev/tty")) else None


def command_words(arguments: Sequence[str] | None = None) -> list[str]:
    """Return the words by which Python was started with a command of ours; [] without one.

    >>> command_words(["python", "-m", "mpicoll.bench", "allreduce"])
    ['mpicoll.bench']
    >>> command_words(["python", "/usr/bin/mpicoll", "bench", "allreduce"])
    ['mpicoll', 'bench']
    """
    words = list(sys.orig_argv if arguments is None else arguments)
    if Path(words[1] if len(words) > 1 else "").name in PACKAGES:
        words = [Path(words[1]).name, *words[2:]]
    elif "-m" in words:
        words = words[words.index("-m") + 1 :]
    if not words or words[0].partition(".")[0] not in PACKAGES:
        return []
    takes_command = words[0] in PACKAGES and len(words) > 1 and not words[1].startswith("-")
    return words[: 2 if takes_command else 1]


def own_module() -> str | None:
    """Return the module of ours that Python was started with; None for none."""
    return ".".join(command_words()) or None


def singletons(size: int, library: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """Return how to launch a job whose processes are single ranks, None where they form a group.

    Args:
        size: the number of ranks that the library sees.
        library: its name.
    """
    launch = find_launch(variables)
    if launch is None or size > 1 or launch.size <= 1:
        return None
    right = _mpirun_beside(sys.executable) or "the mpirun of that library"
    module = own_module() or "mpicoll.bench"
    if launch.launcher == TORCHRUN:
        command = module.partition(".")[2]
        torch = command if command in _OF_TORCH else _OF_TORCH[0]
        advice = (
            f"start it with {right} -n {launch.size}, or run "
            f"torchrun --nproc-per-node {launch.size} -m torchcoll.{torch}"
        )
    else:
        advice = (
            f"start it with {right} -n {launch.size} {sys.executable} -m {module}, or install "
            "an mpi4py built for this launcher's MPI"
        )
    return (
        f"{launch.launcher} started {launch.size} processes, but {library} does not understand "
        f"that launcher, and each of them would be an independent run of 1 rank: {advice}."
    )


def single_rank(library: str, variables: Mapping[str, str] = os.environ) -> str:
    """Return that a single rank measures no messages, and how to start several.

    Args:
        library: the name of the library that sees one rank.
    """
    module = own_module() or "mpicoll.bench"
    if module.startswith("torchcoll"):
        start = f"torchrun --nproc-per-node 2 -m {module}"
    else:
        start = f"{mpirun() or 'mpirun'} -n 2 {sys.executable} -m {module}"
    name = find_foreign(variables)
    foreign = (
        f". {name} is set: a launcher started this process, which {library} does not understand"
        if name
        else ""
    )
    return (
        "there is one rank: nothing moves between ranks, and these times and ratios say nothing of "
        f"communication; start several, as {start}{foreign}"
    )


def mismatch(vendor: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """Return why this MPI may fail under another MPI's launcher, None where both match.

    Ask before MPI starts: it may end the process.
    """
    launch = find_launch(variables)
    if launch is None or launch.size <= 1 or "mpirun" not in launch.launcher:
        return None
    if ("Open MPI" in launch.launcher) == (vendor == "Open MPI"):
        return None
    right = _mpirun_beside(sys.executable) or f"the mpirun of {vendor}"
    return (
        f"{launch.launcher} started this process, but mpi4py is built on {vendor}, which may not "
        f"understand that launcher; if MPI fails to start, use {right} -n {launch.size}"
    )


def mpirun(python: str = sys.executable) -> str | None:
    """Return the mpirun beside an interpreter, else the one on PATH; None where there is none."""
    from shutil import which  # a program starts quickly without

    return _mpirun_beside(python) or which("mpirun")


def _mpirun_beside(python: str) -> str | None:
    path = Path(python).parent / "mpirun"
    return str(path) if path.exists() else None
