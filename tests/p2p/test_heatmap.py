"""Pairs as heat maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pairing import findings, records, usual

from mpicoll.p2p import heatmap


@pytest.mark.exhaustive
def test_a_plot_shows_its_cells(tmp_path: Path) -> None:
    size = 9
    image = pytest.importorskip("matplotlib.image")
    file = tmp_path / "pairs.png"
    pairs = records(size, findings(size, usual))
    heatmap.draw(pairs, [range(size // 2), range(size // 2, size)], "title", file)
    seen = image.imread(file)
    assert min(seen.shape[:2]) > 200
    assert len(np.unique(seen.reshape(-1, seen.shape[2]), axis=0)) > 100
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(("name", "fits"), [("a.png", True), ("a.SVG", True), ("a.txt", False)])
def test_the_suffix_of_a_plot_is_checked(name: str, fits: bool) -> None:
    pytest.importorskip("matplotlib")
    text = heatmap.complaint(Path(name))
    assert text is None if fits else text is not None and "ends in .png" in text


def test_a_plot_without_matplotlib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heatmap, "find_spec", lambda name: None)
    assert "mpicoll[plots]" in (heatmap.complaint(Path("a.png")) or "")
