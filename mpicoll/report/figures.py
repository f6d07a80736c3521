"""The report as figures for a paper: SVG with real text, and PNG.

Figures are as wide as one or two columns of a paper, and meant to be printed at that size. Colours
are those of the page. Without colour, markers distinguish algorithms and line styles distinguish
backends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mpicoll.errors import ArgumentError
from mpicoll.report.colours import colours
from mpicoll.report.curves import Panel
from mpicoll.report.data import Report
from mpicoll.report.draw_maps import pair_maps, winners
from mpicoll.report.draw_panels import curves, over_bounds, speedups
from mpicoll.report.model_comparison import ModelComparison
from mpicoll.report.style import RC, Style
from mpicoll.text.files import make_folder, write_whole

KINDS = ("svg", "png")
_DPI = 300

Draw = Callable[[Any], None]


def figures(report: Report, folder: Path) -> list[Path]:
    """Write every figure, and return the files.

    Raises:
        ArgumentError: matplotlib is not installed, or a file cannot be written.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise ArgumentError("figures need matplotlib: pip install 'mpicoll[report]'") from None
    make_folder(folder)
    written: dict[Path, None] = {}
    with matplotlib.rc_context(RC):
        for name, draw in _figures(report):
            figure = Figure(layout="constrained")
            draw(figure)
            for kind in KINDS:
                path = folder / f"{_free_name(name, kind, folder, written)}.{kind}"
                save(figure, path, kind)
                written[path] = None
    return list(written)


def _figures(report: Report) -> Iterator[tuple[str, Draw]]:
    """Yield the name of each figure, and the function that draws it."""
    style = Style(colours(report.panels, report.maps))
    several = len(report.setups) > 1
    for panel, comparisons in zip(report.panels, report.comparisons, strict=True):
        setup = panel.scope.setup if several else ""
        for kind, draw in _of_panel(panel, comparisons, style):
            yield slug(panel.collective, str(panel.scope), setup, kind), draw
    for winner_map in report.maps:
        setup = winner_map.setup if several else ""
        draw = partial(winners, winner_map=winner_map, style=style)
        yield slug(winner_map.collective, winner_map.variant, setup, "winners"), draw
    for label, draw_pairs in pair_maps(report):
        yield slug("pairs", label), draw_pairs


def _of_panel(
    panel: Panel, comparisons: Sequence[ModelComparison], style: Style
) -> Iterator[tuple[str, Draw]]:
    if panel.curves:
        yield "curves", partial(curves, panel=panel, style=style)
    if any(record.speedup_vs_native for record in panel.records()):
        yield "speedup", partial(speedups, panel=panel, style=style)
    if any(comparison.over_bound for comparison in comparisons):
        yield "bound", partial(over_bounds, panel=panel, comparisons=comparisons, style=style)


def slug(*parts: str) -> str:
    """Return a name for a file from parts with any characters.

    >>> slug("allreduce", "4 ranks · float32 sum, in place", "", "curves")
    'allreduce-4-ranks-float32-sum-in-place-curves'
    """
    plain = (re.sub(r"[^A-Za-z0-9_]+", "-", part).strip("-") for part in parts)
    return "-".join(filter(None, plain))[:120]


def _free_name(name: str, kind: str, folder: Path, written: Container[Path]) -> str:
    """Return a name that no other figure of this report uses."""
    unused, count = name, 2
    while folder / f"{unused}.{kind}" in written:
        unused, count = f"{name}-{count}", count + 1
    return unused


def save(figure: Any, path: Path, kind: str) -> None:
    """Write a figure. Files of the same content are identical, so they have no date."""
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    write_whole(path, lambda fresh: figure.savefig(fresh, format=kind, dpi=_DPI, metadata=metadata))
