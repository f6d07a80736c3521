"""The study of a machine that runs without a description."""

from __future__ import annotations

from mpicoll.machine.cores import own_cores
from mpicoll.study.description import Description, Factors
from mpicoll.study.environments import candidates, launchable_environments

_MINUTES = 14.0
"""Minutes for launches; the rest of a quarter of an hour is for writing the findings."""
_MOST_RANKS = 8
_COLLECTIVES = ("allreduce", "broadcast", "allgather", "reduce_scatter")
_SIZES = ("64", "16K", "1M")
"""Few collectives, since every launch measures all of them, and ten launches of at least ten
configurations must fit into that time."""


def usual_ranks() -> int:
    """Return a rank for each core that this process may use, from 2 to 8."""
    cores = own_cores()
    count = min(len(cores.allowed), int(cores.quota or _MOST_RANKS))
    return max(2, min(count, _MOST_RANKS))


def default_study() -> Description:
    """Return the study of this machine: every available environment, within 15 minutes."""
    return Description(
        minutes=_MINUTES,
        environments=launchable_environments(candidates()),
        factors=Factors(ranks=[usual_ranks()], collectives=list(_COLLECTIVES), sizes=list(_SIZES)),
    )
