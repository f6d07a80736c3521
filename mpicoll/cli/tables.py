"""Tables on standard output: as wide as the terminal or COLUMNS says, and no cell cut short.

Text is shown as it is, not read as rich's markup, and control characters are spelled out: host
names, variables and records are not to steer a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import StringIO
from shutil import get_terminal_size
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment
from rich.table import Table

from mpicoll.machine.launchers import is_terminal
from mpicoll.text.printable import printable

_AS_IT_IS: dict[str, Any] = {"markup": False, "emoji": False}
_ENDLESS = 1 << 16
_WORD = 8
"""The fewest letters of a word that stay in one line."""


class _Printable:
    """Something to print, with its control characters spelled out."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self.inner = inner

    def __rich_console__(self, out: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in out.render(self.inner, options):
            yield Segment(text if control else printable(text), style, control)


class _SpellOut(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [*map(_Printable, renderables)]


def console(piped: int, **more: Any) -> Console:
    """Return a console as wide as COLUMNS says, else as the terminal of standard output.

    Args:
        piped: the columns where there is no terminal.
        more: rich's other arguments.
    """
    # Without both numbers rich takes a terminal that is called dumb for one of 80 columns.
    width, height = get_terminal_size((piped, 25))
    out = Console(width=width, height=height, **_AS_IT_IS, **more)
    out.push_render_hook(_SpellOut())
    return out


def plain_table(columns: Iterable[str]) -> Table:
    """Return a table without lines, whose long cells go on below."""
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def least_width(table: Table) -> int:
    """Return the columns in which no cell of a table is cut: long words go on below."""
    wide = Console(width=_ENDLESS, height=1, **_AS_IT_IS)
    for column in table.columns:
        column.overflow = "fold"
        if column.no_wrap:
            cells = (column.header, *column.cells)
            column.min_width = max(wide.measure(cell).maximum for cell in cells)
        else:
            column.max_width = _WORD
    width = wide.measure(table).minimum
    for column in table.columns:
        column.max_width = None
    return width


def print_table(table: Table, piped: int) -> None:
    """Print a table on standard output.

    Args:
        piped: as for `console`.
    """
    print_whole(table, console(piped))


def print_whole(table: Table, out: Console) -> None:
    """Print a table; where it needs more columns than there are, its lines are longer."""
    out.width = max(out.width, least_width(table))
    out.print(table)


Draw = Callable[[Console, bool], None]
"""Prints on a console, which shows more than ASCII or not."""


def print_on(stream: TextIO, piped: int, draw: Draw) -> None:
    """Print on a terminal in colours, or as plain lines where none is.

    Args:
        piped: as for `console`.
    """
    if is_terminal(stream):
        draw(console(piped, file=stream, highlight=False), _has_unicode(stream))
    else:
        print_plain(stream, piped, draw)


def print_plain(stream: TextIO, piped: int, draw: Draw) -> None:
    """Print lines without colours, and without spaces at their ends."""
    text = StringIO()
    draw(console(piped, file=text, highlight=False, color_system=None), _has_unicode(stream))
    for line in text.getvalue().splitlines():
        print(line.rstrip(), file=stream)


def _has_unicode(stream: TextIO) -> bool:
    return "utf" in (stream.encoding or "").lower()
