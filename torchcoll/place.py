"""Which rank of how many this process is: as given, or as its launcher says."""

from __future__ import annotations

import os
from typing import NamedTuple

from mpicoll.errors import LaunchError, brief
from mpicoll.machine.launchers import LAUNCHERS, SRUN, TORCHRUN, Launcher

ARGUMENTS = "the arguments rank and size"
_TORCHRUN_FIRST = sorted(LAUNCHERS, key=lambda launcher: launcher.name != TORCHRUN)


class Place(NamedTuple):
    """The rank of this process, the number of ranks, and the launcher that says so.

    Attributes:
        local_size: the number of ranks on this host, None where the launcher does not say.
    """

    rank: int
    size: int
    launcher: str
    local_size: int | None = None


def find_place(rank: int | None, size: int | None, init_method: str | None) -> Place:
    """Return the rank of this process and the number of ranks.

    Raises:
        LaunchError: they are missing, impossible, or two launchers disagree.
    """
    if rank is not None or size is not None:
        if rank is None or size is None:
            raise LaunchError("give both rank and size, or neither")
        return _checked(Place(rank, size, ARGUMENTS))
    places = [place for place in map(_from_launcher, _TORCHRUN_FIRST) if place is not None]
    if not places and init_method is not None:
        raise LaunchError(
            f"{init_method} needs to know which rank of how many this process is: "
            "give rank and size, or set RANK and WORLD_SIZE"
        )
    if not places:
        return Place(0, 1, "no launcher")
    first, alternatives = places[0], places[1:]
    if first.launcher == TORCHRUN and "TORCHELASTIC_RUN_ID" not in os.environ:
        if any(place[:2] != first[:2] for place in alternatives if place.launcher != SRUN):
            raise LaunchError(
                f"RANK and WORLD_SIZE say rank {first.rank} of {first.size}, "
                f"{alternatives[0].launcher} says {alternatives[0].rank} "
                f"of {alternatives[0].size}: "
                "unset RANK and WORLD_SIZE, which were set before"
            )
        if alternatives and "MASTER_ADDR" not in os.environ:
            first = alternatives[0]
    return _checked(first)


def _from_launcher(launcher: Launcher) -> Place | None:
    """Return the place that a launcher's variables state, None where they are not set."""
    name, rank, size, local = launcher
    if rank not in os.environ or size not in os.environ:
        if name == TORCHRUN and (rank in os.environ or size in os.environ):
            raise LaunchError("set both RANK and WORLD_SIZE, or neither")
        return None
    try:
        number = os.environ.get(local) if local else None
        local_size = int(number) if number else None
        return Place(int(os.environ[rank]), int(os.environ[size]), name, local_size)
    except ValueError:
        raise LaunchError(
            f"{rank}={brief(os.environ[rank])} and {size}={brief(os.environ[size])} are not numbers"
        ) from None


def _checked(place: Place) -> Place:
    if not 0 <= place.rank < place.size:
        raise LaunchError(
            f"{place.launcher}: rank {place.rank} is out of range, "
            f"{place.size} processes have ranks 0 to {place.size - 1}"
        )
    return place
