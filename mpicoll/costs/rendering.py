"""Rankings as tables, and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from mpicoll.costs.bounds import Bound, bound
from mpicoll.costs.ranking import Curve, Ranking
from mpicoll.text.numbers import counted, number
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
    found = Table("from", "to", title="crossovers among these")
    found.add_column("cheapest", overflow="fold")
    for each in output.ranking.ranges(*output.sweep):
        found.add_row(
            rounded_size_text(each.low), rounded_size_text(each.high), str(each.algorithm)
        )
    yield found


def _prices(output: RankingOutput, nbytes: int) -> Table:
    scenario, least = output.ranking.scenario, output.bound(nbytes)
    parts = [scenario.collective, counted(scenario.topology.size, "rank")]
    found = Table(title=", ".join([*parts, rounded_size_text(nbytes)] if output.sweep else parts))
    # Names are folded where the table is too wide: cut short they would say nothing.
    found.add_column("algorithm", overflow="fold")
    for name in ("rounds", "sent", "time us", "x bound"):
        found.add_column(name, justify="right", no_wrap=True)
    found.add_column("priced by", no_wrap=True)
    for each in output.ranking.at(nbytes):
        seconds = each.seconds(nbytes)
        found.add_row(
            str(each.algorithm), str(each.rounds), number(each.sent), number(seconds * 1e6),
            number(seconds / least.seconds) if least.seconds else "-", each.how,
        )  # fmt: skip
    found.add_section()
    limit = max(least.limits, key=least.limits.__getitem__)
    found.add_row("bound", "", "", number(least.seconds * 1e6), "1", f"by {limit}")
    return found


def notes(ranking: Ranking) -> Iterator[str]:
    """Yield notes below the tables: algorithms without a price, and curves that are rough."""
    for reason, names in _grouped(ranking).items():
        yield f"not priced: {', '.join(names)}: {reason}"
    rough = [str(each.algorithm) for each in ranking.curves if not each.smooth]
    if rough:
        yield f"rough between the sizes shown, as time ran out: {', '.join(rough)}"


def _grouped(ranking: Ranking) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in ranking.unpriced:
        found.setdefault(each.reason, []).append(str(each.algorithm))
    return found


def lines(output: RankingOutput) -> Iterator[str]:
    """Yield JSON: the scenario as ``setting``, then each bound, price, crossover and refusal."""
    scenario = output.ranking.scenario
    yield _line("setting", {
        "collective": scenario.collective, "ranks": scenario.topology.size, "root": scenario.root,
        "model": [type(scenario.model).__name__, asdict(scenario.model)],
        "topology": str(scenario.topology),
    })  # fmt: skip
    for nbytes in output.sizes:
        least = output.bound(nbytes)
        yield _line("bound", {"bytes": nbytes, "seconds": least.seconds, **least._asdict()})
        for each in output.ranking.at(nbytes):
            yield _line("price", _record(each, nbytes, least))
    for wins in output.ranking.ranges(*output.sweep) if output.sweep else ():
        record = {"low": wins.low, "high": wins.high, "algorithm": str(wins.algorithm)}
        yield _line("cheapest", record)
    for refused in output.ranking.unpriced:
        record = {"algorithm": str(refused.algorithm), "reason": refused.reason}
        yield _line("unpriced", record)


def _record(each: Curve, nbytes: int, least: Bound) -> dict[str, Any]:
    seconds = each.seconds(nbytes)
    return {
        "bytes": nbytes, "algorithm": str(each.algorithm), "seconds": seconds,
        "over_bound": seconds / least.seconds if least.seconds else None,
        "rounds": each.rounds, "sent": each.sent, "priced_by": each.how,
    }  # fmt: skip


def _line(kind: str, record: dict[str, Any]) -> str:
    return json.dumps({"kind": kind, **record})
