"""A picture of each collective: the data of three ranks before and after, from the contract.

The picture has the width of a phone. Its colours are those of the page, light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from mpicoll.notation.contract import COLLECTIVES, Collective, Contribution, Place
from mpicoll.notation.schedule import Block

_RANKS, _ROOT = 3, 0
_LETTERS = "ABC"
_COLOURS = ("#7fb2e5", "#f0b26b", "#8fcf8f")
"""The backgrounds of the data of each rank; that of a reduction is grey."""
_REDUCED = "#b9b9c6"
_CELL, _HEIGHT, _GAP, _TOP = 38, 26, 8, 24
_INPUT_X, _ARROW = 52, 32
_CHARACTER = 8
"""Pixels of a character of a label."""


def picture(name: str) -> str:
    """Return the picture of a collective as SVG, whose text alternative says the same.

    >>> 'rank 1: A+B+C' in picture("allreduce")
    True
    """
    contract = COLLECTIVES[name]
    if contract.unit == "none":
        return _svg(name, 180, _barrier(), "No rank leaves the barrier before all have entered it.")
    input_rows, output_rows = _rows(contract)
    output_x = _INPUT_X + max(map(_width, input_rows)) + _ARROW
    shapes = [_text(0, _middle(rank), f"rank {rank}") for rank in range(_RANKS)]
    for title, x, rows in (("before", _INPUT_X, input_rows), ("after", output_x, output_rows)):
        shapes.append(_text(x, 14, title))
        for rank, row in enumerate(rows):
            shapes += _draw_boxes(x, rank, row)
    shapes.append(_arrow(output_x - _ARROW + 6, _middle(1) - 4))
    words = "; ".join(
        f"rank {rank}: {', '.join(box.label for box in row) or 'nothing'}"
        for rank, row in enumerate(output_rows)
    )
    root = f", root {_ROOT}" if contract.rooted else ""
    return _svg(
        name, output_x + max(map(_width, output_rows)) + 2, shapes, f"After {name}{root}: {words}"
    )


class _Box(NamedTuple):
    """A block of a rank."""

    label: str
    colour: str

    @property
    def width(self) -> int:
        """Pixels that the label needs."""
        return max(_CELL, _CHARACTER * len(self.label) + 10)


def _rows(contract: Collective) -> tuple[list[list[_Box]], list[list[_Box]]]:
    """Return the blocks of each rank before and after a collective."""
    blocks = 1 if contract.unit == "vector" else _RANKS
    places = [Place(rank, _RANKS, _ROOT, blocks) for rank in range(_RANKS)]
    inputs = [contract.input_blocks(at) for at in places]
    is_numbered = any(len(row) > 1 for row in inputs)
    input_rows = [
        [_box(((at.rank, block),), is_numbered) for block in row]
        for at, row in zip(places, inputs, strict=True)
    ]
    contents = [contract.output_contents(at) for at in places]
    output_rows = [
        [_box(held[block], is_numbered) for block in sorted(held, key=str)] for held in contents
    ]
    return input_rows, output_rows


def _box(parts: Sequence[Contribution], is_numbered: bool) -> _Box:
    """Return the box of a block that is reduced from the data of some ranks."""
    label = "+".join(
        _LETTERS[rank] + (_number(block) if is_numbered else "") for rank, block in parts
    )
    return _Box(label, _COLOURS[parts[0][0]] if len(parts) == 1 else _REDUCED)


def _number(block: Block) -> str:
    return str(block[1] if isinstance(block, tuple) else block)


def _width(row: Sequence[_Box]) -> int:
    return sum(box.width for box in row)


def _middle(rank: int) -> int:
    return _TOP + rank * (_HEIGHT + _GAP) + _HEIGHT // 2 + 4


def _draw_boxes(x: int, rank: int, row: Sequence[_Box]) -> list[str]:
    shapes = []
    y = _TOP + rank * (_HEIGHT + _GAP)
    for box in row:
        shapes += [
            f'<rect x="{x}" y="{y}" width="{box.width}" height="{_HEIGHT}" fill="{box.colour}" '
            'stroke="#444"/>',
            _text(x + box.width // 2, _middle(rank), box.label, "middle", "#111"),
        ]
        x += box.width
    return shapes


def _barrier() -> list[str]:
    ends = (70, 110, 150)
    shapes = [f'<line x1="158" y1="18" x2="158" y2="{_TOP + 98}" stroke="currentColor"/>']
    for rank, end in enumerate(ends):
        y = _middle(rank) - 4
        shapes += [
            _text(0, y + 4, f"rank {rank}"),
            f'<line x1="52" y1="{y}" x2="{end}" y2="{y}" stroke="{_COLOURS[rank]}" '
            'stroke-width="6"/>',
            f'<line x1="{end}" y1="{y}" x2="158" y2="{y}" stroke="currentColor" '
            'stroke-dasharray="3"/>',
        ]
    return shapes


def _arrow(x: int, y: int) -> str:
    return f'<path d="M{x} {y}h18m-6 -5l6 5l-6 5" fill="none" stroke="currentColor"/>'


def _text(x: int, y: int, text: str, anchor: str = "start", colour: str = "currentColor") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _svg(name: str, width: int, shapes: Sequence[str], words: str) -> str:
    height = _TOP + _RANKS * (_HEIGHT + _GAP)
    return (
        f'<svg class="collective" role="img" aria-label="{escape(words)}" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" font-family="monospace" font-size="13" '
        f'data-collective="{name}">{"".join(shapes)}</svg>'
    )
