"""The look of curves in a paper: colours, markers, dashes, sizes of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpicoll.report.curves import Curve

RC: Any = {
    "font.size": 8, "font.family": "sans-serif",
    "font.sans-serif": ["Arial", "Helvetica", "Liberation Sans", "DejaVu Sans"],
    "axes.titlesize": 9, "axes.labelsize": 8, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "legend.fontsize": 8, "axes.linewidth": 0.6, "lines.linewidth": 1.1, "lines.markersize": 4,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "0.88", "grid.linewidth": 0.5, "axes.axisbelow": True,
    "svg.fonttype": "none", "svg.hashsalt": "mpicoll", "hatch.linewidth": 0.5,
    "legend.frameon": False, "legend.handlelength": 2.6,
}  # fmt: skip

ONE_COLUMN, TWO_COLUMNS = 3.5, 7.1
"""Inches."""

_INK = "0.1"
_MARKERS = "os^DvP*X<>phd8H"
_DASHES = ("-", "--", ":", "-.")


def dash_of(index: int) -> Any:
    """Return the line style of a panel's backend with this index."""
    return _DASHES[index % len(_DASHES)]


@dataclass(frozen=True)
class Style:
    """The look of every curve of a report, from the colours of its algorithms."""

    hues: Mapping[str, str]

    def colour(self, algorithm: str) -> str:
        """Return the colour of an algorithm."""
        return self.hues.get(algorithm) or _INK

    def of(self, curve: Curve, backends: list[str]) -> dict[str, Any]:
        """Return the keywords of `Axes.plot` for a curve."""
        at = list(self.hues).index(curve.algorithm)
        return {
            "color": self.colour(curve.algorithm),
            "marker": _MARKERS[at % len(_MARKERS)],
            "linestyle": dash_of(backends.index(curve.backend)),
            # The name may contain a transport; an algorithm has one colour over all transports.
            "markerfacecolor": "white" if curve.wanted else self.colour(curve.algorithm),
            "label": f"{curve.backend} {curve.name}",
        }
