"""The secret of a run, in a folder of the test."""

from __future__ import annotations

from pathlib import Path

import pytest
from joining import forget_launcher


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let each test make a secret of its own, whatever launched it; return the secret's path."""
    from torchcoll.rendezvous.secret import VARIABLE

    forget_launcher(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "state" / "mpicoll" / "secret"
