"""Draw pairs as heat maps: a row for each backend and transport, a panel for each quantity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mpicoll.measurement.ping_pong import COPY, LATENCY
from mpicoll.p2p.matrix import MOST_RANKS, Matrix, matrices, measured_transports
from mpicoll.p2p.record import known_value
from mpicoll.records.lines import PairRecord
from mpicoll.text.files import write_whole
from mpicoll.text.numbers import number

SUFFIXES = (".png", ".pdf", ".svg")
_PANEL = 2.3
_LEGEND = "brighter is better; grey: the rank's own copy; !: far from the median of its class"
RANGE = 1.5
"""Smallest range of a panel's colours, as a factor around the median: it hides noise."""


def complaint(path: Path) -> str | None:
    """Return the reason why no plot can be drawn at `path`, None if it can."""
    if path.suffix.lower() not in SUFFIXES:
        return f"--plot {path}: the name of a plot ends in {', '.join(SUFFIXES)}"
    if find_spec("matplotlib") is None:
        return "--plot needs matplotlib: pip install 'mpicoll[plots]'"
    return None


def draw(
    pairs: Sequence[PairRecord], nodes: Sequence[Sequence[int]], title: str, path: Path
) -> None:
    """Write the heat maps of these records; the file appears when it is complete."""
    from matplotlib.figure import Figure

    rows = [(names, list(matrices(pairs, *names))) for names in measured_transports(pairs)]
    ranks = pairs[0].ranks
    side = _PANEL * max(1.0, min(ranks, MOST_RANKS) / 6)
    columns = max(len(panels) for _, panels in rows)
    figure = Figure(figsize=(columns * (side + 1.1), len(rows) * (side + 0.75) + 0.8), dpi=130,
                    layout="constrained")  # fmt: skip
    figure.suptitle(f"{title}\n{_LEGEND}", fontsize=9)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for line, ((backend, transport), panels) in zip(axes, rows, strict=True):
        for axis, (name, cells) in zip(line, panels, strict=False):
            panel(figure, axis, cells, ranks, nodes)
            axis.set_title(f"{backend}, {transport}\n{name}", fontsize=9)
        for axis in line[len(panels) :]:
            axis.set_visible(False)
    kind = path.suffix[1:].lower()
    write_whole(path, lambda fresh: figure.savefig(fresh, format=kind))


def panel(
    figure: Any, axis: Any, cells: Matrix, ranks: int, nodes: Sequence[Sequence[int]]
) -> None:
    """Draw a matrix on an axis, with its colour bar and its numbers."""
    from matplotlib.colors import LogNorm

    grid = np.full((ranks, ranks), np.nan)
    for place, record in cells.items():
        # The diagonal is another quantity, and would stretch the range of the colours.
        grid[place] = math.nan if record.quantity == COPY else known_value(record)
    values = grid[~np.isnan(grid)]
    middle = median(values.tolist())
    limits = LogNorm(min(values.min(), middle / RANGE), max(values.max(), middle * RANGE))
    is_latency = any(record.quantity == LATENCY for record in cells.values())
    axis.set_facecolor("0.92")
    image = axis.imshow(grid, norm=limits, cmap="viridis_r" if is_latency else "viridis")
    bar = figure.colorbar(image, ax=axis, fraction=0.046, pad=0.03)
    _plain_numbers(bar)
    step = math.ceil(ranks / 32)
    axis.set_xticks(range(0, ranks, step))
    axis.set_yticks(range(0, ranks, step))
    axis.tick_params(labelsize=7, length=0)
    axis.set_xlabel("to rank", fontsize=8)
    axis.set_ylabel("from rank", fontsize=8)
    _boundaries(axis, ranks, nodes)
    if ranks <= MOST_RANKS:
        _annotate(axis, cells, image)


def _plain_numbers(bar: Any) -> None:
    """Label a few round values of a logarithmic bar, without powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    bar.ax.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 1.5, 2, 3, 5, 7)))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda amount, _: f"{amount:g}"))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.ax.tick_params(labelsize=7)


def _annotate(axis: Any, cells: Matrix, image: Any) -> None:
    for (source, target), record in cells.items():
        amount = known_value(record)
        if record.quantity == COPY:
            colour, style = "0.45", "italic"
        else:
            red, green, blue, _ = image.cmap(image.norm(amount))
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            colour, style = ("white" if dark else "black"), "normal"
        weight = "bold" if record.outlier else "normal"
        text = number(amount) + ("!" if record.outlier else "")
        axis.text(target, source, text, ha="center", va="center", fontsize=7, color=colour,
                  style=style, weight=weight)  # fmt: skip


def _boundaries(axis: Any, ranks: int, nodes: Sequence[Sequence[int]]) -> None:
    """Draw a line between neighbouring ranks on different nodes."""
    node_of = {rank: index for index, node in enumerate(nodes) for rank in node}
    for rank in range(1, ranks):
        if node_of[rank] != node_of[rank - 1]:
            axis.axhline(rank - 0.5, color="crimson", linewidth=1.5)
            axis.axvline(rank - 0.5, color="crimson", linewidth=1.5)
