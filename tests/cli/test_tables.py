"""Tables at any width: no cell is cut."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from rich.table import Column, Table
from rich.text import Text

from mpicoll.cli.tables import console, print_table

CELLS = ("a name", "seven words that may stand below each other", "12345678", "1.50x +")


def letters(*texts: str) -> Counter[str]:
    return Counter(
        letter for text in texts for letter in text if letter.isascii() and letter.isalnum()
    )


@pytest.mark.parametrize("columns", [1, 20, 60, 200])
def test_no_cell_is_cut(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "dumb")
    table = Table("first", "second", "third")
    table.add_column("fourth", no_wrap=True)
    table.add_row(*CELLS)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(table, piped=100)
    text = capsys.readouterr().out
    assert letters(text) == letters("first second third fourth", *CELLS)
    assert CELLS[3] in text
    assert (CELLS[1] in text) is (columns == 200)


def test_a_pipe_has_a_width_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table("first", expand=True)
    print_table(table, piped=70)
    assert {len(line) for line in capsys.readouterr().out.splitlines()} == {70}


HOSTILE = "host\x1b[2J\x9b31m\u202e[/][red]:smile:[link=x]"


@pytest.mark.parametrize(
    "make",
    [
        str,
        Text,
        lambda text: Table(text),
        lambda text: Table(Column(Text(text))),
    ],
)
def test_no_text_steers_the_terminal(make: Callable[[str], Any]) -> None:
    """Unlike the console's own colours."""
    text = StringIO()
    out = console(100, file=text, force_terminal=True, color_system="standard")
    out.print("own", style="red")
    assert text.getvalue() == "\x1b[31mown\x1b[0m\n"
    plain = StringIO()
    console(100, file=plain, color_system=None).print(make(HOSTILE))
    assert r"host\x1b[2J\x9b31m\u202e[/][red]:smile:[link=x]" in plain.getvalue()
    assert not set("\x1b\x9b\u202e") & set(plain.getvalue())
