"""Where decision tables lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpicoll.selection import tables


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({}, "/home/me/.cache/mpicoll/table.json"),
        ({"XDG_CACHE_HOME": ""}, "/home/me/.cache/mpicoll/table.json"),
        ({"XDG_CACHE_HOME": "/scratch"}, "/scratch/mpicoll/table.json"),
        ({tables.VARIABLE: "mine.json", "XDG_CACHE_HOME": "/scratch"}, "mine.json"),
    ],
)
def test_the_default_path(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], path: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for name in ("XDG_CACHE_HOME", tables.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tables.default_path() == Path(path)
