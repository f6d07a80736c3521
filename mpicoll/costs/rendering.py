"""Rankings as tables, and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from mpicoll.costs.bounds import Bound, bound
from mpicoll.costs.ranking import Curve, Ranking
from mpicoll.text.numbers import count_text, number
from mpicoll.text.sizes import rounded_size_text


@dataclass(frozen=True)
class RankingOutput:
    """A ranking, and the part of it to print.

    Attributes:
        sizes: the sizes to print it at.
        sweep: sizes between which to look for crossovers; None where there are no sizes.
    """

    ranking: Ranking
    sizes: Sequence[int]
    sweep: tuple[int, int] | None

    def bound(self, nbytes: float) -> Bound:
        """Return the bound that no algorithm beats."""
        scenario = self.ranking.scenario
        return bound(scenario.collective, nbytes, scenario.model, scenario.topology, scenario.root)


def tables(output: RankingOutput) -> Iterator[Table]:
    """Yield a table for each size, then that of the crossovers."""
    for nbytes in output.sizes:
        yield _prices(output, nbytes)
    if output.sweep is None:
        return
    table = Table("from", "to", title="crossovers among these")
    table.add_column("cheapest", overflow="fold")
    for span in output.ranking.ranges(*output.sweep):
        table.add_row(
            rounded_size_text(span.low), rounded_size_text(span.high), str(span.algorithm)
        )
    yield table


def _prices(output: RankingOutput, nbytes: int) -> Table:
    scenario, lower_bound = output.ranking.scenario, output.bound(nbytes)
    parts = [scenario.collective, count_text(scenario.topology.size, "rank")]
    table = Table(title=", ".join([*parts, rounded_size_text(nbytes)] if output.sweep else parts))
    # Names are folded where the table is too wide: cut short they would say nothing.
    table.add_column("algorithm", overflow="fold")
    for name in ("rounds", "sent", "classes", "time us", "x bound"):
        table.add_column(name, justify="right", no_wrap=True)
    for curve in output.ranking.at(nbytes):
        seconds = curve.seconds(nbytes)
        table.add_row(
            str(curve.algorithm), str(curve.rounds), number(curve.sent), f"{curve.classes:,}",
            number(seconds * 1e6),
            number(seconds / lower_bound.seconds) if lower_bound.seconds else "-",
        )  # fmt: skip
    table.add_section()
    limit = max(lower_bound.limits, key=lower_bound.limits.__getitem__)
    table.add_row(f"bound, by {limit}", "", "", "", number(lower_bound.seconds * 1e6), "1")
    return table


def notes(ranking: Ranking) -> Iterator[str]:
    """Yield notes below the tables: algorithms without a price, and curves that are rough."""
    for reason, names in _grouped(ranking).items():
        yield f"not priced: {', '.join(names)}: {reason}"
    rough = [str(curve.algorithm) for curve in ranking.curves if not curve.smooth]
    if rough:
        yield f"rough between the sizes shown, as time ran out: {', '.join(rough)}"
    limit = ranking.scenario.time_limit
    if rough or any(entry.is_late for entry in ranking.unpriced):
        yield f"an algorithm had {number(limit)} s of the processor: --patience gives it more"


def _grouped(ranking: Ranking) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for entry in ranking.unpriced:
        groups.setdefault(entry.reason, []).append(str(entry.algorithm))
    return groups


def lines(output: RankingOutput) -> Iterator[str]:
    """Yield JSON: the scenario as ``setting``, then each bound, price, crossover and refusal."""
    scenario = output.ranking.scenario
    yield _line("setting", {
        "collective": scenario.collective, "ranks": scenario.topology.size, "root": scenario.root,
        "model": [type(scenario.model).__name__, asdict(scenario.model)],
        "topology": str(scenario.topology),
    })  # fmt: skip
    for nbytes in output.sizes:
        lower_bound = output.bound(nbytes)
        yield _line(
            "bound", {"bytes": nbytes, "seconds": lower_bound.seconds, **lower_bound._asdict()}
        )
        for curve in output.ranking.at(nbytes):
            yield _line("price", _record(curve, nbytes, lower_bound))
    for wins in output.ranking.ranges(*output.sweep) if output.sweep else ():
        record = {"low": wins.low, "high": wins.high, "algorithm": str(wins.algorithm)}
        yield _line("cheapest", record)
    for refused in output.ranking.unpriced:
        record = {"algorithm": str(refused.algorithm), "reason": refused.reason}
        yield _line("unpriced", record)


def _record(curve: Curve, nbytes: int, lower_bound: Bound) -> dict[str, Any]:
    seconds = curve.seconds(nbytes)
    return {
        "bytes": nbytes, "algorithm": str(curve.algorithm), "seconds": seconds,
        "over_bound": seconds / lower_bound.seconds if lower_bound.seconds else None,
        "rounds": curve.rounds, "sent": curve.sent, "classes": curve.classes,
    }  # fmt: skip


def _line(kind: str, record: dict[str, Any]) -> str:
    return json.dumps({"kind": kind, **record})
