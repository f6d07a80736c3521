"""An environment in which torch finds the backend."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from launcher import ROOT


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which torch finds the entry point, also beside a mere checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry = project["entry-points"]["torch.backends"]["torchcoll"]
    metadata = tmp_path / "mpicoll-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mpicoll\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(f"[torch.backends]\ntorchcoll = {entry}\n")
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
