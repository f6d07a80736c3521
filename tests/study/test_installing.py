"""The installation of an environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpicoll.errors import ArgumentError
from mpicoll.study import installing


def test_an_installation_that_fails_says_how_much_room_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What venv says of a full disk does not name it."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    with pytest.raises(ArgumentError, match=r"does not start: .*; [\d.,]+[KMGT]? are free there$"):
        installing.install("mpich", tmp_path)
    assert list(tmp_path.iterdir()) == []
