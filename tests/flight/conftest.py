"""The directory in which the ranks of a test record."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpicoll.errors import RankLost


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the ranks of a test record."""
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path))
    monkeypatch.setattr(RankLost, "found_in", "")
    return tmp_path
