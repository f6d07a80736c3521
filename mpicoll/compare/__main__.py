"""Compare two runs of the benchmark: name the cases that became faster or slower.

``python -m mpicoll.compare A.jsonl B.jsonl`` reads two files of records and needs neither MPI
nor torch. Exit status: 0 nothing is slower in B, 1 something is, 2 bad usage or files.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

import click
from rich.box import ASCII2, MARKDOWN, SIMPLE_HEAD, Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpicoll.compare.comparison import Compared, Comparison, compare, load, shown
from mpicoll.errors import ArgumentError
from mpicoll.records.identity import FIELDS
from mpicoll.selection.auto import CHOOSERS
from mpicoll.text.numbers import number
from mpicoll.text.sizes import size_text

_WIDTH = 500
_COLUMNS = (
    "collective", "variant", "ranks", "size", "backend", "algorithm", "A us", "B us", "A / B",
    "interval", "verdict",
)  # fmt: skip
_RIGHT = {"ranks", "size", "A us", "B us", "A / B"}
_STYLES = {"faster": "green", "slower": "red", "no verdict": "dim"}

_HELP = """Compare two runs of the benchmark, case by case.

A / B is how many times as fast B is as A: the median of all ratios of a sample of A to one of B,
with the interval of the Mann-Whitney test. B is faster or slower where the difference is surely
more than the margin, and significant among all cases (Holm): the chance that any of them is
called so by accident is 5 %. Where native calls of the same libraries on the same machine differ
by more than their samples say, margin and intervals are widened by as much.

