"""Tables at any width: no cell is cut."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from rich.table import Table

from mpicoll.cli.tables import print_table

CELLS = ("a name", "seven words that may stand below each other", "12345678", "1.50x +")


def letters(*texts: str) -> Counter[str]:
    return Counter(each for text in texts for each in text if each.isascii() and each.isalnum())


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
