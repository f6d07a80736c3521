"""The table of a comparison, its closing lines, and the layouts for other programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from rich.box import ASCII2, MARKDOWN, SIMPLE_HEAD, Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpicoll.cli.tables import print_on, print_plain, print_whole
from mpicoll.compare.comparison import ComparedCase, Comparison
from mpicoll.records.flat import write_rows
from mpicoll.records.identity import FIELDS, variant
from mpicoll.records.lines import CaseRecord
from mpicoll.selection.auto import CHOOSERS
from mpicoll.text.numbers import number
from mpicoll.text.printable import plain_markdown
from mpicoll.text.sizes import size_text

_WIDTH = 100
_COLUMNS = (
    "collective", "variant", "ranks", "size", "backend", "algorithm", "A us", "B us", "A / B",
    "interval", "verdict",
)  # fmt: skip
_RIGHT = {"ranks", "size", "A us", "B us", "A / B"}
_STYLES = {"faster": "green", "slower": "red", "no verdict": "dim"}


def summary(comparison: Comparison, margin: float) -> list[str]:
    """Return the closing lines: counts, the widening of intervals, how the runs differ."""
    counts, mean = comparison.counts(), comparison.mean()
    lines = [
        "# native is the library's own call; every other algorithm is a schedule of mpicoll, or of "
        "torchcoll on torch",
        f"# B against A, by more than {margin:g} %: {counts['faster']} faster, "
        f"{counts['slower']} slower, {counts['tie']} ties, {counts['no verdict']} without a "
        f"verdict; geometric mean of A / B {number(mean)}",
    ]
    if not comparison.is_decided:
        lines.append(
            "# no case has a verdict, so nothing is known about B: measure both again, with a "
            "longer --time, on an idle machine; --allow-undecided accepts this"
        )
    if comparison.factor > 1:
        lines.append(
            f"# the machine changed between the runs: of {comparison.controls} native calls under "
            f"unchanged conditions, some differ by {(comparison.factor - 1) * 100:.3g} % more than "
            "their intervals; the margin and all intervals are widened by that"
        )
    return lines + [f"# warning: {remark}" for remark in comparison.remarks]


def print_table(rows: Sequence[ComparedCase], out: TextIO) -> None:
    """Print a table, coloured on a terminal."""

    def draw(console: Console, unicode: bool) -> None:
        print_whole(_table(rows, SIMPLE_HEAD if unicode else ASCII2), console)

    print_on(out, _WIDTH, draw)


def _table(rows: Sequence[ComparedCase], box: Box) -> Table:
    table = Table(box=box, pad_edge=box is MARKDOWN, show_edge=box is MARKDOWN)
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=True)
    for row in rows:
        cells = map(plain_markdown, _cells(row)) if box is MARKDOWN else _cells(row)
        table.add_row(*map(Text, cells), style=_STYLES.get(row.verdict, ""))
    return table


def _cells(row: ComparedCase) -> list[str]:
    record, ratio = row.either, row.shift
    return [
        record.collective, " ".join(variant(record)) or "-", str(record.ranks),
        size_text(record.bytes_total) if record.bytes_total else "-", record.backend,
        _algorithm(row), _median(row.first), _median(row.second),
        number(ratio.ratio) if ratio else "-",
        f"{number(ratio.low)} .. {number(ratio.high)}" if ratio else "-",
        f"{row.verdict}: {row.reason}" if row.reason else row.verdict,
    ]  # fmt: skip


def _algorithm(row: ComparedCase) -> str:
    """Return the requested algorithm, and what ran if a chooser decided or it has changed."""
    name = row.either.algorithm
    ran = [_executed_text(side) for side in (row.first, row.second) if side]
    shown = " -> ".join(dict.fromkeys(filter(None, ran)))
    is_open = len(set(ran)) > 1 or name.partition("@")[0] in CHOOSERS
    return f"{name}: {shown}" if shown and is_open else name


def _executed_text(record: CaseRecord) -> str:
    executed, transport = record.executed, record.transport
    return f"{executed}@{transport}" if transport not in (None, "native") else executed or ""


def _median(record: CaseRecord | None) -> str:
    return number(record.time_us.median) if record and record.time_us else "-"


def _markdown(rows: Sequence[ComparedCase], out: TextIO) -> None:
    print_plain(out, _WIDTH, lambda console, _: print_whole(_table(rows, MARKDOWN), console))


def flat(row: ComparedCase) -> dict[str, Any]:
    """Return a case of the comparison as one level of names and values."""
    ratios = row.shift._asdict() if row.shift else dict.fromkeys(("ratio", "low", "high", "p"))
    return {
        **dict(zip(FIELDS, row.case, strict=True)), **_side("a", row.first),
        **_side("b", row.second), **ratios, "verdict": row.verdict,
        "reason": row.reason or None,
    }  # fmt: skip


def _side(name: str, record: CaseRecord | None) -> dict[str, Any]:
    fields = ("executed", "transport", "library", "samples")
    time = record.time_us if record else None
    return {
        **{f"{name}_{field}": getattr(record, field, None) for field in fields},
        f"{name}_us": time.median if time else None,
    }


def _comma_separated(rows: Sequence[ComparedCase], out: TextIO) -> None:
    write_rows([flat(row) for row in rows], out)


def _json_lines(rows: Sequence[ComparedCase], out: TextIO) -> None:
    for row in rows:
        print(json.dumps({"schema": 1, "kind": "comparison", **flat(row)}), file=out)


LAYOUTS: dict[str, Callable[[Sequence[ComparedCase], TextIO], None]] = {
    "table": print_table, "markdown": _markdown, "csv": _comma_separated, "jsonl": _json_lines,
}  # fmt: skip
