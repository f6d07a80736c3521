"""Print records as tables for people; `layouts` prints them for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress, groupby
from typing import Any, TextIO

from rich.box import ASCII2, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpicoll.cli.tables import least_width, print_on
from mpicoll.measurement.cases import METHOD, PLAN
from mpicoll.measurement.judgement import (
    SIGNS,
    contest,
    contradictions,
    decide_speedup,
    is_disturbed,
    lead,
)
from mpicoll.measurement.statistics import is_enough
from mpicoll.records.identity import PROJECTS, grouped, key, place
from mpicoll.records.lines import CaseRecord, Speedup
from mpicoll.selection.auto import CHOOSERS
from mpicoll.text.numbers import count_text, number
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
"""The column of names, and the longest name that stays in one line."""
_OF_METHODS = ("method us", "vs native's")
_LEFT_OUT_FIRST = (
    "algbw GB/s",
    "interval",
    "busbw GB/s",
    "vs other backend",
    "transport",
    *_OF_METHODS[::-1],
)
"""Columns that a narrow terminal leaves out: records have them all."""
_LEGEND = """\
native: the library's own call; names without native are schedules of {project}
time: median over samples of the slowest rank, with its 95 % interval, or with (n=...) the
extremes of too few samples for one
vs native: how many times as fast as this backend's own call, within the same blocks; vs other
backend: as its algorithm of the same name, or (n) its native call; "+" and "-" are significant
differences
last column: {best} is the fastest of a size; several "=" or "?" share the lead
signs: "=" a tie, surely within 5 %; "?" undecided; "~" disturbed: samples were late or preempted,
or native's plan and method contradict each other
{methods}\
algbw = size / time, busbw = algbw x the factor of nccl-tests (for large, symmetric traffic)"""
_METHODS = """\
method us: the same by the method, as c.allreduce(x, out=y); vs native's: as the library's method
"""


def print_tables(records: Sequence[CaseRecord], stream: TextIO) -> None:
    """Print tables to a terminal, or else as plain text; COLUMNS gives the width."""
    print_on(stream, _PIPED_WIDTH, partial(tables, records))


# -- table ------------------------------------------------------------------------------


def tables(records: Sequence[CaseRecord], out: Console, unicode: bool = True) -> None:
    """Print one table per collective and variant, with the columns that there is room for."""
    room = out.width
    for title, rows in grouped(records, table_title):
        measured = [row for row in rows if row.time_us]
        if measured:
            table, width = _fitting(title, *_split_methods(measured), room, unicode)
            out.width = max(room, width)
            out.print(table)
            out.print()
    out.width = room
    if records:
        methods = _METHODS if any(_split_methods(records)[1]) else ""
        star = "★" if unicode else "*"
        out.print(_LEGEND.format(best=star, methods=methods, project=_projects(records)))


def _projects(records: Sequence[CaseRecord]) -> str:
    """Return the names of this project's packages whose schedules ran."""
    return " or ".join(dict.fromkeys(PROJECTS.get(record.backend, "mpicoll") for record in records))


def table_title(record: CaseRecord) -> str:
    """Return the title of a table: the collective and variant that its cases share."""
    parts = [record.collective, record.dtype, record.op]
    if record.root is not None:
        parts.append(f"root {record.root}")
    parts += ["in place"] if record.in_place else []
    return ", ".join([*filter(None, parts), count_text(record.ranks, "rank")])


def _split_methods(rows: Sequence[CaseRecord]) -> tuple[list[CaseRecord], Methods]:
    """Return the rows of a table, and the methods that belong into the rows of their plans."""
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
    for _, size_rows in groupby(rows, lambda row: row.bytes_total):
        group = list(size_rows)
        beside = [methods[_place(row)] for row in group if _place(row) in methods]
        everything, star = [*group, *beside], "★" if unicode else "*"
        marks = _marks(everything, star)
        for position, row in enumerate(group):
            mark = marks.get(id(row), "")
            style = "bold green" if mark == star else "red" if row.correct is False else ""
            end = position == len(group) - 1
            cells = _cells(row, methods.get(_place(row)), mark, everything)
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
        # Names wrap to the next line, numbers do not.
        names = table.columns[_NAMES]
        names.no_wrap, names.min_width = False, None
    return table, least_width(table)


def _marks(group: Sequence[CaseRecord], star: str) -> dict[int, str]:
    """Return the marks of the rows of a size, for each kind of call, by id of the row."""
    marks: dict[int, str] = {}
    for call, alike in grouped(group, lambda row: row.call):
        leading = lead(contest(group, call))
        is_void = leading.decision == "disturbed"
        ids = {id(row) for row in (alike if is_void else leading.leaders)}
        mark = star if leading.decision == "faster" else SIGNS[leading.decision]
        marks |= {id(row): mark for row in alike if id(row) in ids and row.correct is not False}
    return marks


