"""Measured times against what Hockney's model says of the schedule, and against lower bounds.

Alpha and beta come from the records of `mpicoll.p2p`, of the same kind of machine, library and
device, and of the transport that ran where there are some. Folds are taken to be free, as no
record says what they cost: the model of a reduction is a little too fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from mpicoll.algorithms.registry import find
from mpicoll.costs import AlphaBeta, Network, price
from mpicoll.costs.bounds import lower_bound
from mpicoll.errors import ArgumentError, Unsupported
from mpicoll.interfaces import Nodes
from mpicoll.records.journal import Line
from mpicoll.records.lines import FitRecord
from mpicoll.report.curves import Panel, median_of
from mpicoll.report.loading import Records
from mpicoll.report.setups import kind

MOST_RANKS = 64
"""With more ranks a price takes seconds: the bound alone is told."""

HOW_TO_MEASURE_PAIRS = (
    "No records of pairs that fit these cases were given, so there are no alpha and beta to "
    "compare with. Make them on the same machine with the same libraries, by mpirun -n 4 python -m "
    "mpicoll.p2p -o pairs.jsonl, and name that file too."
)


@dataclass(frozen=True)
class Against:
    """A record beside what could be expected.

    Attributes:
        links: the transport whose alpha and beta these are.
        model: microseconds of the schedule that ran; None where it is the library's own, or
            cannot be priced.
        bound: microseconds that no schedule can beat.
    """

    record: Line
    links: str
    model: float | None
    bound: float

    @property
    def over_model(self) -> float | None:
        """Measured over model."""
        return median_of(self.record) / self.model if self.model else None

    @property
    def over_bound(self) -> float | None:
        """Measured over bound."""
        return median_of(self.record) / self.bound if self.bound else None


def against(panel: Panel, records: Records) -> list[Against]:
    """Return what can be said of each record of a panel that has a time."""
    return [
        found for each in panel.records()
        if each["ranks"] > 1 and (found := _against(each, records))
    ]  # fmt: skip


def _against(record: Line, records: Records) -> Against | None:
    run = records.run_of(record)
    rows = [each for each in records.fits if _fits(each, record, records)]
    links = _transport(record, {each["transport"] for each in rows})
    rows = [each for each in rows if each["transport"] == links]
    nodes = placed(run, record["ranks"], record["nodes"])
    if links is None or nodes is None:
        return None
    try:
        network = Network.fitted(map(_fit_record, rows), record["backend"])
    except ArgumentError:
        return None
    size, nbytes = record["ranks"], record["bytes_total"]
    bound = lower_bound(record["collective"], size, nbytes, _quickest(rows, network), nodes)
    priced = _priced(record, network, nodes)
    return Against(record, links, priced, bound.seconds * 1e6)


def _fit_record(line: Line) -> FitRecord:
    return msgspec.convert(line, FitRecord)


def _fits(fit: Line, record: Line, records: Records) -> bool:
    """Whether a fit is of the machine, library and device of a record."""
    same = all(fit.get(name) == record[name] for name in ("backend", "library", "device"))
    # One node says nothing of the network between several.
    reaches = record["nodes"] == 1 or fit["nodes"] > 1
    return same and reaches and kind(records.run_of(fit)) == kind(records.run_of(record))


def _transport(record: Line, known: Iterable[str]) -> str | None:
    """Return the transport whose links a record is measured against."""
    ways = sorted(set(known))
    return next(
        (way for way in (record["transport"], "point-to-point", "direct") if way in ways),
        ways[0] if ways else None,
    )


def _quickest(rows: Sequence[Line], network: Network) -> Network:
    """Return the network with the best of the classes of pairs: a bound must hold for all."""
    near = [each for each in rows if each["link"] != "network"]
    if not near:
        return network
    link = AlphaBeta(
        min(each["alpha_us"] for each in near) / 1e6,
        min(each["beta_ns_per_byte"] for each in near) / 1e9,
    )
    between = network.between if len(near) < len(rows) else link
    return Network(between, link)


def placed(run: Mapping[str, object], ranks: int, count: int) -> Nodes | None:
    """Return the ranks of each of `count` nodes, None where the records do not tell."""
    if count == 1:
        return (tuple(range(ranks)),)
    hosts: Sequence[str] = run.get("hosts") or ()  # type: ignore[assignment]
    found = {host: tuple(_where(hosts, host)) for host in hosts}
    if len(hosts) == ranks and len(found) == count:
        return tuple(found.values())
    if ranks % count:
        return None
    width = ranks // count
    return tuple(tuple(range(start, start + width)) for start in range(0, ranks, width))


def _where(hosts: Sequence[str], name: str) -> Iterator[int]:
    return (rank for rank, each in enumerate(hosts) if each == name)


def _priced(record: Line, network: Network, nodes: Nodes) -> float | None:
    """Return the microseconds of the schedule that ran; None where it is the library's own."""
    executed = record["executed"]
    if not executed or executed.startswith("native") or record["ranks"] > MOST_RANKS:
        return None
    try:
        return 1e6 * _seconds(
            record["collective"], executed.partition("@")[0], record["ranks"],
            record["bytes_total"], network, record["root"] or 0, nodes,
        )  # fmt: skip
    except (ArgumentError, Unsupported):
        return None  # a schedule of somebody's own, which is not here


@cache
def _seconds(
    collective: str, executed: str, size: int, nbytes: int, network: Network, root: int,
    nodes: Nodes,
) -> float:  # fmt: skip
    return price(find(collective, executed), size, nbytes, network, root=root, nodes=nodes)
