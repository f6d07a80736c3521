"""Judge the figures of links and ranks, and name what is sick: a host, a rank, or a link.

A figure is slow if it is worse than the typical one by more than the limit of its quantity. The
typical figure is the median over all hosts of the median over the links, or ranks, of a host: a
single sick host spoils only one link of each other host. Noise makes figures worse but never
better, so the better one of two middle figures counts.

If more than half of a host's links are slow, the host is sick. A slow link that no sick host
explains is a sick link itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median_high, median_low
from typing import NamedTuple, TypeVar

from mpicoll.backend import Nodes
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

    def ratio(self, amount: float, typical: float) -> float:
        """Return how many times worse than the typical figure an amount is."""
        worse, better = (amount, typical) if self.is_time else (typical, amount)
        return worse / better if better else inf

    def middle(self, amounts: Sequence[float]) -> float:
        """Return the median; of two middle figures, the better one."""
        return (median_low if self.is_time else median_high)(amounts)

    def best(self, amounts: Iterable[float]) -> float:
        """Return the best figure."""
        return (min if self.is_time else max)(amounts)


LATENCY = Quantity("latency", "answers in", "us", 3.0, is_time=True)
BANDWIDTH = Quantity("bandwidth", "moves", "GB/s", 1.5)
COPY = Quantity("copy", "copies", "GB/s", 1.5)
FOLD = Quantity("fold", "folds", "GB/s", 1.5)
COMPUTE = Quantity("compute", "computes", "Gop/s", 1.5)
SHARE = Quantity("share", "gets", "of a core", 1.6)
"""The limit of latency is the largest: one more switch between two hosts can double it. Rates are
those of a rank's time on its core, and the share is that of the time in which it has the core."""

LINK_QUANTITIES, RANK_QUANTITIES = (LATENCY, BANDWIDTH), (SHARE, COPY, FOLD, COMPUTE)
QUANTITIES = {quantity.name: quantity for quantity in (*LINK_QUANTITIES, *RANK_QUANTITIES)}


@dataclass
class Figures:
    """The figures of one link or rank, by quantity.

    Attributes:
        fault: why it cannot be trusted at all, as for wrong bytes; empty if it can.
    """

    amounts: dict[str, float] = field(default_factory=dict)
    fault: str = ""

    def merge(self, figures: Figures) -> Figures:
        """Return the better amounts of two looks; a fault of either one."""
        amounts = self.amounts | figures.amounts
        for name in self.amounts.keys() & figures.amounts.keys():
            amounts[name] = QUANTITIES[name].best((self.amounts[name], figures.amounts[name]))
        return Figures(amounts, self.fault or figures.fault)


Links = Mapping[Pair, Figures]
Ranks = Mapping[int, Figures]
Part = Pair | int
"""A link or a rank."""
P = TypeVar("P", Pair, int)


@dataclass(frozen=True)
class Finding:
    """A host, rank or link that is sick, or suspected.

    Attributes:
        hosts: the indices of one host, or of the two ends of a link; none if no single host
            explains wrong results.
        parts: the ranks or the links whose figures are slow.
        quantity: None for a fault.
        amount, typical: its figure, and that of healthy ones.
        first: both in the first look, of a finding that the second look confirms.
        fault: the text of a fault.
    """

    hosts: tuple[int, ...]
    parts: tuple[Part, ...] = ()
    quantity: Quantity | None = None
    amount: float = 0.0
    typical: float = 0.0
    first: tuple[float, float] = (0.0, 0.0)
    fault: str = ""

    def single(self, part: Part, figures: Figures) -> Finding:
        """Return the finding of one of its links or ranks, which has these figures."""
        amount = figures.amounts[self.quantity.name] if self.quantity else 0.0
        hosts = self.hosts if isinstance(part, int) else part
        return replace(self, hosts=hosts, parts=(part,), amount=amount)


# -- links and ranks ----------------------------------------------------------------------


def judge_links(links: Links) -> list[Finding]:
    """Return hosts whose links are mostly slow or faulty, and other slow or faulty links."""
    hosts_of = {pair: pair for pair in links}
    faulty = {pair: figures.fault for pair, figures in links.items() if figures.fault}
    findings = [Finding(hosts, bad, fault=faulty[bad[0]]) for hosts, bad in blame(faulty, hosts_of)]
    return [*findings, *_slow_parts(LINK_QUANTITIES, links, hosts_of)]


