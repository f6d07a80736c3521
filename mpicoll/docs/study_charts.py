"""The charts of the published study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpicoll.docs.study_algorithms import SHAPES, shape_times
from mpicoll.docs.study_evidence import ALGORITHMS, LIBRARIES, Published, pick
from mpicoll.docs.study_libraries import strongest_pairs
from mpicoll.notation.contract import COLLECTIVES, collective
from mpicoll.report.figures import save
from mpicoll.report.style import RC, TWO_COLUMNS
from mpicoll.study.cells import Cell, Contestant
from mpicoll.text.sizes import bytes_text, size_text

_COLOURS = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"
_MARKERS = "os^Dv"
_PHONE = 5.2
"""Inches: the text of a chart of this width can still be read on a phone."""
_LINES: dict[str, Callable[[Cell], Contestant | None]] = {
    "fastest library call": lambda cell: cell.rivals()[1],
    "mpicoll, in the same launches": lambda cell: cell.rivals()[0],
    "MPICH's call": lambda cell: pick(cell, "mpich", "mpi4py", "native"),
    "gloo's call": lambda cell: pick(cell, "mpich-torch", "torch", "native"),
}
"""The lines of an allreduce, and the contestant of a line in a cell."""


def write_charts(studies: Mapping[str, Published], folder: Path) -> None:
    """Write every chart as SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    charts: dict[str, tuple[float, Callable[[Any], None]]] = {
        "fastest": (3.0, lambda figure: _fastest(figure, studies[LIBRARIES])),
        "shapes": (2.9, lambda figure: _shapes(figure, studies[ALGORITHMS])),
        "allreduce": (2.9, lambda figure: _allreduce(figure, studies[LIBRARIES])),
    }
    with matplotlib.rc_context(RC):
        for name, (height, draw) in charts.items():
            figure = Figure(figsize=(TWO_COLUMNS, height), layout="constrained")
            draw(figure)
            save(figure, folder / f"{name}.svg", "svg")


def _fastest(figure: Any, published: Published) -> None:
    """Draw how many times as fast the fastest schedule is as the fastest library call."""
    order = {name: index for index, name in enumerate(COLLECTIVES)}
    for axes, ranks in zip(figure.subplots(1, 2, sharey=True), (2, 4), strict=True):
        group = strongest_pairs(published, ranks)
        sizes = sorted({pair.cell.size for pair in group if pair.cell.size})
        for index, size in enumerate(sizes):
            of_size = [pair for pair in group if pair.cell.size in (size, 0 if not index else size)]
            places = [order[pair.cell.panel.collective] for pair in of_size]
            ratios = [pair.ratio for pair in of_size]
            offset = (index - (len(sizes) - 1) / 2) * 0.17
            axes.errorbar(
                [place + offset for place in places], [ratio.ratio for ratio in ratios],
                [[max(0.0, ratio.ratio - ratio.low) for ratio in ratios],
                 [max(0.0, ratio.high - ratio.ratio) for ratio in ratios]],
                fmt=_MARKERS[index], color=_COLOURS[index], linestyle="none", elinewidth=0.7,
                label=bytes_text(size),
            )  # fmt: skip
        axes.axhline(1, color="0.3", linewidth=0.8)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xticks(range(len(order)), list(order), rotation=60, ha="right")
        axes.set_title(f"{ranks} ranks")
    figure.axes[0].set_ylabel("times as fast as the\nfastest library call")
    figure.axes[1].legend(ncols=2)


def _shapes(figure: Any, published: Published) -> None:
    """Draw the time of each broadcast over its size, on 4 ranks."""
    panel = published.panels("broadcast")[-1]
    places = {"over MPICH": ("mpich", "mpi4py"), "over gloo": ("mpich-torch", "torch")}
    for axes, (title, place) in zip(
        figure.subplots(1, 2, sharey=True), places.items(), strict=True
    ):
        cells = published.study.of(panel)
        for index, (shape, text) in enumerate(SHAPES.items()):
            points = {
                cell.size: times[shape] for cell in cells
                if shape in (times := shape_times(cell, *place))
            }  # fmt: skip
            _line(axes, points, index, text)
        axes.set_title(f"broadcast on {panel.ranks} ranks {title}")
        axes.set_xlabel("bytes")
    figure.axes[0].set_ylabel("time, us")
    figure.axes[0].legend()


def _allreduce(figure: Any, published: Published) -> None:
    """Draw time and bus bandwidth of an allreduce on 2 ranks over its size."""
    (panel,) = (panel for panel in published.panels("allreduce") if panel.ranks == 2)
    cells = published.study.of(panel)
    times, rates = figure.subplots(1, 2)
    factor = collective("allreduce").busbw(panel.ranks) / 1e3
    for index, (text, of) in enumerate(_LINES.items()):
        points = {cell.size: side for cell in cells if (side := of(cell)) is not None}
        _line(times, points, index, text)
        _line(rates, points, index, text, lambda size, us: size * factor / us)
    rates.set_yscale("linear")
    for axes, text in ((times, "time, us"), (rates, "bus bandwidth, GB/s")):
        axes.set_xlabel("bytes")
        axes.set_ylabel(text)
    figure.set_figwidth(_PHONE)
    figure.legend(*times.get_legend_handles_labels(), loc="outside upper center", ncols=2)


def _line(
    axes: Any, points: Mapping[int, Contestant], index: int, text: str,
    value: Callable[[int, float], float] = lambda size, us: us,
) -> None:  # fmt: skip
    """Draw a value of the medians of a line, with the band of their intervals."""
    sizes = list(points)
    ends = [sorted(value(size, us) for us in point.interval) for size, point in points.items()]
    middle = [value(size, point.us) for size, point in points.items()]
    axes.plot(sizes, middle, color=_COLOURS[index], marker=_MARKERS[index], label=text)
    axes.fill_between(
        sizes, [low for low, _ in ends], [high for _, high in ends],
        color=_COLOURS[index], alpha=0.18, linewidth=0,
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _name_sizes(axes, sizes)


def _name_sizes(axes: Any, sizes: Sequence[int]) -> None:
    axes.set_xticks(sizes, [size_text(size) for size in sizes])
    axes.minorticks_off()
