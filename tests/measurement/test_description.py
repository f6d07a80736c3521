"""The description of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpicoll.measurement.description import cuda_driver, git_state


def test_the_commit_is_that_of_the_source(tmp_path: Path) -> None:
    git = git_state()
    assert git is None or len(git.commit) == 40
    assert git_state(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu\n", "570.86.15"),
     ("NVRM version: nothing\n", None)],
)  # fmt: skip
def test_the_version_of_the_driver_is_read(text: str, version: str | None, tmp_path: Path) -> None:
    path = tmp_path / "version"
    path.write_text(text)
    assert cuda_driver(path) == version
