"""Every command that reads or writes files: what it cannot read or write is refused, and stays."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from reporting import case, write

from mpicoll.compare.__main__ import main as compare
from mpicoll.doctor.__main__ import main as doctor
from mpicoll.engine import _compiled
from mpicoll.explain.__main__ import main as explain
from mpicoll.flight.recorder import Recorder
from mpicoll.postmortem.__main__ import main as postmortem
from mpicoll.records.__main__ import main as records
from mpicoll.report.__main__ import main as report
from mpicoll.study.__main__ import main as study
from mpicoll.trace.__main__ import main as trace
from mpicoll.tune.exports import command as exports

WRITING: dict[str, tuple[click.Command, str]] = {
    "report": (report, "RECORDS -o OUT.html"),
    "study": (study, "RECORDS --csv OUT.csv"),
    "explain diagram": (explain, "allreduce ring -o OUT.svg"),
    "explain page": (explain, "allreduce ring -o OUT.html"),
    "explain goal": (explain, "allreduce ring -o OUT.goal"),
    "explain msccl": (explain, "allreduce ring -o OUT.xml"),
    "postmortem": (postmortem, "FLIGHT -o OUT.html"),
    "parquet": (records, "RECORDS -o OUT.parquet"),
    "arrow": (records, "RECORDS -o OUT.arrow"),
    **{f"export {target}": (exports.main, f"--to {target} RECORDS -o OUT.json")
       for target in exports._TARGETS},
}  # fmt: skip
INTO_FOLDERS: dict[str, tuple[click.Command, str]] = {
    "figures": (report, "RECORDS -o OUT/"),
    "study": (study, "--records RECORDS -o OUT"),
    "torch": (postmortem, "FLIGHT --torch OUT"),
}
READING: dict[str, tuple[click.Command, str]] = {
    "report": (report, "IN -o OUT.html"),
    "compare": (compare, "RECORDS IN"),
    "records": (records, "IN"),
    "parquet": (records, "IN -o OUT.parquet"),
    "study": (study, "IN"),
    "findings": (study, "--records IN -o OUT"),
    "study.toml": (study, "IN --dry-run"),
    "trace": (trace, "IN"),
    "trace --from": (trace, "FLIGHT --from IN"),
    "export": (exports.main, "--to mpich IN -o OUT.json"),
    "doctor": (doctor, "--job IN"),
    "postmortem": (postmortem, "IN"),
}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return files to read, by the words that stand for them in a command line."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    flight = tmp_path / "flight"
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(flight))
    Recorder("job", (0, 2), writers=_compiled).close()
    return {"RECORDS": write(tmp_path / "good.jsonl", [case()]), "FLIGHT": flight}


Refused = Callable[[click.Command, str, dict[str, Path]], str]


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """Return a function that runs a command, and returns its only error."""

    def run(command: click.Command, line: str, places: dict[str, Path]) -> str:
        words = []
        for word in line.split():
            for name, path in places.items():
                word = word.replace(name, str(path))
            words.append(word)
        with pytest.raises(SystemExit) as ended:
            command.main(words, prog_name="command")
        out, errors = capfd.readouterr()
        # Lines that are no records are the verdict of the command that checks them.
        assert ended.value.code in ((1, 2) if line == "IN" and command is records else (2,)), out
        assert "\x1b" not in out + errors and "Traceback" not in errors
        (message,) = [
            line_of_error for line_of_error in errors.splitlines() if "Error: " in line_of_error
        ]
        return message

    return run


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _full(path: Path) -> None:
    path.symlink_to("/dev/full")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [_pipe, _full, _loop, _folder])
@pytest.mark.parametrize("name", WRITING)
def test_only_regular_files_are_written(
    refused: Refused, places: dict[str, Path], tmp_path: Path, name: str, make: Any
) -> None:
    if name in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    command, line = WRITING[name]
    if name == "report" and make is _folder:
        pytest.skip("figures go into a folder")
    folder = tmp_path / "there \x1b[2J"
    folder.mkdir()
    make(folder / f"a{Path(line).suffix}")
    original = [entry.lstat() for entry in folder.iterdir()]
    refused(command, line, places | {"OUT": folder / "a"})
    present = [entry.lstat() for entry in folder.iterdir()]
    assert [(status.st_ino, status.st_mtime_ns) for status in present] == [
        (status.st_ino, status.st_mtime_ns) for status in original
    ]


@pytest.mark.parametrize("name", INTO_FOLDERS)
def test_no_file_is_taken_for_a_folder(
    refused: Refused, places: dict[str, Path], tmp_path: Path, name: str
) -> None:
    (tmp_path / "a").write_text("a letter")
    command, line = INTO_FOLDERS[name]
    refused(command, line, places | {"OUT": tmp_path / "a"})
    assert (tmp_path / "a").read_text() == "a letter"


@pytest.mark.parametrize("name", ["findings.md", "cells.jsonl"])
def test_a_study_keeps_other_files_of_its_folder(
    refused: Refused, places: dict[str, Path], tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("a letter")
    message = refused(study, "--records RECORDS -o OUT", places | {"OUT": tmp_path})
    assert f"{tmp_path / name} is no file" in message
    assert (tmp_path / name).read_text() == "a letter"


def _deep(path: Path) -> None:
    path.write_text("[" * 100_000 + "\n")


def _huge(path: Path) -> None:
    with path.open("w") as file:
        file.truncate(1 << 40)


def _zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _missing(path: Path) -> None:
    assert not path.exists()


def _binary(path: Path) -> None:
    path.write_bytes(bytes(range(11, 256)) * 100 + b"\n")


def _number(path: Path) -> None:
    path.write_text(json.dumps(case()).replace("1024", "9" * 5000) + "\n")


@pytest.mark.parametrize("make", [_pipe, _zero, _huge, _loop, _missing, _deep, _binary, _number])
@pytest.mark.parametrize("name", READING)
def test_what_cannot_be_read_is_refused(
    refused: Refused, places: dict[str, Path], tmp_path: Path, name: str, make: Any
) -> None:
    path = tmp_path / "in\x1b[2J"
    make(path)
    command, line = READING[name]
    refused(command, line, places | {"IN": path, "OUT": tmp_path / "out"})
    assert not [*tmp_path.glob("out.*")]


EMPTY_NAMES: dict[str, tuple[click.Command, list[str]]] = {
    "torch": (postmortem, ["--torch", ""]),
    "postmortem": (postmortem, [""]),
    "study": (study, ["-o", ""]),
    "report": (report, ["", "-o", "page.html"]),
}


@pytest.mark.parametrize("case", EMPTY_NAMES)
def test_an_empty_name_is_not_the_current_directory(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command, arguments = EMPTY_NAMES[case]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert "'' names nothing: is a variable not set?" in result.output
    assert not list(tmp_path.iterdir())
