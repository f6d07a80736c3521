"""A space-time diagram as SVG: a line for each rank, its blocks after each round, arrows between.

Thickness is bytes. Colours follow the reader's light or dark scheme, text stays text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from xml.etree import ElementTree as xml

from mpicoll.explain.trace import Cell, Hop, RoundTrace, listed, runs
from mpicoll.explain.words import aim, share, verdict
from mpicoll.text.numbers import count_text

_STYLE = """
svg { --back: #ffffff; --ink: #1d232b; --soft: #5b6673; --line: #c9d0d8; --empty: #eef1f4;
  --part: #56a0d3; --done: #009e73; --arrow: #b45309; }
@media (prefers-color-scheme: dark) { svg { --back: #14181d; --ink: #e6eaf0; --soft: #9aa7b4;
  --line: #3b4550; --empty: #232a33; --part: #3a7fb0; --done: #12a97f; --arrow: #f0a848; } }
text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 11px;
  fill: var(--ink); }
.back { fill: var(--back); }
.title { font-size: 15px; font-weight: 600; }
.soft { fill: var(--soft); }
.small { font-size: 9px; }
.lifeline { stroke: var(--line); stroke-width: 1; }
.cell { fill: var(--empty); }
.part { fill: var(--part); }
.done { fill: var(--done); }
.frame { fill: none; stroke: var(--line); stroke-width: 1; }
.new { stroke: var(--ink); stroke-width: 1.5; }
.arrow { stroke: var(--arrow); stroke-opacity: .85; fill: none; }
.head { fill: var(--arrow); }
.halo { stroke: var(--back); stroke-width: 3px; paint-order: stroke; stroke-linejoin: round; }
"""
_LEFT_MARGIN, _TOP, _ROW, _HIGH, _GAP, _END = 64.0, 62.0, 34.0, 20.0, 86.0, 44.0
_THICK = 6.0
_CHARACTER = 5.4
"""Pixels: of the margin, the rows, the bars, the arrows between; of an arrow that carries m."""


@dataclass(frozen=True)
class _Stage:
    """The place of one schedule in the diagram."""

    trace: RoundTrace
    top: float

    @property
    def cell(self) -> float:
        """The width of a column."""
        return max(9.0, min(60.0, 150.0 / len(self.trace.columns)))

    @property
    def bar(self) -> float:
        """The width of all columns."""
        return self.cell * len(self.trace.columns)

    @property
    def width(self) -> float:
        """How much room it takes from left to right."""
        return self.x_of(self.trace.rounds) + self.bar + 16

    @property
    def height(self) -> float:
        """How much room it takes from top to bottom."""
        return _TOP + _ROW * self.trace.size + _END

    def x_of(self, now: int) -> float:
        """Return where the bars after a round begin."""
        return _LEFT_MARGIN + now * (self.bar + _GAP)

    def middle(self, rank: int) -> float:
        """Return the height of a rank's line."""
        return self.top + _TOP + _ROW * (rank + 0.5)


def diagram(traces: Sequence[RoundTrace]) -> str:
    """Return the diagram of one or several schedules, one below the other."""
    stages: list[_Stage] = []
    for trace in traces:
        stages.append(_Stage(trace, stages[-1].top + stages[-1].height if stages else 8.0))
    width = max(620.0, *(stage.width for stage in stages))
    height = stages[-1].top + stages[-1].height
    root = xml.Element("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width:g} {height:g}",
        "width": f"{width:g}", "height": f"{height:g}", "role": "img",
    })  # fmt: skip
    xml.SubElement(root, "title").text = "; ".join(map(verdict, traces))
    xml.SubElement(root, "style").text = _STYLE
    _rect(root, "back", 0, 0, width, height)
    for stage in stages:
        _draw(root, stage)
    return f"{xml.tostring(root, encoding='unicode')}\n"


def _draw(root: xml.Element, stage: _Stage) -> None:
    trace = stage.trace
    group = xml.SubElement(root, "g", {"data-algorithm": str(trace.algorithm)})
    name = f"{trace.collective.name}: {trace.algorithm}, {count_text(trace.size, 'rank')}"
    _text(group, "title", 16, stage.top + 18, name)
    _text(group, "soft", 16, stage.top + 34, aim(trace.collective.name, trace.root))
    for rank in range(trace.size):
        y = stage.middle(rank)
        _text(group, "", 16, y + 4, f"rank {rank}")
        xml.SubElement(group, "line", {
            "class": "lifeline", "x1": f"{_LEFT_MARGIN:g}", "x2": f"{stage.width - 16:g}",
            "y1": f"{y:g}", "y2": f"{y:g}",
        })  # fmt: skip
    for now in range(trace.rounds + 1):
        _header(group, stage, now)
        for rank in range(trace.size):
            _bar(group, stage, now, rank)
    for hop in (hop for hops in trace.hops for hop in hops):
        _arrow(group, stage, hop)
    _text(group, "", 16, stage.top + stage.height - 20, verdict(trace))


def _header(group: xml.Element, stage: _Stage, now: int) -> None:
    """Write above the arrows which round it is and how much they carry."""
    if not now:
        return
    x, y = stage.x_of(now) - _GAP / 2, stage.top + _TOP
    _text(group, "", x, y - 8, f"round {now}", anchor="middle")
    sizes = {len(hop.blocks) for hop in stage.trace.hops[now]}
    if sizes - {0}:
        largest = share(Fraction(max(sizes), stage.trace.whole))
        label = f"{largest} each" if len(sizes) == 1 else f"up to {largest}"
        _text(group, "soft small", x, y + 4, label, anchor="middle")


def _bar(group: xml.Element, stage: _Stage, now: int, rank: int) -> None:
    """Draw the blocks of a rank, each cell filled by the share of the data that it has."""
    x, y = stage.x_of(now), stage.middle(rank) - _HIGH / 2
    _rect(group, "cell", x, y, stage.bar, _HIGH)
    for column, cell in enumerate(stage.trace.states[now][rank]):
        _cell(group, stage, x + column * stage.cell, y, cell, stage.trace.goals[rank][column])
    _rect(group, "frame", x, y, stage.bar, _HIGH)
    for column, cell in enumerate(stage.trace.states[now][rank]):
        if cell.mark:
            _rect(group, "frame new", x + column * stage.cell, y, stage.cell, _HIGH)


def _cell(group: xml.Element, stage: _Stage, x: float, y: float, cell: Cell, goal: int) -> None:
    if not cell.mask:
        return
    count = cell.mask.bit_count()
    high = _HIGH * count / max(stage.trace.max_ranks, count)
    kind = "done" if cell.mask == goal else "part"
    _rect(group, kind, x, y + _HIGH - high, stage.cell, high)
    if len(label := runs(cell.mask)) * _CHARACTER < stage.cell:
        _text(group, "small", x + stage.cell / 2, y + _HIGH / 2 + 3, label, anchor="middle")


def _arrow(group: xml.Element, stage: _Stage, hop: Hop) -> None:
    """Draw a message from its sender's bar to its receiver's, as thick as it carries bytes."""
    part = len(hop.blocks) / stage.trace.whole
    thick = 1.0 + (_THICK - 1.0) * min(1.0, part)
    x, y = stage.x_of(hop.round - 1) + stage.bar + 4, stage.middle(hop.source)
    to, end = stage.x_of(hop.lands) - 4, stage.middle(hop.destination)
    length = ((to - x) ** 2 + (end - y) ** 2) ** 0.5
    ahead, aside = ((to - x) / length, (end - y) / length), 2.5 + thick
    neck = to - ahead[0] * 2 * aside, end - ahead[1] * 2 * aside
    line = f"M{x:.1f} {y:.1f}L{neck[0]:.1f} {neck[1]:.1f}"
    path = {"class": "arrow", "d": line, "stroke-width": f"{thick:.2f}"}
    xml.SubElement(
        xml.SubElement(group, "path", path), "title"
    ).text = f"{hop.source} to {hop.destination}: {listed(hop.blocks)}"
    head = (
        f"M{to:.1f} {end:.1f}L{neck[0] - ahead[1] * aside:.1f} {neck[1] + ahead[0] * aside:.1f}"
        f"L{neck[0] + ahead[1] * aside:.1f} {neck[1] - ahead[0] * aside:.1f}Z"
    )
    xml.SubElement(group, "path", {"class": "head", "d": head})
    if hop.blocks and len(stage.trace.columns) > 1 and len(label := listed(hop.blocks)) <= 5:
        _text(group, "small halo", x + ahead[0] * 12, y + ahead[1] * 12 + 3, label, anchor="middle")


def _rect(parent: xml.Element, kind: str, x: float, y: float, width: float, height: float) -> None:
    xml.SubElement(parent, "rect", {
        "class": kind, "x": f"{x:.5g}", "y": f"{y:.5g}", "width": f"{width:.5g}",
        "height": f"{height:.5g}",
    })  # fmt: skip


def _text(
    parent: xml.Element, kind: str, x: float, y: float, label: str, anchor: str = "start"
) -> None:  # fmt: skip
    place = {"x": f"{x:.5g}", "y": f"{y:.5g}", "class": kind, "text-anchor": anchor}
    xml.SubElement(parent, "text", place).text = label
