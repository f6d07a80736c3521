"""Print pairs of ranks: a matrix for each quantity, and one line for each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TextIO

from rich.box import ASCII2, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpicoll.cli.tables import print_on
from mpicoll.measurement.ping_pong import BOTH_WAYS, COPY, LATENCY, ONE_WAY
from mpicoll.p2p.outliers import FAR
from mpicoll.p2p.record import known_value
from mpicoll.records.lines import FitRecord, PairRecord
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text

MOST_RANKS = 16
"""Largest number of ranks whose matrix is readable in a terminal."""

_WIDTH = 120
_CELL, _HEAD = 8, 8
_UNITS = {
    LATENCY: ("latency", "us"), ONE_WAY: ("one way", "GB/s"), BOTH_WAYS: ("both ways", "GB/s")
}  # fmt: skip
_LEGEND = """\
from row to column. latency: half a round trip; one way: a window of messages; both ways: the
bytes of both directions; diagonal: the rank's own copy; {mark}: far from the median of its class
alpha + beta x bytes, the time of one message, over all sizes; error: the median of its points"""
_MARK = "!"

Matrix = dict[tuple[int, int], PairRecord]


def print_pairs(pairs: Sequence[PairRecord], fits: Sequence[FitRecord], stream: TextIO) -> None:
    """Print to a terminal with colours, or else as plain text."""
    print_on(stream, _WIDTH, partial(report, pairs, fits))


def report(
    pairs: Sequence[PairRecord], fits: Sequence[FitRecord], out: Console, unicode: bool
) -> None:
    """Print each matrix, if there are few enough ranks, and one line for each class."""
    out.width = max(out.width, _WIDTH)
    ranks = pairs[0].ranks
    for backend, transport in measured_transports(pairs):
        if ranks > MOST_RANKS:
            break
        tables = [
            _table(title, matrix, ranks, unicode)
            for title, matrix in matrices(pairs, backend, transport)
        ]
        out.print(Text(f"{backend}, {transport}", style="bold"))
        for line in _lines(tables, ranks, out.width):
            out.print(line)
        out.print()
    if ranks > MOST_RANKS:
        out.print(f"a matrix of {ranks} ranks is too wide here: see --plot, --format csv, --output")
    out.print(_classes(pairs, fits, unicode))
    out.print()
    out.print(_LEGEND.format(mark=_MARK))


def measured_transports(pairs: Sequence[PairRecord]) -> list[tuple[str, str]]:
    """Return each backend and transport that has numbers."""
    return list(dict.fromkeys(
        (record.backend, record.transport) for record in pairs
        if record.time_us and record.quantity != COPY
    ))  # fmt: skip


def matrices(
    pairs: Sequence[PairRecord], backend: str, transport: str
) -> Iterator[tuple[str, Matrix]]:
    """Yield the title and the cells of each quantity, bandwidths at the largest size."""
    largest = max(record.bytes for record in pairs)
    for quantity, (name, unit) in _UNITS.items():
        rows = [
            record for record in pairs
            if (record.backend, record.transport, record.quantity)
            == (backend, transport, quantity)
            and record.time_us and (quantity == LATENCY or record.bytes == largest)
        ]  # fmt: skip
        if not rows:
            continue
        cells = {(record.source, record.target): record for record in rows}
        if quantity != ONE_WAY:
            # Measured once for both directions.
            cells |= {(to, source): record for (source, to), record in cells.items()}
        else:
            cells |= {
                (record.source, record.source): record for record in pairs
                if (record.backend, record.quantity, record.bytes) == (backend, COPY, largest)
            }  # fmt: skip
        yield f"{name} of {bytes_text(rows[0].bytes)}, {unit}", cells


def _lines(tables: Sequence[Table], ranks: int, width: int) -> Iterator[Table]:
    """Yield rows of tables, as many side by side as fit the width."""
    room = max(1, width // (_HEAD + _CELL * ranks))
    for start in range(0, len(tables), room):
        grid = Table.grid(padding=(0, 4))
        grid.add_row(*tables[start : start + room])
        yield grid


def _table(title: str, cells: Matrix, ranks: int, unicode: bool) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="italic", pad_edge=False, show_edge=False,
        box=SIMPLE_HEAD if unicode else ASCII2, padding=(0, 0, 0, 1), min_width=len(title),
    )  # fmt: skip
    table.add_column("", justify="right", no_wrap=True)
    for rank in range(ranks):
        table.add_column(str(rank), justify="right", no_wrap=True)
    for source in range(ranks):
        row = [_cell(cells.get((source, target))) for target in range(ranks)]
        table.add_row(Text(str(source), style="bold"), *row)
    return table


def _cell(record: PairRecord | None) -> Text:
    if record is None:
        return Text("-", style="dim")
    amount = known_value(record)
    text = number(amount) + (_MARK if record.outlier else "")
    return Text(text, style="dim" if record.quantity == COPY else _style(record, amount))


def _style(record: PairRecord, amount: float) -> str:
    """Return the colour of a pair, by its ratio to the median of its class."""
    if record.correct is False:
        return "bold white on red"
    assert record.typical is not None
    better = amount / record.typical
    if record.quantity == LATENCY:
        better = 1 / better
    if record.outlier:
        return "bold red" if better < 1 else "bold green"
    return "yellow" if better < 1 / FAR else "green" if better > FAR else ""


def _classes(pairs: Sequence[PairRecord], fits: Sequence[FitRecord], unicode: bool) -> Table:
    """Return the table of classes: medians and fit, by backend and transport."""
    largest = max(record.bytes for record in pairs)
    table = Table(
        title=f"classes of pairs, bandwidths at {bytes_text(largest)}", title_justify="left",
        title_style="bold", pad_edge=False, show_edge=False,
        box=SIMPLE_HEAD if unicode else ASCII2,
    )  # fmt: skip
    for name in ("backend", "transport", "class"):
        table.add_column(name, no_wrap=name != "class")
    for name in ("latency us", "one way GB/s", "both GB/s", "alpha us", "beta ns/B", "error"):
        table.add_column(name, justify="right")
    models = {(record.backend, record.transport, record.link): record for record in fits}
    for key, medians in typical(pairs, largest).items():
        shown = [number(medians.get(quantity)) for quantity in _UNITS]
        shown += _fit_cells(models.get(key))
        table.add_row(*key, *shown)
    return table


def _fit_cells(model: FitRecord | None) -> list[str]:
    if model is None:
        return ["-"] * 3
    error = f"{100 * model.error:.0f} %"
    return [number(model.alpha_us), number(model.beta_ns_per_byte), error]


def typical(
    pairs: Sequence[PairRecord], largest: int
) -> dict[tuple[str, str, str], dict[str, float | None]]:
    """Return the medians of each backend, transport and class, bandwidths at one size."""
    medians: dict[tuple[str, str, str], dict[str, float | None]] = {}
    for record in pairs:
        at_size = record.quantity == LATENCY or record.bytes == largest
        if at_size and record.typical is not None and record.quantity != COPY:
            key = record.backend, record.transport, record.link
            medians.setdefault(key, {})[record.quantity] = record.typical
    return medians
