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
from mpicoll.compare.comparison import Compared, Comparison
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


def summary(found: Comparison, margin: float) -> list[str]:
    """Return the closing lines: counts, the widening of intervals, how the runs differ."""
    counts, mean = found.counts(), found.mean()
    lines = [
        "# native is the library's own call; every other algorithm is a schedule of mpicoll, or of "
        "torchcoll on torch",
        f"# B against A, by more than {margin:g} %: {counts['faster']} faster, "
        f"{counts['slower']} slower, {counts['tie']} ties, {counts['no verdict']} without a "
        f"verdict; geometric mean of A / B {number(mean)}",
    ]
    if found.factor > 1:
        lines.append(
            f"# the machine changed between the runs: of {found.controls} native calls under "
            f"unchanged conditions, some differ by {(found.factor - 1) * 100:.3g} % more than "
            "their intervals; margin and intervals are widened by that"
        )
    return lines + [f"# warning: {each}" for each in found.remarks]


def print_table(rows: Sequence[Compared], out: TextIO) -> None:
    """Print a table, coloured on a terminal."""

    def draw(console: Console, unicode: bool) -> None:
        print_whole(_table(rows, SIMPLE_HEAD if unicode else ASCII2), console)

    print_on(out, _WIDTH, draw)


def _table(rows: Sequence[Compared], box: Box) -> Table:
    table = Table(box=box, pad_edge=box is MARKDOWN, show_edge=box is MARKDOWN)
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=True)
    for each in rows:
        cells = map(plain_markdown, _cells(each)) if box is MARKDOWN else _cells(each)
        table.add_row(*map(Text, cells), style=_STYLES.get(each.verdict, ""))
    return table


def _cells(each: Compared) -> list[str]:
    row, found = each.either, each.shift
    return [
        row.collective, " ".join(variant(row)) or "-", str(row.ranks),
        size_text(row.bytes_total) if row.bytes_total else "-", row.backend,
        _algorithm(each), _median(each.first), _median(each.second),
        number(found.ratio) if found else "-",
        f"{number(found.low)} .. {number(found.high)}" if found else "-",
        f"{each.verdict}: {each.reason}" if each.reason else each.verdict,
    ]  # fmt: skip


def _algorithm(each: Compared) -> str:
    """Return the algorithm asked for, and the one that ran where it was open or has changed."""
    asked = each.either.algorithm
    ran = [_executed(side) for side in (each.first, each.second) if side]
    shown = " -> ".join(dict.fromkeys(filter(None, ran)))
    is_open = len(set(ran)) > 1 or asked.partition("@")[0] in CHOOSERS
    return f"{asked}: {shown}" if shown and is_open else asked


def _executed(record: CaseRecord) -> str:
    executed, transport = record.executed, record.transport
    return f"{executed}@{transport}" if transport not in (None, "native") else executed or ""


def _median(record: CaseRecord | None) -> str:
    return number(record.time_us.median) if record and record.time_us else "-"


def _markdown(rows: Sequence[Compared], out: TextIO) -> None:
    print_plain(out, _WIDTH, lambda console, _: print_whole(_table(rows, MARKDOWN), console))


def flat(each: Compared) -> dict[str, Any]:
    """Return a case of the comparison as one level of names and values."""
    found = each.shift._asdict() if each.shift else dict.fromkeys(("ratio", "low", "high", "p"))
    return {
        **dict(zip(FIELDS, each.case, strict=True)), **_side("a", each.first),
        **_side("b", each.second), **found, "verdict": each.verdict,
        "reason": each.reason or None,
    }  # fmt: skip


def _side(name: str, record: CaseRecord | None) -> dict[str, Any]:
    fields = ("executed", "transport", "library", "samples")
    time = record.time_us if record else None
    return {
        **{f"{name}_{each}": getattr(record, each, None) for each in fields},
        f"{name}_us": time.median if time else None,
    }


def _comma_separated(rows: Sequence[Compared], out: TextIO) -> None:
    write_rows([flat(each) for each in rows], out)


def _json_lines(rows: Sequence[Compared], out: TextIO) -> None:
    for each in rows:
        print(json.dumps({"schema": 1, "kind": "comparison", **flat(each)}), file=out)


LAYOUTS: dict[str, Callable[[Sequence[Compared], TextIO], None]] = {
    "table": print_table, "markdown": _markdown, "csv": _comma_separated, "jsonl": _json_lines,
}  # fmt: skip
