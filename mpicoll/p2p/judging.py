"""Judge the figures of links and ranks, and name what is sick: a host, a rank, or a link.

A figure is slow if it is worse than the typical one by more than the limit of its quantity. The
typical figure is the median over all hosts of the median over the links, or ranks, of a host: a
single sick host spoils only one link of each other host. Noise makes figures worse but never
better, so the better one of two middle figures counts.

If more than half of a host's links are slow, the host is sick. A slow link that no sick host
explains is a sick link itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median_high, median_low
from typing import NamedTuple

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
SHARE = Quantity("share", "gets", "of a core", 2.0)
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


@dataclass(frozen=True)
class Finding:
    """A host, rank or link that is sick, or suspected.

    Attributes:
        hosts: the indices of one host, or of the two ends of a link; none if no single host
            explains wrong results.
        ranks: the ranks whose figures are slow; none if links are.
        links: the links that are slow.
        quantity: None for a fault.
        fault: the text of a fault.
    """

    hosts: tuple[int, ...]
    ranks: tuple[int, ...] = ()
    links: tuple[Pair, ...] = ()
    quantity: Quantity | None = None
    amount: float = 0.0
    typical: float = 0.0
    fault: str = ""

    @property
    def parts(self) -> Sequence[Part]:
        """The links or ranks that are slow."""
        return self.links or self.ranks

    def single(self, part: Part, figures: Figures) -> Finding:
        """Return the finding of one of its links or ranks, which has these figures."""
        amount = figures.amounts[self.quantity.name] if self.quantity else 0.0
        if isinstance(part, int):
            return replace(self, ranks=(part,), amount=amount)
        return replace(self, hosts=part, links=(part,), amount=amount)


# -- links --------------------------------------------------------------------------------


def judge_links(links: Links) -> list[Finding]:
    """Return hosts whose links are mostly slow or faulty, and other slow or faulty links."""
    findings = []
    faulty = {pair: figures.fault for pair, figures in links.items() if figures.fault}
    for hosts, bad in blame(faulty, links):
        findings.append(Finding(hosts, links=bad, fault=faulty[bad[0]]))
    for quantity in LINK_QUANTITIES:
        findings += _slow_links(quantity, links)
    return findings


def _slow_links(quantity: Quantity, links: Links) -> list[Finding]:
    amounts = {
        pair: figures.amounts[quantity.name] for pair, figures in links.items()
        if quantity.name in figures.amounts
    }  # fmt: skip
    if not amounts:
        return []
    typical = typical_link(quantity, amounts)
    slow = {pair for pair in amounts if quantity.ratio(amounts[pair], typical) > quantity.limit}
    return [
        Finding(
            hosts, links=bad, quantity=quantity, typical=typical,
            amount=quantity.middle([amounts[pair] for pair in bad]),
        )
        for hosts, bad in blame(slow, amounts)
    ]  # fmt: skip


def typical_link(quantity: Quantity, amounts: Mapping[Pair, float]) -> float:
    """Return the median over all hosts of the median of a host's links."""
    by_host: dict[int, list[float]] = {}
    for pair, amount in amounts.items():
        for host in pair:
            by_host.setdefault(host, []).append(amount)
    return quantity.middle([quantity.middle(values) for values in by_host.values()])


def blame(
    bad: Iterable[Pair], all_links: Iterable[Pair]
) -> list[tuple[tuple[int, ...], tuple[Pair, ...]]]:
    """Return the hosts, then the links, that explain all bad links, each with these links.

    A host needs two links, of which more than half are bad. The worst host comes first, and its
    links count for no other host.

    >>> blame([(0, 1), (1, 2), (1, 3)], [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    [((1,), ((0, 1), (1, 2), (1, 3)))]
    >>> blame([(0, 1)], [(0, 1), (0, 2), (1, 2)])
    [((0, 1), ((0, 1),))]
    """
    bad_links, links = set(bad), set(all_links)
    culprits: list[tuple[tuple[int, ...], tuple[Pair, ...]]] = []
    while bad_links:
        hosts = sorted({host for pair in bad_links for host in pair})
        worst = max(hosts, key=lambda host: _share(host, bad_links, links))
        if _share(worst, bad_links, links) <= 0.5:
            break
        culprits.append(((worst,), tuple(sorted(pair for pair in bad_links if worst in pair))))
        bad_links = {pair for pair in bad_links if worst not in pair}
        links = {pair for pair in links if worst not in pair}
    return culprits + [(pair, (pair,)) for pair in sorted(bad_links)]


