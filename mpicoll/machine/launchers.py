"""The launchers of ranks: which one started this process, and at which place."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

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

PACKAGES = ("mpicoll", "torchcoll")
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
