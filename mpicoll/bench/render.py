"""Print records: tables for people, and the layouts that existing parsers read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress, groupby
from typing import Any, TextIO

from rich.box import ASCII2, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpicoll.cli.tables import least_width, print_on
from mpicoll.measurement.cases import METHOD, PLAN
from mpicoll.measurement.statistics import is_enough
from mpicoll.records.flat import write_csv
from mpicoll.records.identity import key
from mpicoll.records.lines import CaseRecord, Speedup
from mpicoll.records.reading import encoded
from mpicoll.selection.auto import CHOOSERS
from mpicoll.text.numbers import counted, number
from mpicoll.text.sizes import size_text

Methods = dict[tuple[Any, ...], CaseRecord]
"""The records of methods, by the key of a record without its kind of call."""

_PIPED_WIDTH = 170
_COLUMNS = (
    ("size", "right"), ("backend", "left"), ("algorithm", "left"), ("transport", "left"),
    ("time us", "right"), ("interval", "left"), ("algbw GB/s", "right"),
    ("busbw GB/s", "right"), ("vs native", "right"), ("method us", "right"),
    ("vs native's", "right"), ("vs other backend", "right"), ("correct", "left"), ("", "left"),
)  # fmt: skip
_NAMES, _WHOLE_NAME = 2, 40
"""The column of names, and the most letters of a name that stay in one line."""
_OF_METHODS = ("method us", "vs native's")
_LEFT_OUT_FIRST = (
    "algbw GB/s",
    "interval",
    "busbw GB/s",
    "vs other backend",
    "transport",
    *_OF_METHODS[::-1],
)
"""Columns that a narrow terminal goes without: records have them all."""
_LEGEND = """\
time: median over samples of the slowest rank, with its 95 % interval, or with (n=...) the
extremes of too few samples for one; {best}: fastest correct
vs native: how many times as fast as this backend's own call; vs other backend: as its
algorithm of the same name, or (n) its native call; "=" is a tie, +/- a significant difference
{methods}\
algbw = size / time, busbw = algbw x the factor of nccl-tests (for large, symmetric traffic)"""
_METHODS = """\
method us: the same by the method, as c.allreduce(x, out=y); vs native's: as the library's method
"""
_AVERAGES = "# averages are means over samples of the slowest rank's time; see time_us in jsonl"


def print_tables(records: Sequence[CaseRecord], stream: TextIO) -> None:
    """Print tables to a terminal, or as plain text where none is; COLUMNS gives the width."""
    print_on(stream, _PIPED_WIDTH, partial(tables, records))


# -- table ------------------------------------------------------------------------------


def tables(records: Sequence[CaseRecord], out: Console, unicode: bool = True) -> None:
    """Print one table per collective and variant, with the columns that there is room for."""
    room = out.width
    for title, rows in _by(records, _title):
        measured = [row for row in rows if row.time_us]
        if measured:
            table, least = _fitting(title, *_beside(measured), room, unicode)
            out.width = max(room, least)
            out.print(table)
            out.print()
    out.width = room
    if records:
        methods = _METHODS if any(_beside(records)[1]) else ""
        out.print(_LEGEND.format(best="★" if unicode else "*", methods=methods))


def _title(record: CaseRecord) -> str:
    parts = [record.collective, record.dtype, record.op]
    if record.root is not None:
        parts.append(f"root {record.root}")
    parts += ["in place"] if record.in_place else []
    return ", ".join([*filter(None, parts), counted(record.ranks, "rank")])


def _titled_call(record: CaseRecord) -> str:
    return _title(record) if record.call == PLAN else f"{_title(record)}, {record.call}"


def _by(
    records: Iterable[CaseRecord], key: Callable[[CaseRecord], Any]
) -> list[tuple[Any, list[CaseRecord]]]:
    """Group records that need not be neighbours, in order of first appearance."""
    found: dict[Any, list[CaseRecord]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return list(found.items())


def _beside(rows: Sequence[CaseRecord]) -> tuple[list[CaseRecord], Methods]:
    """Return the rows of a table, and the methods that stand beside their plans in them."""
    plans = {_place(row) for row in rows if row.call == PLAN}
    methods = {_place(row): row for row in rows if row.call == METHOD and _place(row) in plans}
    return [row for row in rows if methods.get(_place(row)) is not row], methods


def _place(row: CaseRecord) -> tuple[Any, ...]:
    return key(row)[:-1]


def _table(
    title: str, rows: list[CaseRecord], methods: Methods, unicode: bool,
    leave_out: Sequence[str] = (),
) -> Table:  # fmt: skip
    table = Table(
        title=title, title_justify="left", title_style="bold",
        box=SIMPLE_HEAD if unicode else ASCII2, pad_edge=False, show_edge=False,
    )  # fmt: skip
    shown = [name not in leave_out for name, _ in _COLUMNS]
    for name, justify in compress(_COLUMNS, shown):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for _, same in groupby(rows, lambda row: row.bytes_total):
        for position, row in enumerate(group := list(same)):
            style = "bold green" if row.best else "red" if row.correct is False else ""
            end = position == len(group) - 1
            cells = _cells(row, methods.get(_place(row)), unicode)
            table.add_row(*compress(cells, shown), style=style, end_section=end)
    return table


def _fitting(
    title: str, rows: list[CaseRecord], methods: Methods, room: int, unicode: bool
) -> tuple[Table, int]:
    """Return the table with as many columns as there is room for, and the width that it needs."""
    longest = max(len(_algorithm(row)) for row in rows)
    never = () if methods else _OF_METHODS
    for count in range(len(_LEFT_OUT_FIRST) + 1):
        table = _table(title, rows, methods, unicode, (*never, *_LEFT_OUT_FIRST[:count]))
        missing = least_width(table) - room
        if missing <= max(0, longest - _WHOLE_NAME):
            break
    if missing > 0:
        # Names go on in the next line, and numbers stay whole.
        names = table.columns[_NAMES]
        names.no_wrap, names.min_width = False, None
    return table, least_width(table)


def _cells(row: CaseRecord, method: CaseRecord | None, unicode: bool) -> list[Text]:
    time = row.time_us
    assert time is not None
    mark = ("★" if unicode else "*") if row.best else ""
    interval = f"{number(time.low)} .. {number(time.high)}"
    if not is_enough(row.samples):
        interval += f" (n={row.samples})"
    texts = [
        size_text(row.bytes_total) if row.count else "-", row.backend,
        _algorithm(row), row.transport or "-", number(time.median), interval,
        number(row.algbw_GBps), number(row.busbw_GBps),
        _ratio(row.speedup_vs_native), *_method(method), _other(row), _correct(row), mark,
    ]  # fmt: skip
    return [Text(text) for text in texts]


def _method(row: CaseRecord | None) -> list[str]:
    """Return the cells of the method beside a plan."""
    if row is None or row.time_us is None:
        return ["-", "-"]
    return [number(row.time_us.median), _ratio(row.speedup_vs_native)]


def _algorithm(row: CaseRecord) -> str:
    """Return the algorithm asked for, the one that ran where that left it open, and the call."""
    asked = row.algorithm.partition("@")[0]
    ran = f"{asked}: {row.executed}" if asked in CHOOSERS else asked
    return ran if row.call == PLAN else f"{ran}, {row.call}"


def _ratio(found: Speedup | None) -> str:
    if not found:
        return "-"
    sign = {"faster": "+", "slower": "-", "tie": "="}[found.verdict]
    return f"{number(found.ratio)}x {sign}"


def _other(row: CaseRecord) -> str:
    found = row.speedup_vs_other
    if not found:
        return "-"
    same = found.against.endswith(f" {row.algorithm}")
    return _ratio(found) + ("    " if same else " (n)")


def _correct(row: CaseRecord) -> str:
    if row.correct is None:
        return "-" if row.collective == "barrier" else "unchecked"
    return "yes" if row.correct else f"{row.wrong} WRONG"


def footer(records: Sequence[CaseRecord], remarks: Sequence[str]) -> list[str]:
    """Return the closing lines: errors as nccl-tests counts them, refusals, algorithms, remarks."""
    wrong = sum(row.wrong for row in records)
    bad = sum(row.correct is False for row in records)
    unchecked = all(row.correct is None for row in records)
    verdict = "NOT CHECKED" if unchecked else "OK" if not bad else "FAILED"
    lines = [f"# Out of bounds values : {wrong} {verdict}"]
    lines += [f"# {row.message}" for row in records if row.correct is False]
    refused = [row for row in records if not row.time_us and row.message]
    if refused:
        lines.append(f"# Refused cases : {len(refused)}")
    reasons = _by(refused, lambda row: (row.collective, row.backend, row.message))
    for (what, backend, message), rows in reasons:
        names = ", ".join(dict.fromkeys(row.algorithm for row in rows))
        lines.append(f"#   {what} {names} ({backend}): {message}")
    more = [*_differences(records), *_software(records), *remarks]
    return lines + [f"# {remark}" for remark in more]


def _software(records: Sequence[CaseRecord]) -> Iterable[str]:
    """Yield the software of native calls and schedules, as far as records of one run say it."""
    if not records:
        return
    run = records[0].run
    level = f" (threads {run.threads})"
    libraries = [
        f"{backend}: {' '.join(library.split())}{level if backend == 'mpi4py' else ''}"
        for backend, library in run.libraries.items()
    ]
    yield f"native calls by {', '.join(libraries)}"
    if run.executor:
        yield f"schedules over host memory by {run.executor}"
    for backend, found in (run.probe or {}).items():
        yield f"probe, {backend}: {found}"


def _differences(records: Sequence[CaseRecord]) -> Iterable[str]:
    """Return once how each schedule that stands for a library's default differs from it."""
    notes = ((row, (row.note or "").partition(": ")) for row in records)
    return dict.fromkeys(
        f"{row.algorithm.partition('@')[0]}, {row.collective} {name}: {how}"
        for row, (name, _, how) in notes if how
    )  # fmt: skip


