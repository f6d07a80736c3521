"""Draw maps on a figure: winners over size and ranks, and pairs of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from mpicoll.p2p.matrix import matrices, measured_transports
from mpicoll.records.lines import PairRecord
from mpicoll.report.data import Report
from mpicoll.report.model_comparison import ranks_by_node
from mpicoll.report.style import ONE_COLUMN, TWO_COLUMNS, Style
from mpicoll.report.winners import Winner, WinnerMap
from mpicoll.text.numbers import number
from mpicoll.text.sizes import size_text


def winners(figure: Any, winner_map: WinnerMap, style: Style) -> None:
    """Draw a cell for each number of ranks and size; hatch shared leads."""
    axis = figure.subplots()
    for (row, size), cell in winner_map.cells.items():
        _cell(axis, winner_map.sizes.index(size), winner_map.rows.index(row), cell, style)
    for (row, size), why in winner_map.undecided.items():
        place = winner_map.sizes.index(size) + 0.5, winner_map.rows.index(row) + 0.5
        axis.text(*place, why, ha="center", va="center", fontsize=8, color="0.4")
    _cells(axis, winner_map)
    axis.set_title(", ".join(filter(None, (winner_map.collective, winner_map.variant))))
    width = max(ONE_COLUMN, 0.8 + 1.1 * len(winner_map.sizes))
    figure.set_size_inches(width, 0.9 + 0.75 * len(winner_map.rows))


def _cell(axis: Any, x: int, y: int, cell: Winner, style: Style) -> None:
    from matplotlib.patches import Rectangle

    hatch = "////" if cell.sign else None
    filled: dict[str, Any] = {"facecolor": style.colour(cell.label), "alpha": 0.25}
    for fill in (filled, {"fill": False, "hatch": hatch}):
        axis.add_patch(Rectangle((x, y), 1, 1, edgecolor="0.8", linewidth=0.4, **fill))
    times = f"\n{number(cell.times_native, 2)}x native" if cell.times_native else ""
    name = f"{cell.sign}{_break_name(cell.label)}"
    box = {"facecolor": "white", "alpha": 0.6, "linewidth": 0, "pad": 0.5}
    axis.text(x + 0.5, y + 0.5, f"{name}\n{cell.record.backend}{times}", ha="center",
              va="center", fontsize=8, bbox=box)  # fmt: skip


def _break_name(label: str) -> str:
    """Return a long name on two lines."""
    return label.replace("(", "\n(").replace("_", "_\n", 1) if len(label) > 12 else label


def _cells(axis: Any, winner_map: WinnerMap) -> None:
    axis.set_xlim(0, len(winner_map.sizes))
    axis.set_ylim(0, len(winner_map.rows))
    sizes = [size_text(size) if size else "moves no bytes" for size in winner_map.sizes]
    ranks = [f"{ranks}" + (f" on {nodes}" if nodes > 1 else "") for ranks, nodes in winner_map.rows]
    axis.set_xticks([index + 0.5 for index in range(len(sizes))], sizes)
    axis.set_yticks([index + 0.5 for index in range(len(ranks))], ranks)
    axis.tick_params(length=0)
    axis.grid(visible=False)
    axis.set_xlabel("bytes in total" if any(winner_map.sizes) else "")
    axis.set_ylabel("ranks")


def pair_maps(report: Report) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield the heat maps of each run, backend and transport, with a name."""
    for name, ranks, rows in report.records.mapped_pairs():
        nodes = ranks_by_node(report.records.runs[name], ranks, rows[0].nodes) or (range(ranks),)
        for backend, transport in measured_transports(rows):
            shown = list(matrices(rows, backend, transport))
            label = f"{backend} {transport} {ranks} ranks {name[:8]}"
            yield label, partial(_pairs, label=label, ranks=ranks, shown=shown, nodes=nodes)


def _pairs(
    figure: Any, label: str, ranks: int, shown: Sequence[tuple[str, Mapping[Any, PairRecord]]],
    nodes: Sequence[Sequence[int]],
) -> None:  # fmt: skip
    from mpicoll.p2p.heatmap import panel

    axes = figure.subplots(1, len(shown), squeeze=False)[0]
    for axis, (title, cells) in zip(axes, shown, strict=True):
        panel(figure, axis, dict(cells), ranks, nodes)
        axis.grid(visible=False)
        axis.set_title(title)
    figure.suptitle(label, fontsize=9)
    figure.set_size_inches(TWO_COLUMNS, 2.6)