def judge_ranks(ranks: Ranks, nodes: Nodes) -> list[Finding]:
    """Return hosts whose ranks are mostly slow, and other slow or faulty ranks."""
    hosts_of = {rank: (index,) for index, node in enumerate(nodes) for rank in node}
    findings = [
        Finding(hosts_of[rank], (rank,), fault=figures.fault)
        for rank, figures in ranks.items() if figures.fault
    ]  # fmt: skip
    findings += _slow_parts((SHARE,), ranks, hosts_of)
    # Memory and arithmetic compare where ranks have their cores alike.
    sick = {rank for finding in findings for rank in finding.parts}
    ranks = {rank: figures for rank, figures in ranks.items() if rank not in sick}
    return [*findings, *_slow_parts(RANK_QUANTITIES[1:], ranks, hosts_of)]


def _slow_parts(
    quantities: Sequence[Quantity], parts: Mapping[P, Figures],
    hosts_of: Mapping[P, tuple[int, ...]],
) -> Iterator[Finding]:  # fmt: skip
    """Yield the hosts of slow links or ranks, and other slow ones."""
    for quantity in quantities:
        amounts = {
            part: figures.amounts[quantity.name] for part, figures in parts.items()
            if quantity.name in figures.amounts
        }  # fmt: skip
        by_host: dict[int, list[float]] = {}
        for part, amount in amounts.items():
            for host in hosts_of[part]:
                by_host.setdefault(host, []).append(amount)
        if not amounts:
            continue
        typical = quantity.middle([quantity.middle(values) for values in by_host.values()])
        slow = {part for part in amounts if quantity.ratio(amounts[part], typical) > quantity.limit}
        measured = {part: hosts_of[part] for part in amounts}
        for hosts, bad in blame(slow, measured):
            amount = quantity.middle([amounts[part] for part in bad])
            yield Finding(hosts, bad, quantity, amount, typical)


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


# -- the second look ----------------------------------------------------------------------


def confirm(
    finding: Finding, first: Mapping[Part, Figures], again: Mapping[Part, Figures],
    references: Sequence[Figures],
) -> list[Finding]:  # fmt: skip
    """Return a finding, or else those of its links or ranks, that the second look confirms.

    Noise in the first look can add healthy links to a slow one, so that their host is suspected.

    Args:
        first, again: the figures of both looks; the second one may have some links only.
        references: the figures of healthy links or ranks in the second look; if there are none,
            those of the first look have to do.
    """
    if finding.quantity is None:
        return [finding]  # noise makes no wrong results
    parts = [part for part in finding.parts if part in again]
    candidates = [(finding, [again[part] for part in parts])]
    if len(finding.parts) > 1:
        candidates += [(finding.single(part, first[part]), [again[part]]) for part in parts]
    typical = _middle(finding.quantity, references, finding.typical)
    confirmed = []
    for candidate, figures in candidates:
        # A link that is silent in the second look has a bandwidth only, which is 0.
        amount = _middle(finding.quantity, figures, candidate.amount)
        if finding.quantity.ratio(amount, typical) > finding.quantity.limit:
            looks = candidate.amount, candidate.typical
            confirmed.append(replace(candidate, amount=amount, typical=typical, first=looks))
            if candidate is finding:
                break
    return confirmed


def is_disturbed(finding: Finding, references: Sequence[Figures]) -> bool:
    """Whether the healthy links or ranks of a second look are slow: it has to be repeated."""
    if finding.quantity is None:
        return False
    amount = _middle(finding.quantity, references, finding.typical)
    return finding.quantity.ratio(amount, finding.typical) > finding.quantity.limit


def _middle(quantity: Quantity, figures: Sequence[Figures], default: float) -> float:
    amounts = [look.amounts[quantity.name] for look in figures if quantity.name in look.amounts]
    return quantity.middle(amounts) if amounts else default


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
    if not finding.amount:
        return f"{title}: does not answer"
    times = number(quantity.ratio(finding.amount, finding.typical), 2)
    amount, typical, *first = map(number, (finding.amount, finding.typical, *finding.first))
    return (
        f"{title}: {quantity.verb} {amount} {quantity.unit}, the others {typical} {quantity.unit}: "
        f"{times} times slower (in the first look {first[0]} and {first[1]} {quantity.unit})"
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
