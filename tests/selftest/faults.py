"""The faults of one launch of chaos, which follow from its number and the seed.

A fault happens in or before one of a few random calls of a group of all ranks. Afterwards the ranks
form a new group if the fault broke it, and stopped ranks and cut links resume. So a launch can have
many faults. Killed ranks do not return: the others shrink the group.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

KILL, STOP, SLOW, RAISE, MISMATCH, CUT = FAULTS = (
    "kill", "stop", "slow", "raise", "mismatch", "cut"
)  # fmt: skip
BREAKING = (KILL, STOP, RAISE, CUT)
"""Faults after which ranks need another group."""
CALLS = 4
MOST_RANKS, MOST_HOSTS = 8, 4
LAYOUTS: tuple[dict[str, str], ...] = (
    {}, {"MPICOLL_RANKS_PER_NODE": "2"}, {"MPICOLL_RANKS_PER_NODE": "1"}, {"MPICOLL_SYMMETRIC": "0"}
)  # fmt: skip
_LONGEST = 0.01
"""Seconds until a fault that happens while calls are under way."""


class Fault(NamedTuple):
    """One fault; its ranks are those of the launch.

    Attributes:
        turn: number of the call in or before which the fault happens, from 1.
        delay: seconds after the start of that call; 0: the fault happens before the call.
        members: the ranks of the group.
        victims: the ranks that the fault happens to.
        second: a rank that is killed while the others shrink the group.
    """

    number: int
    kind: str
    turn: int
    delay: float
    members: tuple[int, ...]
    victims: tuple[int, ...]
    second: int | None = None

    @property
    def survivors(self) -> tuple[int, ...]:
        """The ranks that are alive after the fault."""
        dead = (*self.victims, self.second) if self.kind == KILL else ()
        return tuple(rank for rank in self.members if rank not in dead)

    def allows(self, rank: int, lost: int | None) -> bool:
        """Whether the `RankLost` of a rank may name the rank `lost`."""
        if lost is None:
            return False
        if self.kind == CUT and rank in self.victims:
            return lost not in self.victims
        return lost in self.victims


class Launch(NamedTuple):
    """The ranks of a launch and its faults.

    Attributes:
        per_host: ranks of each emulated host; 0 for one host, this machine.
        layout: variables of the environment.
    """

    seed: int
    number: int
    backend: str
    ranks: int
    per_host: int
    layout: dict[str, str]
    faults: tuple[Fault, ...]


def launch_of(
    seed: int, number: int, kinds: Sequence[str], *, max_ranks: int = MOST_RANKS, faults: int = 1,
    backend: str = "torch", hosts: bool = False, hosts_only: bool = False,
) -> Launch:  # fmt: skip
    """Return a launch.

    Args:
        kinds: of the faults; `CUT` needs hosts, which only some launches have.
        max_ranks: upper bound of the number of ranks.
        faults: number of faults; fewer if only one rank survives.
        hosts: some launches run on emulated hosts, and all with `hosts_only`.

    >>> launch_of(1, 5, ["kill"]) == launch_of(1, 5, ["kill"])
    True
    """
    choose = random.Random(f"{seed} {number}")
    per_host = 0
    is_on_hosts = choose.random() < 0.4 or hosts_only or not {*kinds} - {CUT}
    if hosts and is_on_hosts:
        per_host = choose.randint(1, max(1, max_ranks // 2))
    if per_host:
        ranks, layout = per_host * choose.randint(2, min(MOST_HOSTS, max_ranks // per_host)), {}
    else:
        ranks, layout = choose.randint(2, max_ranks), choose.choice(LAYOUTS)
        kinds = [kind for kind in kinds if kind != CUT]
    accepted: list[Fault] = []
    members = tuple(range(ranks))
    while len(accepted) < faults and len(members) > 1:
        fault = _fault(choose, len(accepted), kinds, members, per_host)
        if len(fault.survivors) > 0:
            accepted.append(fault)
            members = fault.survivors
    return Launch(seed, number, backend, ranks, per_host, layout, tuple(accepted))


def _fault(
    choose: random.Random, number: int, kinds: Sequence[str], members: tuple[int, ...],
    per_host: int,
) -> Fault:  # fmt: skip
    """Return a fault of some ranks, or of all of one host."""
    kind, victim = choose.choice(list(kinds)), choose.choice(members)
    victims: tuple[int, ...] = (victim,)
    if per_host and (kind == CUT or (kind in (KILL, STOP) and choose.random() < 0.5)):
        victims = tuple(rank for rank in members if rank // per_host == victim // per_host)
        if victims == members:  # there is no other host left
            kind, victims = SLOW, (victim,)
    spared = [rank for rank in members if rank not in victims]
    second = (
        choose.choice(spared)
        if kind == KILL and len(spared) > 2 and choose.random() < 0.3
        else None
    )
    delay = choose.choice((0.0, choose.random() * _LONGEST))
    return Fault(number, kind, choose.randint(1, CALLS - 1), delay, members, victims, second)
