"""The configuration file: which variables it sets, and how a bad file is refused."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest
from launcher import python

from mpicoll.errors import BadFile
from mpicoll.machine import configuration

NAME = "MPICOLL_DEADLINE"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the file that is in force, in an environment of its own."""
    file = tmp_path / "cluster.toml"
    monkeypatch.setattr(os, "environ", {"MPICOLL_CONFIG": str(file), "HOME": str(tmp_path)})
    monkeypatch.setattr(configuration, "_values", {})
    return file


@pytest.mark.parametrize(
    ("line", "value"),
    [("= 60", "60"), ("= 0.5", "0.5"), ("= '7'", "7"), ("= true", "1"), ("= false", "0")],
)
def test_the_file_sets_a_variable(file: Path, line: str, value: str) -> None:
    file.write_text(f"{NAME} {line}\n")
    configuration.load()
    assert os.environ[NAME] == value
    assert configuration.sources() == {NAME: str(file)}


def test_the_environment_comes_first(file: Path) -> None:
    file.write_text(f"{NAME} = 60\n")
    os.environ[NAME] = "5"
    configuration.load()
    assert os.environ[NAME] == "5"
    assert configuration.sources() == {NAME: "environment"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "MPICOLL_DEDLINE = 1",
            "MPICOLL_DEDLINE is no variable of mpicoll: did you mean MPICOLL_D",
        ),
        ("tables = 1", "tables is no variable of mpicoll: give a name of the documentation"),
        ("MPICOLL_DEADLINE = [1]", "MPICOLL_DEADLINE must be a text, a number, true or false"),
        ("MPICOLL_DEADLINE = ", "cluster.toml is no TOML: "),
        ("MPICOLL_DEADLINE = " + "[" * 10_000, "cluster.toml is no TOML: "),
        (
            'MPICOLL_TABLE = "a\\u0000b"',
            "TABLE can be no variable: it has a null",
        ),
        ("MPICOLL_DEADLINE = 0x" + "f" * 6000, "MPICOLL_DEADLINE can be no variable: Exceeds"),
        (None, "cannot read .*cluster.toml: No such file or directory"),
    ],
)
def test_a_bad_file_is_refused(file: Path, text: str | None, reason: str) -> None:
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadFile, match=reason):
        configuration.load()
    assert NAME not in os.environ


def test_a_pipe_that_nobody_writes_is_not_waited_for(file: Path) -> None:
    os.mkfifo(file)
    with pytest.raises(BadFile, match="nobody writes this pipe"):
        configuration.load()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full"])
def test_a_device_is_not_read(file: Path, path: str) -> None:
    file.symlink_to(path)
    with pytest.raises(BadFile, match="it is no regular file"):
        configuration.load()


def test_a_regular_file_without_an_end_is_not_read(file: Path) -> None:
    os.environ["MPICOLL_CONFIG"] = "/proc/self/pagemap"
    with pytest.raises(BadFile, match="pagemap: it has more than 1 MiB"):
        configuration.load()


@pytest.mark.parametrize(
    "text", ['"\\u001b[2J" = 1', '"\\u001b[2J" = []', "MPICOLL_DEADLINE = [\"\\u001b[2J\"]",
             "MPICOLL_DEADLINE = \x1b[2J"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["cluster.toml", "\x1b[2J.toml"])
def test_an_escape_sequence_does_not_reach_a_terminal(tmp_path: Path, text: str, name: str) -> None:
    """A program that imports mpicoll prints its errors as Python does."""
    (tmp_path / name).write_text(text)
    done = python("-c", "import mpicoll", environment={"MPICOLL_CONFIG": str(tmp_path / name)})
    assert done.returncode == 1 and "mpicoll.errors.BadFile: " in done.stdout
    assert "\x1b" not in done.stdout


def test_the_null_device_is_no_file(file: Path) -> None:
    os.environ["MPICOLL_CONFIG"] = os.devnull
    configuration.load()
    assert configuration.sources() == {}


def test_the_mark_of_an_editor_before_the_text_is_no_error(file: Path) -> None:
    file.write_text(f"{NAME} = 60\r\n", "utf-8-sig")
    configuration.load()
    assert os.environ[NAME] == "60"


@pytest.mark.parametrize("folder", [None, "config"])
def test_the_default_place_is_that_of_platformdirs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str | None
) -> None:
    monkeypatch.delenv("MPICOLL_CONFIG", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    if folder is not None:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / folder))
    assert configuration.path() == str(platformdirs.user_config_path("mpicoll") / "mpicoll.toml")


def test_no_file_is_no_error(file: Path) -> None:
    del os.environ["MPICOLL_CONFIG"]
    configuration.load()
    os.environ["MPICOLL_CONFIG"] = ""
    configuration.load()
    assert configuration.sources() == {}


def test_a_command_says_in_one_line_which_file_is_bad(tmp_path: Path) -> None:
    (tmp_path / "mpicoll.toml").write_text("MPICOLL_TABEL = 'x'")
    environment = {"MPICOLL_CONFIG": str(tmp_path / "mpicoll.toml"), "RANK": "1", "WORLD_SIZE": "2"}
    process = python("-m", "mpicoll", "bench", environment=environment)
    assert process.returncode == 2
    assert process.stdout == (
        f"Error: rank 1 on {os.uname().nodename}: {tmp_path}/mpicoll.toml: MPICOLL_TABEL is no "
        "variable of mpicoll: did you mean MPICOLL_TABLE?\n"
    )


def test_the_doctor_says_where_a_value_is_from(tmp_path: Path) -> None:
    (tmp_path / "mpicoll.toml").write_text("MPICOLL_REPRODUCIBLE = true")
    environment = {
        "MPICOLL_CONFIG": str(tmp_path / "mpicoll.toml"), NAME: "7", "COLUMNS": "200",
    }  # fmt: skip
    lines = python("-m", "mpicoll.doctor", environment=environment).stdout.splitlines()
    values = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in lines}
    assert values["configuration"] == f"{tmp_path}/mpicoll.toml"
    assert values["MPICOLL_REPRODUCIBLE"] == f"1 (from {tmp_path}/mpicoll.toml)"
    assert values[NAME] == "7 (from environment)"