# -- other layouts ------------------------------------------------------------------------


def jsonl(records: Sequence[CaseRecord], out: TextIO) -> None:
    """Print the records themselves."""
    for record in records:
        print(encoded(record), file=out, flush=True)


def _blocks(records: Sequence[CaseRecord], out: TextIO) -> Iterable[list[CaseRecord]]:
    """Print a title for every collective, backend and algorithm; yield its measured rows."""
    measured = [record for record in records if record.time_us]
    for (title, backend, name), rows in _by(
        measured, lambda row: (_titled_call(row), row.backend, row.algorithm)
    ):
        print(f"\n# {title}: {backend} {name}\n{_AVERAGES}", file=out)
        yield rows


def nccl(records: Sequence[CaseRecord], out: TextIO) -> None:
    """Print nccl-tests' columns, out of place then in place."""
    names = "#{:>12} {:>12} {:>9} {:>7} {:>6}".format("size", "count", "type", "redop", "root")
    half = " {:>9} {:>7} {:>7} {:>7}".format("time", "algbw", "busbw", "#wrong")
    units = "#{:>12} {:>12} {:>32}".format("(B)", "(elements)", "(us)  (GB/s)  (GB/s)")
    blank = " {:>9} {:>7} {:>7} {:>7}".format(*["N/A"] * 4)
    for rows in _blocks(records, out):
        print(names + half + half, units, sep="\n", file=out)
        for row in rows:
            begin = " {:>12} {:>12} {:>9} {:>7} {:>6}".format(
                row.bytes_total, row.count, row.dtype or "none", row.op or "none",
                -1 if row.root is None else row.root,
            )  # fmt: skip
            own = _nccl_half(row)
            print(begin + (blank + own if row.in_place else own + blank), file=out)