Exit status: 0 nothing is slower in B, 1 something is, 2 bad usage or files.
"""


def main() -> None:
    """Run the command."""
    existing = click.Path(dir_okay=False, path_type=Path)
    command = click.Command("compare", callback=run, help=_HELP)
    command.params += [
        click.Argument(["first"], type=existing, metavar="A"),
        click.Argument(["second"], type=existing, metavar="B"),
        click.Option(
            ["--margin"], type=click.FloatRange(0), default=3.0, show_default=True,
            help="Per cent by which a case must surely differ to be called faster or slower.",
        ),
        click.Option(["--only-changes"], is_flag=True, help="Show what is faster or slower."),
        click.Option(
            ["--format", "layout"], type=click.Choice(["table", *LAYOUTS]), default="table",
            show_default=True,
        ),
    ]  # fmt: skip
    command.context_settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    command.main(prog_name="python -m mpicoll.compare")


def run(first: Path, second: Path, margin: float, only_changes: bool, layout: str) -> None:
    """Print the comparison, and leave with its exit status."""
    try:
        found = compare(load(first), load(second), margin / 100)
        if not any(each.first and each.second for each in found.rows):
            raise ArgumentError(f"{first} and {second} have no case in common")
    except ArgumentError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    rows = shown(found.rows, only_changes)
    if layout == "table":
        _print_table(rows, sys.stdout)
    else:
        LAYOUTS[layout](rows, sys.stdout)
    # What a program reads must not be followed by what only people read.
    stream = sys.stderr if layout in ("csv", "jsonl") else sys.stdout
    for line in summary(found, margin):
        print(line, file=stream)
    sys.exit(int(found.counts()["slower"] > 0))


def summary(found: Comparison, margin: float) -> list[str]:
    """Return the closing lines: counts, the widening of intervals, how the runs differ."""
    counts, mean = found.counts(), found.mean()
    lines = [
        f"# B against A, by more than {margin:g} %: {counts['faster']} faster, "
        f"{counts['slower']} slower, {counts['tie']} ties, {counts['no verdict']} without a "
        f"verdict; geometric mean of A / B {number(mean)}"
    ]
    if found.factor > 1:
        lines.append(
            f"# the machine changed between the runs: of {found.controls} native calls for which "
            f"nothing was changed, some differ by {(found.factor - 1) * 100:.3g} % more than "
            "their samples say; margin and intervals are widened by that"
        )
    return lines + [f"# warning: {each}" for each in found.remarks]


# -- layouts ------------------------------------------------------------------------------


def _print_table(rows: Sequence[Compared], out: TextIO) -> None:
    unicode = "utf" in (out.encoding or "").lower()
    if out.isatty():
        # A narrow terminal wraps the lines: cells cut short would hide the numbers.
        Console(file=out, highlight=False, width=_WIDTH).print(_table(rows, SIMPLE_HEAD))
        return
    _plain(_table(rows, SIMPLE_HEAD if unicode else ASCII2), out)


def _plain(table: Table, out: TextIO) -> None:
    text = StringIO()
    Console(file=text, width=_WIDTH, highlight=False, color_system=None).print(table)
    for line in text.getvalue().splitlines():
        print(line.rstrip(), file=out)


def _table(rows: Sequence[Compared], box: Box) -> Table:
    table = Table(box=box, pad_edge=box is MARKDOWN, show_edge=box is MARKDOWN)
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=True)
    for each in rows:
        table.add_row(*map(Text, _cells(each)), style=_STYLES.get(each.verdict, ""))
    return table


def _cells(each: Compared) -> list[str]:
    row, found = each.some, each.shift
    return [
        row["collective"], _variant(row), str(row["ranks"]),
        size_text(row["bytes_total"]) if row["bytes_total"] else "-", row["backend"],
        _algorithm(each), _median(each.first), _median(each.second),
        number(found.ratio) if found else "-",
        f"{number(found.low)} .. {number(found.high)}" if found else "-",
        f"{each.verdict}: {each.reason}" if each.reason else each.verdict,
    ]  # fmt: skip


def _variant(row: dict[str, Any]) -> str:
    parts = [row["dtype"], row["op"]]
    parts += [f"root {row['root']}"] if row["root"] is not None else []
    parts += ["in place"] if row["in_place"] else []
    parts += ["allocated"] if row.get("allocated") else []
    parts += ["on GPU"] if row.get("device") == "cuda" else []
    return " ".join(filter(None, parts)) or "-"


def _algorithm(each: Compared) -> str:
    """Return the requested algorithm, with the executed one if it differs or has changed."""
    asked = str(each.some["algorithm"])
    ran = [_ran(side) for side in (each.first, each.second) if side]
    executed = " -> ".join(dict.fromkeys(filter(None, ran)))
    changed = len(set(ran)) > 1 or asked.partition("@")[0] in CHOOSERS
    return f"{asked}: {executed}" if executed and changed else asked


def _ran(record: dict[str, Any]) -> str:
    executed, transport = record["executed"], record["transport"]
    return f"{executed}@{transport}" if transport not in (None, "native") else executed or ""


def _median(record: dict[str, Any] | None) -> str:
    return number(record["time_us"]["median"]) if record and record["time_us"] else "-"


def _markdown(rows: Sequence[Compared], out: TextIO) -> None:
    _plain(_table(rows, MARKDOWN), out)


def flat(each: Compared) -> dict[str, Any]:
    """Return a case of the comparison as one level of names and values."""
    found = each.shift._asdict() if each.shift else dict.fromkeys(("ratio", "low", "high", "p"))
    return {
        **dict(zip(FIELDS, each.case, strict=True)), **_side("a", each.first),
        **_side("b", each.second), **found, "verdict": each.verdict,
        "reason": each.reason or None,
    }  # fmt: skip


def _side(name: str, record: dict[str, Any] | None) -> dict[str, Any]:
    told = ("executed", "transport", "library", "samples")
    time = record["time_us"] if record else None
    return {
        **{f"{name}_{each}": record[each] if record else None for each in told},
        f"{name}_us": time["median"] if time else None,
    }


def _comma_separated(rows: Sequence[Compared], out: TextIO) -> None:
    if rows:
        cells = [flat(each) for each in rows]
        writer = csv.DictWriter(out, list(cells[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(cells)


def _json_lines(rows: Sequence[Compared], out: TextIO) -> None:
    for each in rows:
        print(json.dumps({"schema": 1, "kind": "comparison", **flat(each)}), file=out)


LAYOUTS: dict[str, Callable[[Sequence[Compared], TextIO], None]] = {
    "markdown": _markdown, "csv": _comma_separated, "jsonl": _json_lines,
}  # fmt: skip


if __name__ == "__main__":
    main()
