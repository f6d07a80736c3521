"""Programs of users, run in this process as Python would run them."""

from __future__ import annotations

import json
import pickle
import py_compile
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from mpicoll.cli import programs

PROGRAM = """
import json, sys
def f(): ...
main = sys.modules["__main__"]
facts = [__file__, sys.argv, sys.path[0], __name__, __package__, type(__loader__).__name__,
         __spec__ and __spec__.name, main.__dict__ is globals(),
         sorted({*globals()} - {"__annotations__"})]
if sys.argv[1:] == ["print"]:
    print(json.dumps(facts))
if sys.argv[1:] == ["raise"]:
    json.loads("no JSON")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program in every form; this process's own is put back afterwards."""
    (tmp_path / "script.py").write_text(PROGRAM)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(PROGRAM)
    with ZipFile(tmp_path / "archive", "w") as archive:
        archive.writestr("__main__.py", PROGRAM)
    py_compile.compile(str(tmp_path / "script.py"), str(tmp_path / "script.pyc"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    for name, value in (
        ("argv", sys.argv),
        ("path", ["", *sys.path]),
        ("excepthook", sys.excepthook),
    ):
        monkeypatch.setattr(sys, name, value)
    return tmp_path


FORMS = [("script.py",), ("script.pyc",), ("folder",), ("archive",), ("-m", "script")]


@pytest.mark.parametrize("arguments", FORMS)
def test_a_program_finds_what_it_finds_under_python(
    place: Path, arguments: tuple[str, ...]
) -> None:
    if arguments[0] == "-m":
        sys.path[0] = str(place)
    programs.run([*arguments, "here"])
    main = sys.modules["__main__"]
    assert pickle.loads(pickle.dumps(main.f)) is main.f, "a thread that outlives the program"
    process = subprocess.run(
        [sys.executable, *arguments, "print"], capture_output=True, text=True, check=True
    )
    expected = json.loads(process.stdout.replace('"print"', '"here"'))
    assert json.loads(json.dumps(main.facts)) == expected


@pytest.mark.parametrize("arguments", [(*form, "raise") for form in FORMS] + [("wrong.py",)])
def test_an_error_is_printed_as_python_prints_it(
    place: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "wrong.py").write_text("x = (\n")
    if arguments[0] == "-m":
        sys.path[0] = str(place)
    with pytest.raises((ValueError, SyntaxError)) as raised:
        programs.run(arguments)
    sys.excepthook(raised.type, raised.value, raised.tb)
    process = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert process.stderr == capsys.readouterr().err
