"""Panels and heat maps as plain values, for the page's script.

This module escapes the text of a chart, because plotly interprets some markup in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from mpicoll.measurement.judgement import Decision, has_enough
from mpicoll.measurement.ping_pong import COPY, LATENCY
from mpicoll.p2p.heatmap import RANGE
from mpicoll.p2p.matrix import matrices, measured_transports
from mpicoll.p2p.record import value
from mpicoll.records.lines import CaseRecord, PairRecord, Speedup, Times
from mpicoll.report.curves import Curve, Panel, times_of
from mpicoll.report.data import Report
from mpicoll.report.model_comparison import ModelComparison
from mpicoll.text.numbers import count_text, number
from mpicoll.text.sizes import size_text

Values = dict[str, Any]

_SYMBOLS = {
    "point-to-point": "triangle-up", "symmetric": "square", "cma": "diamond", "ipc": "cross",
    "direct": "x", "staged": "star",
}  # fmt: skip


def panel_values(report: Report) -> list[Values]:
    """Return every panel."""
    return [
        _panel(index, panel, {id(comparison.record): comparison for comparison in comparisons})
        | {"oversubscribed": any(report.records.run_of(r).oversubscribed for r in panel.records())}
        for index, (panel, comparisons) in enumerate(
            zip(report.panels, report.comparisons, strict=True)
        )
        if panel.curves
    ]


def _panel(index: int, panel: Panel, comparisons: Mapping[int, ModelComparison]) -> Values:
    return {
        "id": index,
        "collective": panel.collective,
        "setup": panel.scope.setup,
        "ranks": panel.scope.ranks,
        "label": str(panel.scope),
        "shown": panel.shown(),
        "sizes": [[size, size_text(size)] for size in panel.sizes() if size],
        "curves": [_curve(curve, panel, comparisons) for curve in panel.curves],
    }


def _curve(curve: Curve, panel: Panel, comparisons: Mapping[int, ModelComparison]) -> Values:
    rows = curve.points
    compared = [comparisons.get(id(record)) for record in rows]
    decisions = [panel.against_native(record) for record in rows]
    return {
        "backend": curve.backend,
        "algorithm": curve.algorithm,
        "name": curve.name,
        "x": [record.bytes_total for record in rows],
        "time": _column_values(map(times_of, rows), ("median", "low", "high")),
        "bus": [record.busbw_GBps for record in rows],
        "alg": [record.algbw_GBps for record in rows],
        "speedup": _column_values(
            (record.speedup_vs_native for record in rows), ("ratio", "low", "high")
        )
        | {"decision": decisions},
        "over": [comparison.over_bound if comparison else None for comparison in compared],
        "wrong": [record.correct is False for record in rows],
        "few": [not has_enough(record) for record in rows],
        "symbols": [_SYMBOLS.get(str(record.transport), "circle") for record in rows],
        "text": [
            _hover(record, comparison, decision)
            for record, comparison, decision in zip(rows, compared, decisions, strict=True)
        ],
    }


def _column_values(rows: Iterable[Times | Speedup | None], names: Sequence[str]) -> Values:
    """Return the values of each field, None for a row without it."""
    all_rows = list(rows)
    return {name: [getattr(row, name, None) for row in all_rows] for name in names}


def _hover(record: CaseRecord, compared: ModelComparison | None, decision: Decision | None) -> str:
    """Return the text that appears when the pointer is over a point."""
    lines = [
        f"{record.backend} {record.algorithm}, {size_text(record.bytes_total)}B",
        f"ran {record.executed} over {record.transport}",
        _time(record),
        _bandwidths(record),
        _verdict(record, decision),
        _model_text(compared),
        "WRONG RESULT" if record.correct is False else "",
    ]
    return "<br>".join(escape(line) for line in lines if line)


def _time(record: CaseRecord) -> str:
    times, samples = times_of(record), count_text(record.samples, "sample")
    if not has_enough(record):
        return f"{number(times.median)} us, {samples}: too few for an interval"
    interval = f"{number(times.low)} .. {number(times.high)}"
    return f"{number(times.median)} us, interval {interval} us, {samples}"


def _bandwidths(record: CaseRecord) -> str:
    if not record.algbw_GBps:
        return ""
    return f"{number(record.busbw_GBps)} GB/s bus, {number(record.algbw_GBps)} GB/s algorithm"


def _verdict(record: CaseRecord, decision: Decision | None) -> str:
    speedup = record.speedup_vs_native
    if speedup is None:
        return ""
    if not has_enough(record):
        return f"{number(speedup.ratio)} times native: too few samples to tell"
    interval = f"{number(speedup.low)} .. {number(speedup.high)}"
    return f"{number(speedup.ratio)} times native ({interval}): {decision}"


def _model_text(compared: ModelComparison | None) -> str:
    if compared is None:
        return ""
    ratios = {"bound": compared.over_bound, "model": compared.over_model}
    return ", ".join(f"{number(ratio)} times the {name}" for name, ratio in ratios.items() if ratio)


# -- pairs --------------------------------------------------------------------------------


def heat_maps(report: Report) -> list[Values]:
    """Return the heat maps of each run, backend and transport, three quantities together."""
    return [
        {
            "label": f"{backend}, {transport}, {ranks} ranks, run {name[:8]}",
            "maps": [_map(title, cells, ranks)
                     for title, cells in matrices(rows, backend, transport)],
        }
        for name, ranks, rows in report.records.mapped_pairs()
        for backend, transport in measured_transports(rows)
    ]  # fmt: skip


def _map(title: str, cells: Mapping[tuple[int, int], PairRecord], ranks: int) -> Values:
    grid: list[list[float | None]] = [[None] * ranks for _ in range(ranks)]
    texts = [[""] * ranks for _ in range(ranks)]
    for (source, target), record in cells.items():
        # The diagonal is another quantity, and would stretch the range of the colours.
        if record.quantity != COPY:
            grid[source][target] = value(record)
        texts[source][target] = _pair(record)
    amounts = [amount for row in grid for amount in row if amount]
    middle = median(amounts)
    limits = [min(*amounts, middle / RANGE), max(*amounts, middle * RANGE)]
    return {
        "title": title, "limits": limits, "z": grid, "text": texts,
        "outliers": [list(place) for place, pair in cells.items() if pair.outlier],
        "lessIsBetter": any(pair.quantity == LATENCY for pair in cells.values()),
    }  # fmt: skip


def _pair(record: PairRecord) -> str:
    unit = "us" if record.quantity == LATENCY else "GB/s"
    lines = [
        f"rank {record.source} on {record.source_host} to rank {record.target} on "
        f"{record.target_host}",
        f"{number(value(record))} {unit}, {record.link}, {record.samples} samples",
        f"its class: {number(record.typical)} {unit}" if record.typical else "",
        "OUTLIER" if record.outlier else "",
    ]
    return "<br>".join(escape(line) for line in lines if line)
