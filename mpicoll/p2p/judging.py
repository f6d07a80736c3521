"""Judge the figures of links and ranks, and name what is sick: a host, a rank, or a link.

The same links and ranks are measured in several looks. A figure is slow if its mean excess over the
typical one is beyond the limit of its quantity, and no chance: the excess of every look is, or
equal members hardly ever have one as large. The typical figure of a look is the median over all
hosts of the median over the links, or ranks, of a host: a single sick host spoils only one link of
each other host. Of two middle figures, the better one counts.

If more than half of a host's links are slow, the host is sick. A slow link that no sick host
explains is a sick link itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import median, median_low
from typing import NamedTuple, TypeVar

import numpy as np

from mpicoll.backend import Nodes
from mpicoll.measurement.peers import compare
from mpicoll.p2p.matchings import Pair
from mpicoll.text.numbers import number


class Quantity(NamedTuple):
    """A figure of links or ranks.

    Attributes:
        verb: as in "host3 moves 1.2 GB/s".
        limit: how many times worse than the typical figure a slow one is.
        is_time: less is better.
    """

    name: str
    verb: str
    unit: str
    limit: float
    is_time: bool = False

    def cost(self, amount: float) -> float:
        """Return the logarithm of an amount, with the sign by which more is worse."""
        return log(amount) if self.is_time else -log(amount)

    def amount(self, cost: float) -> float:
        """Return the amount of a cost."""
        return exp(cost if self.is_time else -cost)


LATENCY = Quantity("latency", "answers in", "us", 3.0, is_time=True)
BANDWIDTH = Quantity("bandwidth", "moves", "GB/s", 1.5)
COPY = Quantity("copy", "copies", "GB/s", 1.5)
FOLD = Quantity("fold", "folds", "GB/s", 1.5)
COMPUTE = Quantity("compute", "computes", "Gop/s", 1.5)
SHARE = Quantity("share", "gets", "of a core", 1.35)
"""The limit of latency is the largest: one more switch between two hosts can double it. Rates are
those of a rank's time on its core, and the share is that of the time in which it has the core."""

LINK_QUANTITIES, RANK_QUANTITIES = (LATENCY, BANDWIDTH), (SHARE, COPY, FOLD, COMPUTE)


@dataclass
class Figures:
    """The figures of one link or rank, by quantity.

    Attributes:
        fault: why it cannot be trusted at all, as for wrong bytes; empty if it can.
    """

    amounts: dict[str, float] = field(default_factory=dict)
    fault: str = ""


Part = Pair | int
"""A link or a rank."""
P = TypeVar("P", Pair, int)


@dataclass(frozen=True)
class Finding:
    """A host, rank or link that is sick.

    Attributes:
        hosts: the indices of one host, or of the two ends of a link; none if no single host
            explains wrong results.
        parts: the ranks or the links whose figures are slow.
        quantity: None for a fault.
        amount, typical: its figure, and that of healthy ones.
        fault: the text of a fault.
    """

    hosts: tuple[int, ...]
    parts: tuple[Part, ...] = ()
    quantity: Quantity | None = None
    amount: float = 0.0
    typical: float = 0.0
    fault: str = ""


# -- links and ranks ----------------------------------------------------------------------


def judge_links(looks: Sequence[Mapping[Pair, Figures]], is_final: bool = True) -> list[Finding]:
    """Return hosts whose links are mostly slow or faulty, and other slow or faulty links.

    Args:
        is_final: an excess that may be chance is no finding.
    """
    hosts_of = {pair: pair for pair in looks[0]}
    return [*_faulty(looks, hosts_of), *_slow(LINK_QUANTITIES, looks, hosts_of, is_final)]


def judge_ranks(
    nodes: Nodes, looks: Sequence[Mapping[int, Figures]], is_final: bool = True
) -> list[Finding]:
    """Return hosts whose ranks are mostly slow or faulty, and other slow or faulty ranks.

    Args:
        is_final: an excess that may be chance is no finding.
    """
    hosts_of = {rank: (index,) for index, node in enumerate(nodes) for rank in node}
    findings = [*_faulty(looks, hosts_of), *_slow((SHARE,), looks, hosts_of, is_final)]
    # Memory and arithmetic compare where ranks have their cores alike.
    sick = {rank for finding in findings for rank in finding.parts}
    looks = [{rank: look[rank] for rank in look if rank not in sick} for look in looks]
    return [*findings, *_slow(RANK_QUANTITIES[1:], looks, hosts_of, is_final)]


def _faulty(
    looks: Sequence[Mapping[P, Figures]], hosts_of: Mapping[P, tuple[int, ...]]
) -> Iterator[Finding]:
    """Yield the hosts of links or ranks that cannot be trusted, and other such ones."""
    faults = {part: look[part].fault for look in looks for part in look if look[part].fault}
    for hosts, bad in blame(faults, hosts_of):
        yield Finding(hosts, bad, fault=faults[bad[0]])