def _nccl_half(row: CaseRecord) -> str:
    checked = row.correct is not None
    bandwidths = [f"{each or 0:.2f}" for each in (row.algbw_GBps, row.busbw_GBps)]
    mean = row.time_us.mean if row.time_us else None
    wrong = row.wrong if checked else "N/A"
    return " {:>9} {:>7} {:>7} {:>7}".format(number(mean, 4), *bandwidths, wrong)


def _averages(row: CaseRecord, *names: str) -> list[str]:
    return [f"{getattr(row.time_us, name) or 0:.2f}" for name in names]


def osu(records: Sequence[CaseRecord], out: TextIO) -> None:
    """Print OSU's columns; sizes are bytes per rank."""
    heads = ("# Size", "Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations")
    _print_columns(
        records, out, "{:<12}{:>18}{:>18}{:>18}{:>14}", heads,
        lambda row: (row.bytes_per_rank, *_averages(row, "mean", "min", "max"), _calls(row)),
    )  # fmt: skip


def imb(records: Sequence[CaseRecord], out: TextIO) -> None:
    """Print IMB's columns; sizes are bytes per rank."""
    heads = ("#bytes", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]")
    _print_columns(
        records, out, "{:>12}{:>14}{:>14}{:>14}{:>14}", heads,
        lambda row: (row.bytes_per_rank, _calls(row), *_averages(row, "min", "max", "mean")),
    )  # fmt: skip


def _print_columns(
    records: Sequence[CaseRecord], out: TextIO, layout: str, heads: Sequence[str],
    cells: Callable[[CaseRecord], Sequence[object]],
) -> None:  # fmt: skip
    for rows in _blocks(records, out):
        for line in (heads, *map(cells, rows)):
            print(layout.format(*line), file=out)


def _calls(row: CaseRecord) -> int:
    return row.samples * row.calls_per_sample


LAYOUTS: dict[str, Callable[[Sequence[CaseRecord], TextIO], None]] = {
    "nccl": nccl, "osu": osu, "imb": imb, "csv": write_csv, "jsonl": jsonl,
}  # fmt: skip
