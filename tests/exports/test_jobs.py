"""The option that exports the calls of a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from synthetic_job import dump, lockstep

from mpicoll.doctor.__main__ import main as doctor
from mpicoll.errors import ArgumentError
from mpicoll.exports.jobs import export
from mpicoll.postmortem.__main__ import main as postmortem


def test_all_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (rows,) = lockstep([[0.0]])
    files = [("perfetto", tmp_path / "job.json"), ("prometheus", tmp_path / "job.prom")]
    export([dump(0, rows, size=1)], files)
    assert all(path.stat().st_size for _, path in files)
    assert capsys.readouterr().out.count("wrote ") == 2
    with pytest.raises(ArgumentError, match="name its DIR"):
        export([], files)


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    arguments = ["--export", "perfetto", str(tmp_path / "job.json")]
    alone = CliRunner().invoke(doctor, arguments)
    assert alone.exit_code == 2 and "--export needs --job" in alone.output
    wrong = CliRunner().invoke(postmortem, [str(tmp_path), "--export", "svg", "x.svg"])
    assert wrong.exit_code == 2 and "perfetto" in wrong.output
    assert [*tmp_path.iterdir()] == []