def _slow(
    quantities: Sequence[Quantity], looks: Sequence[Mapping[P, Figures]],
    hosts_of: Mapping[P, tuple[int, ...]], is_final: bool,
) -> Iterator[Finding]:  # fmt: skip
    """Yield the hosts of slow links or ranks, and other slow ones."""
    for quantity in quantities:
        costs: dict[P, list[float]] = costs_of(quantity, looks)
        if not costs:
            continue
        places = [hosts_of[part] for part in costs]
        typical = [_typical(row, places) for row in zip(*costs.values(), strict=True)]
        values, limit = np.array([*costs.values()]).T, log(quantity.limit)
        excesses = compare(values, least=limit, typical=np.array(typical))
        slow = [
            part for part, excess in zip(costs, excesses, strict=True)
            if excess.mean > limit and (excess.is_real or excess.least > limit or not is_final)
        ]  # fmt: skip
        for hosts, bad in blame(slow, {part: hosts_of[part] for part in costs}):
            amount = quantity.amount(median(cost for part in bad for cost in costs[part]))
            yield Finding(hosts, bad, quantity, amount, quantity.amount(median(typical)))


def costs_of(
    quantity: Quantity, looks: Sequence[Mapping[P, Figures]]
) -> dict[P, list[float]]:  # fmt: skip
    """Return by link or rank the costs in all looks, without those that a look lacks."""
    return {
        part: [quantity.cost(look[part].amounts[quantity.name]) for look in looks]
        for part in looks[0]
        if all(part in look and quantity.name in look[part].amounts for look in looks)
    }


def _typical(costs: Sequence[float], hosts: Sequence[tuple[int, ...]]) -> float:
    by_host: dict[int, list[float]] = {}
    for cost, members in zip(costs, hosts, strict=True):
        for host in members:
            by_host.setdefault(host, []).append(cost)
    return median_low([median_low(values) for values in by_host.values()])


def blame(
    bad: Iterable[P], hosts_of: Mapping[P, tuple[int, ...]]
) -> list[tuple[tuple[int, ...], tuple[P, ...]]]:
    """Return the hosts, then the links or ranks, that explain all bad ones, each with these.

    A host needs two links or ranks, of which more than half are bad. The worst host comes first,
    and its links count for no other host.

    >>> links = {pair: pair for pair in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]}
    >>> blame([(0, 1), (1, 2), (1, 3)], links)
    [((1,), ((0, 1), (1, 2), (1, 3)))]
    >>> blame([(0, 1)], links)
    [((0, 1), ((0, 1),))]
    """
    remaining, parts = set(bad), set(hosts_of)
    culprits: list[tuple[tuple[int, ...], tuple[P, ...]]] = []

    def share(host: int) -> float:
        count = sum(host in hosts_of[part] for part in parts)
        return sum(host in hosts_of[part] for part in remaining) / count if count > 1 else 0.0

    while remaining:
        worst = max(sorted({host for part in remaining for host in hosts_of[part]}), key=share)
        if share(worst) <= 0.5:
            break
        local = {part for part in parts if worst in hosts_of[part]}
        culprits.append(((worst,), tuple(sorted(remaining & local))))
        remaining, parts = remaining - local, parts - local
    return culprits + [(hosts_of[part], (part,)) for part in sorted(remaining)]


# -- what a job should avoid --------------------------------------------------------------


def hosts_to_avoid(findings: Sequence[Finding]) -> tuple[set[int], set[int]]:
    """Return the sick hosts, and healthy hosts without which no sick link remains."""
    sick = {finding.hosts[0] for finding in findings if len(finding.hosts) == 1}
    links = [finding.hosts for finding in findings if len(finding.hosts) == 2]
    spared: set[int] = set()
    while remaining := [link for link in links if not {*link} & (sick | spared)]:
        ends = [host for link in remaining for host in link]
        # The first host of a job often has a special part, so the later one is left out.
        spared.add(max(ends, key=lambda host: (ends.count(host), host)))
    return sick, spared


# -- words --------------------------------------------------------------------------------


def sentence(finding: Finding, names: Sequence[str]) -> str:
    """Return the line of a sick host, rank or link, with its figures and the typical ones."""
    quantity, title = finding.quantity, f"SICK {subject(finding, names)}"
    if quantity is None:
        return f"{title}: {finding.fault}"
    times = exp(quantity.cost(finding.amount) - quantity.cost(finding.typical))
    return (
        f"{title}: {quantity.verb} {number(finding.amount)} {quantity.unit}, the others "
        f"{number(finding.typical)} {quantity.unit}: {number(times, 2)} times slower"
    )


def subject(finding: Finding, names: Sequence[str]) -> str:
    """Return the name of a host, rank or link."""
    if not finding.hosts:
        return "results"
    if len(finding.hosts) == 2:
        return "link " + " ".join(names[host] for host in finding.hosts)
    host = names[finding.hosts[0]]
    is_rank = len(finding.parts) == 1 and isinstance(finding.parts[0], int)
    return f"rank {finding.parts[0]} on {host}" if is_rank else f"host {host}"
