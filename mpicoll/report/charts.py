"""What the page's script draws: panels and heat maps as plain values.

Text that a chart shows is escaped here, as charts read a little markup in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from statistics import median
from typing import Any

from mpicoll.measurement.ping_pong import COPY, LATENCY
from mpicoll.p2p.heatmap import RANGE
from mpicoll.p2p.matrix import matrices, measured_transports
from mpicoll.p2p.record import value
from mpicoll.records.journal import Line
from mpicoll.records.lines import PairRecord
from mpicoll.report.curves import Curve, Panel
from mpicoll.report.data import Report
from mpicoll.report.model_comparison import Against
from mpicoll.text.numbers import number
from mpicoll.text.sizes import size_text

Values = dict[str, Any]

_SYMBOLS = {
    "point-to-point": "triangle-up", "symmetric": "square", "cma": "diamond", "ipc": "cross",
    "direct": "x", "staged": "star",
}  # fmt: skip


def drawn(found: Report) -> list[Values]:
    """Return every panel."""
    return [
        _panel(index, panel, {id(each.record): each for each in beside})
        | {"crowded": _is_crowded(panel, found)}
        for index, (panel, beside) in enumerate(zip(found.panels, found.against, strict=True))
        if panel.curves
    ]


def _is_crowded(panel: Panel, found: Report) -> bool:
    runs = (found.records.run_of(each) for each in panel.records())
    return any(run.get("oversubscribed") for run in runs)


def _panel(index: int, panel: Panel, beside: Mapping[int, Against]) -> Values:
    return {
        "id": index,
        "collective": panel.collective,
        "setup": panel.where.setup,
        "ranks": panel.where.ranks,
        "label": str(panel.where),
        "shown": panel.shown(),
        "sizes": [[size, size_text(size)] for size in panel.sizes() if size],
        "curves": [_curve(each, beside) for each in panel.curves],
    }


def _curve(curve: Curve, beside: Mapping[int, Against]) -> Values:
    rows = curve.points
    ratios = [each["speedup_vs_native"] or {} for each in rows]
    over = [beside.get(id(each)) for each in rows]
    return {
        "backend": curve.backend,
        "algorithm": curve.algorithm,
        "name": curve.name,
        "x": [each["bytes_total"] for each in rows],
        "time": _band(each["time_us"] for each in rows),
        "bus": [each["busbw_GBps"] for each in rows],
        "alg": [each["algbw_GBps"] for each in rows],
        "ratio": [each.get("ratio") for each in ratios],
        "ratioLow": [each.get("low") for each in ratios],
        "ratioHigh": [each.get("high") for each in ratios],
        "verdict": [each.get("verdict") for each in ratios],
        "over": [each.over_bound if each else None for each in over],
        "wrong": [each["correct"] is False for each in rows],
        "symbols": [_SYMBOLS.get(str(each["transport"]), "circle") for each in rows],
        "text": [_hover(each, other) for each, other in zip(rows, over, strict=True)],
    }


def _band(times: Any) -> Values:
    rows = list(times)
    return {name: [each[name] for each in rows] for name in ("median", "low", "high")}


def _hover(record: Line, beside: Against | None) -> str:
    """Return what a reader may want to know of a point, in lines."""
    times = record["time_us"]
    lines = [
        f"{record['backend']} {record['algorithm']}, {size_text(record['bytes_total'])}B",
        f"ran {record['executed']} over {record['transport']}",
        f"{number(times['median'])} us, interval {number(times['low'])} .. "
        f"{number(times['high'])} us, {record['samples']} samples",
        _bandwidths(record),
        _verdict(record["speedup_vs_native"]),
        _expected(beside),
        "WRONG RESULT" if record["correct"] is False else "",
    ]
    return "<br>".join(escape(line) for line in lines if line)


def _bandwidths(record: Line) -> str:
    if not record["algbw_GBps"]:
        return ""
    bus = record["busbw_GBps"]
    return f"{number(bus)} GB/s bus, {number(record['algbw_GBps'])} GB/s algorithm"


def _verdict(ratio: Mapping[str, Any] | None) -> str:
    if not ratio:
        return ""
    return (
        f"{number(ratio['ratio'])} times native ({number(ratio['low'])} .. "
        f"{number(ratio['high'])}): {ratio['verdict']}"
    )


def _expected(beside: Against | None) -> str:
    if beside is None:
        return ""
    told = [f"{number(beside.over_bound)} times the bound"] if beside.over_bound else []
    told += [f"{number(beside.over_model)} times the model"] if beside.over_model else []
    return ", ".join(told)


# -- pairs --------------------------------------------------------------------------------


def heat_maps(found: Report) -> list[Values]:
    """Return the heat maps of each run, backend and transport, three quantities together."""
    runs: dict[str, list[PairRecord]] = {}
    for each in found.records.pairs:
        runs.setdefault(each.run.id, []).append(each)
    return [
        {
            "label": f"{backend}, {transport}, {rows[0].ranks} ranks, run {name[:8]}",
            "maps": [_map(title, cells, rows[0].ranks)
                     for title, cells in matrices(rows, backend, transport)],
        }
        for name, rows in runs.items() for backend, transport in measured_transports(rows)
    ]  # fmt: skip


def _map(title: str, cells: Mapping[tuple[int, int], PairRecord], ranks: int) -> Values:
    grid: list[list[float | None]] = [[None] * ranks for _ in range(ranks)]
    told = [[""] * ranks for _ in range(ranks)]
    for (source, target), record in cells.items():
        # The diagonal is another quantity: it would take the colours from the pairs.
        if record.quantity != COPY:
            grid[source][target] = value(record)
        told[source][target] = _pair(record)
    known = [amount for row in grid for amount in row if amount]
    middle = median(known)
    limits = [min(*known, middle / RANGE), max(*known, middle * RANGE)]
    return {
        "title": title, "limits": limits, "z": grid, "text": told,
        "outliers": [list(place) for place, each in cells.items() if each.outlier],
        "less": any(each.quantity == LATENCY for each in cells.values()),
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
