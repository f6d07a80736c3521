"""What a launcher is about to start, the launcher's own process, and how to start ranks."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from mpicoll.machine.launchers import TORCHRUN, ancestors, find_launch, own_module
from mpicoll.text.files import content_of
from mpicoll.text.numbers import whole

_OTHER_RANKS = (
    "PMIX_RANK", "PALS_RANKID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK", "ALPS_APP_PE",
    "MV2_COMM_WORLD_RANK",
)  # fmt: skip
"""The variables of launchers that are not in `LAUNCHERS`."""

_OF_TORCH = ("bench", "p2p", "tune")
"""The commands of torchcoll."""
_LAUNCHER_PROGRAMS = {
    "mpirun", "mpiexec", "mpiexec.hydra", "mpiexec.gforker", "orterun", "prterun", "srun",
    "torchrun", "torch.distributed.run",
}  # fmt: skip
"""The programs that a person calls; some start daemons, which start the ranks."""


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
    for process, words in ancestors():
        if {os.path.basename(word) for word in words[:4]} & _LAUNCHER_PROGRAMS:
            return LauncherProcess(process, words)
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


def find_foreign(variables: Mapping[str, str] = os.environ) -> str | None:
    """Return the variable of a launcher that is not in `LAUNCHERS`, None where none is set."""
    names = [name for name in _OTHER_RANKS if name in variables]
    return names[0] if names and find_launch(variables) is None else None


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
