"""One colour for each algorithm, the same in every picture of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import cycle

from mpicoll.report.curves import Panel
from mpicoll.report.winners import WinnerMap

NATIVE = "native"
_AUTO = "#d55e00"
_PALETTE = (
    "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#aa3355", "#8a7fd4", "#999933",
    "#44aa99", "#b35c9e", "#a5673f", "#6699cc", "#2f8f4e", "#c9a227", "#d98880", "#7d8ca3",
)  # fmt: skip
"""Okabe and Ito's colours come first, since colour-blind readers can distinguish them."""


def colours(panels: Sequence[Panel], maps: Sequence[WinnerMap]) -> dict[str, str]:
    """Return the colour of every algorithm; native's is empty, since it has the colour of text.

    The algorithms that are shown most often get the colours that are easiest to distinguish.
    """
    counts: Counter[str] = Counter()
    counts.update(name.partition("@")[0] for panel in panels for name in panel.shown())
    counts.update(cell.label for winner_map in maps for cell in winner_map.cells.values())
    counts.update({curve.algorithm: 0 for panel in panels for curve in panel.curves})
    ranked = [name for name, _ in counts.most_common() if name not in (NATIVE, "auto")]
    return {NATIVE: "", "auto": _AUTO} | dict(zip(ranked, cycle(_PALETTE), strict=False))