def _share(host: int, bad: set[Pair], links: set[Pair]) -> float:
    """Return the share of a host's links that are bad; 0 if it has a single link."""
    count = sum(host in pair for pair in links)
    return sum(host in pair for pair in bad) / count if count > 1 else 0.0


# -- ranks --------------------------------------------------------------------------------


def judge_ranks(ranks: Ranks, nodes: Nodes) -> list[Finding]:
    """Return hosts whose ranks are mostly slow, and other slow or faulty ranks."""
    node_of = {rank: index for index, node in enumerate(nodes) for rank in node}
    findings = [
        Finding((node_of[rank],), (rank,), fault=figures.fault)
        for rank, figures in ranks.items() if figures.fault
    ]  # fmt: skip
    for quantity in RANK_QUANTITIES:
        amounts = {
            rank: figures.amounts[quantity.name] for rank, figures in ranks.items()
            if quantity.name in figures.amounts
        }  # fmt: skip
        if not amounts:
            continue
        typical = typical_rank(quantity, amounts, nodes)
        for index, node in enumerate(nodes):
            measured = [rank for rank in node if rank in amounts]
            findings += _slow_ranks(quantity, amounts, typical, index, measured)
        if quantity is SHARE:  # memory and arithmetic compare where ranks have their cores alike
            sick = {rank for finding in findings for rank in finding.ranks}
            ranks = {rank: figures for rank, figures in ranks.items() if rank not in sick}
    return findings


def typical_rank(quantity: Quantity, amounts: Mapping[int, float], nodes: Nodes) -> float:
    """Return the median over the hosts of the median of a host's ranks."""
    by_host = ([amounts[rank] for rank in node if rank in amounts] for node in nodes)
    return quantity.middle([quantity.middle(values) for values in by_host if values])


def _slow_ranks(
    quantity: Quantity, amounts: Mapping[int, float], typical: float, index: int,
    node: Sequence[int],
) -> list[Finding]:  # fmt: skip
    slow = [rank for rank in node if quantity.ratio(amounts[rank], typical) > quantity.limit]
    groups = [tuple(slow)] if 2 * len(slow) > len(node) else [(rank,) for rank in slow]
    return [
        Finding(
            (index,), group, quantity=quantity, typical=typical,
            amount=quantity.middle([amounts[rank] for rank in group]),
        )
        for group in groups
    ]  # fmt: skip


# -- the second look ----------------------------------------------------------------------


@dataclass(frozen=True)
class Confirmed:
    """A finding that a second look has confirmed.

    Attributes:
        amount: the figure of the second look; `typical`: that of healthy ones in the same look.
    """

    finding: Finding
    amount: float = 0.0
    typical: float = 0.0


def confirm(
    finding: Finding, first: Mapping[Part, Figures], again: Mapping[Part, Figures],
    references: Sequence[Figures],
) -> list[Confirmed]:  # fmt: skip
    """Return a finding, or else those of its links or ranks, that the second look confirms.

    Noise in the first look can add healthy links to a slow one, so that their host is suspected.

    Args:
        first, again: the figures of both looks; the second one may have some links only.
        references: the figures of healthy links or ranks in the second look; if there are none,
            those of the first look have to do.
    """
    if finding.quantity is None:
        return [Confirmed(finding)]  # noise makes no wrong results
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
            confirmed.append(Confirmed(candidate, amount, typical))
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


def sentence(confirmed: Confirmed, names: Sequence[str]) -> str:
    """Return the line of a sick host, rank or link, with its figures and the typical ones."""
    finding, quantity = confirmed.finding, confirmed.finding.quantity
    title = f"SICK {subject(finding, names)}"
    if quantity is None:
        return f"{title}: {finding.fault}"
    if not confirmed.amount:
        return f"{title}: does not answer"
    times = number(quantity.ratio(confirmed.amount, confirmed.typical), 2)
    unit = quantity.unit
    return (
        f"{title}: {quantity.verb} {number(confirmed.amount)} {unit}, the others "
        f"{number(confirmed.typical)} {unit}: {times} times slower "
        f"(in the first look {number(finding.amount)} and {number(finding.typical)} {unit})"
    )


def subject(finding: Finding, names: Sequence[str]) -> str:
    """Return the name of a host, rank or link."""
    if not finding.hosts:
        return "results"
    if len(finding.hosts) == 2:
        return "link " + " ".join(names[host] for host in finding.hosts)
    host = names[finding.hosts[0]]
    return f"rank {finding.ranks[0]} on {host}" if len(finding.ranks) == 1 else f"host {host}"