def _cells(
    row: CaseRecord, method: CaseRecord | None, mark: str, group: Sequence[CaseRecord]
) -> list[Text]:
    time = row.time_us
    assert time is not None
    interval = f"{number(time.low)} .. {number(time.high)}"
    if not is_enough(row.samples):
        interval += f" (n={row.samples})"
    texts = [
        size_text(row.bytes_total) if row.count else "-", row.backend,
        _algorithm(row), row.transport or "-", number(time.median), interval,
        number(row.algbw_GBps), number(row.busbw_GBps),
        _ratio(row, row.speedup_vs_native, _native(row), group), *_method(method, group),
        _versus_other(row, group),
        _correct(row), mark,
    ]  # fmt: skip
    return [Text(text) for text in texts]


def _native(row: CaseRecord) -> str:
    return f"{row.backend} native"


def _method(row: CaseRecord | None, group: Sequence[CaseRecord]) -> list[str]:
    """Return the cells of the method beside a plan."""
    if row is None or row.time_us is None:
        return ["-", "-"]
    return [number(row.time_us.median), _ratio(row, row.speedup_vs_native, _native(row), group)]


def _algorithm(row: CaseRecord) -> str:
    """Return the requested algorithm, the algorithm that ran if a chooser took it, and the call."""
    name = row.algorithm.partition("@")[0]
    ran = f"{name}: {row.executed}" if name in CHOOSERS else name
    return ran if row.call == PLAN else f"{ran}, {row.call}"


def _ratio(
    row: CaseRecord, speedup: Speedup | None, reference: str, group: Sequence[CaseRecord]
) -> str:
    """Return a ratio with the sign of its decision; the sign alone if nothing is decided.

    Args:
        reference: the backend and the algorithm that the row is compared with.
        group: the rows of the size.
    """
    if not speedup:
        return "-"
    decision = decide_speedup(row, speedup, reference, group)
    is_open = decision in ("undecided", "disturbed")
    return SIGNS[decision] if is_open else f"{number(speedup.ratio)}x {SIGNS[decision]}"


def _versus_other(row: CaseRecord, group: Sequence[CaseRecord]) -> str:
    speedup = row.speedup_vs_other
    if not speedup:
        return "-"
    is_same_algorithm = speedup.against.endswith(f" {row.algorithm}")
    return _ratio(row, speedup, speedup.against, group) + ("    " if is_same_algorithm else " (n)")


def out_of_bounds(records: Sequence[CaseRecord]) -> str:
    """Return nccl-tests' line with the number of wrong elements, if any case was checked."""
    if all(row.correct is None for row in records):
        return "# Out of bounds values : NOT CHECKED"
    wrong = sum(row.wrong for row in records)
    verdict = "FAILED" if any(row.correct is False for row in records) else "OK"
    return f"# Out of bounds values : {wrong} {verdict}"


def _correct(row: CaseRecord) -> str:
    if row.correct is None:
        return "-" if row.collective == "barrier" else "unchecked"
    return "yes" if row.correct else f"{row.wrong} WRONG"


def footer(records: Sequence[CaseRecord], remarks: Sequence[str]) -> list[str]:
    """Return the closing lines: errors as nccl-tests counts them, refusals, algorithms, remarks."""
    lines = [out_of_bounds(records)]
    lines += [f"# {row.message}" for row in records if row.correct is False]
    refused = [row for row in records if not row.time_us and row.message]
    if refused:
        lines.append(f"# Refused cases : {len(refused)}")
    reasons = grouped(refused, lambda row: (row.collective, row.backend, row.message))
    for (collective, backend, message), rows in reasons:
        names = ", ".join(dict.fromkeys(row.algorithm for row in rows))
        lines.append(f"#   {collective} {names} ({backend}): {message}")
    more = [*_disturbances(records), *_differences(records), *_software(records), *remarks]
    return lines + [f"# {remark}" for remark in more]


def _disturbances(records: Sequence[CaseRecord]) -> Iterable[str]:
    """Yield the number of disturbed cases, and the native calls that contradict themselves."""
    timed = [row for row in records if row.time_us]
    if disturbed := sum(map(is_disturbed, timed)):
        yield (
            f"disturbed cases: {disturbed} of {len(timed)}: a rank was late or lost its core in "
            "most samples, so no winner is named by them; measure again on an idle machine"
        )
    for _, group in grouped(timed, place):
        size = f", {size_text(group[0].bytes_total)}" if group[0].bytes_total else ""
        for contradiction in contradictions(group):
            yield (
                f"native's plan and method contradict each other, so nothing wins there: "
                f"{table_title(group[0])}{size}: {contradiction}"
            )


def _software(records: Sequence[CaseRecord]) -> Iterable[str]:
    """Yield the software of native calls and schedules that the records of one run name."""
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
    for backend, table in (run.choice or {}).items():
        yield f"auto, {backend}: {table}"
    for backend, readings in (run.probe or {}).items():
        yield f"auto, {backend}: by a probe: {readings}"


def _differences(records: Sequence[CaseRecord]) -> Iterable[str]:
    """Return how each schedule that imitates a library's default differs from it, once each."""
    notes = ((row, (row.note or "").partition(": ")) for row in records)
    return dict.fromkeys(
        f"{row.algorithm.partition('@')[0]}, {row.collective} {name}: {how}"
        for row, (name, _, how) in notes if how
    )  # fmt: skip
