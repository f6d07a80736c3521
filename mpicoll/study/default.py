"""The study of a machine that runs without a description."""

from __future__ import annotations

from mpicoll.machine.launches import planned_ranks
from mpicoll.machine.nodes import own_cores
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
    """Return all ranks of the hosts, else a rank for each core of this process, from 2 to 8."""
    if (planned := sum(planned_ranks())) > 1:
        return planned
    cores = own_cores()
    count = min(len(cores.allowed), int(cores.quota or _MOST_RANKS))
    return max(2, min(count, _MOST_RANKS))


def default_study() -> Description:
    """Return the study of this machine: every available environment, within 15 minutes."""
    planned = planned_ranks()
    widths = list(set(planned)) if len(planned) > 1 else []
    factors = Factors(
        ranks=[usual_ranks()], ranks_per_node=widths if len(widths) == 1 else [],
        collectives=list(_COLLECTIVES), sizes=list(_SIZES),
    )  # fmt: skip
    return Description(
        minutes=_MINUTES, environments=launchable_environments(candidates()), factors=factors
    )
