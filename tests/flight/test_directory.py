"""Directories of flight files: removed, made again, limited in number, and those of other users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from launcher import LIMIT, python

import mpicoll
from mpicoll.engine import _compiled
from mpicoll.flight import directory, recorder
from mpicoll.flight.layout import STACKS, SUFFIX


def test_nothing_stays_of_a_run_that_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("MPICOLL_FLIGHT_DIR", raising=False)
    mpicoll.threads(2)(lambda c: c.barrier())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("variable", ["", "stated"])
@pytest.mark.parametrize(("switch", "files"), [("keep", 2), ("KEEP", 2), ("1", 0), ("", 0)])
def test_files_stay_that_are_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, switch: str, files: int
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", variable and str(tmp_path / variable))
    monkeypatch.setenv("MPICOLL_FLIGHT", switch)
    mpicoll.threads(2)(lambda c: c.barrier())
    assert len([*tmp_path.rglob(f"*{SUFFIX}")]) == files


def test_a_directory_that_another_rank_removes_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank of a short run may end before another has opened its file."""
    paths: list[Path] = []

    def opened(job: str) -> Path:
        paths.append(place / job)
        paths[-1].mkdir()
        if len(paths) < 3:
            paths[-1].rmdir()
        return paths[-1]

    monkeypatch.setattr(recorder, "opened", opened)
    recorder.Recorder("job", (0, 1), writers=_compiled).close()
    assert len(paths) == 3
    assert [file.suffix for file in paths[-1].iterdir()] == [SUFFIX]


def test_few_directories_of_ended_jobs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("MPICOLL_FLIGHT_DIR", raising=False)
    for number in range(directory.MAX_JOBS + 5):
        directory.opened(f"job-{number}")
    folders = list(directory.home().iterdir())
    assert len(folders) == directory.MAX_JOBS
    assert directory.home().stat().st_mode & 0o777 == 0o700


def test_somebody_elses_directory_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("MPICOLL_FLIGHT_DIR", raising=False)
    directory.home().mkdir(mode=0o777)
    directory.home().chmod(0o777)
    with pytest.raises(PermissionError, match="not a directory of this user's alone"):
        directory.opened("job")


def test_a_pipe_that_is_named_like_a_ranks_file_holds_nobody_up(tmp_path: Path) -> None:
    for name in (f"rank-00000.job.1{SUFFIX}", f"rank-00000.job.1{STACKS}", f"rank-x.job{SUFFIX}"):
        os.mkfifo(tmp_path / name)
    assert [path.name for path in directory.of_job(tmp_path, "job")] == ["rank-00000.job.1.flight"]
    assert not directory.is_held(tmp_path / f"rank-00000.job.1{SUFFIX}")
    directory.remove_ended(tmp_path, "job")


def test_a_run_among_planted_pipes_ends(tmp_path: Path) -> None:
    """Its job has a name that nobody knows before: what stands beside it is replaced by pipes."""
    code = (
        "import os, pathlib, mpicoll, mpicoll.flight.directory as directory\n"
        "place = pathlib.Path(os.environ['MPICOLL_FLIGHT_DIR'])\n"
        "def program(c):\n"
        "    c.barrier()\n"
        "    if c.rank == 0:\n"
        "        job = next(place.glob('*.flight')).name.split('.')[1]\n"
        "        for suffix in ('flight', 'stacks'):\n"
        "            os.mkfifo(place / f'rank-00007.{job}.7.{suffix}')\n"
        "    c.barrier()\n"
        "mpicoll.threads(2)(program)\n"
    )
    tmp_path.chmod(0o777)
    done = python("-c", code, environment={"MPICOLL_FLIGHT_DIR": str(tmp_path)}, timeout=LIMIT)
    assert done.returncode == 0, done.stdout
    assert not [path.name for path in tmp_path.iterdir() if "rank-0000[01]" in path.name]
