"""What a program sees of its interpreter: under a drop-in as under ``python``, but for a list."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from launcher import ROOT, SUPPORT, mpirun, python

PROBE = SUPPORT / "interpreter_state.py"
PAGE = (ROOT / "mpicoll" / "docs" / "howto" / "run_programs.md").read_text()
AT_START = {
    "main: stack": "frames below the program's", "sys: orig_argv": "`sys.orig_argv`",
    "sys: modules": "`sys.modules`", "sys: finders": "`sys.meta_path`",
    "library: at exit": "`atexit`",
}  # fmt: skip
"""What differs when a program starts, and its name in the documentation."""
FOR_TORCH = {"process: environment": "`os.environ`"}
AFTER_CALLS = {
    "process: descriptors": "descriptors", "process: system threads": "threads of the system",
    "library: faults": "`faulthandler`",
}  # fmt: skip
"""What differs after collective calls."""
AFTER_CALLS_OF_MPI = {**AFTER_CALLS, "library: copied": "`copyreg.dispatch_table`"}
OF_A_LAUNCH = ("TORCHELASTIC_", "MASTER_PORT")
"""Variables that no two launches share."""
Outcome = tuple[int, str, str]


@cache
def is_importable_in_isolation() -> bool:
    command = [sys.executable, "-I", "-c", "import mpicoll"]
    return subprocess.run(command, capture_output=True, cwd="/").returncode == 0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the probe in every form, and another with a link to it."""
    folder = tmp_path / "programs"
    (folder / "package" / "inner").mkdir(parents=True)
    (folder / "folder").mkdir()
    for path in ("script.py", "folder/__main__.py", "package/__main__.py", "package/inner/leaf.py"):
        shutil.copy(PROBE, folder / path)
    (folder / "package" / "__init__.py").write_text("import sys; FIRST = list(sys.argv)\n")
    with ZipFile(folder / "archive.zip", "w") as archive:
        archive.write(PROBE, "__main__.py")
    py_compile.compile(str(folder / "script.py"), str(folder / "compiled.pyc"))
    (tmp_path / "link.py").symlink_to("programs/script.py")
    return folder


def run(folder: Path, *command: str, text: str = "") -> Outcome:
    """Run Python in a folder; return its status and both outputs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON_COLORS": "0"}
    process = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, input=text, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    return process.returncode, process.stdout, process.stderr


def state_of(outcome: Outcome) -> dict[str, Any]:
    status, output, errors = outcome
    assert (status, errors) == (0, ""), errors
    state: dict[str, Any] = json.loads(output)
    return state


def check(plain: dict[str, Any], ours: dict[str, Any], expected: dict[str, str]) -> None:
    """Fail if something differs that may not, or in another way than it may."""
    for state in (plain, ours):
        variables = state["process: environment"]
        for name in [name for name in variables if name.startswith(OF_A_LAUNCH)]:
            del variables[name]
    assert plain.keys() == ours.keys()
    assert {name for name in plain if plain[name] != ours[name]} == set(expected)
    assert ours["sys: finders"][1:] == plain["sys: finders"]
    assert set(plain["sys: modules"]) <= set(ours["sys: modules"])
    if "process: environment" in expected:
        added = {"TORCHCOLL_AS_GLOO": "1"}
        assert ours["process: environment"] == plain["process: environment"] | added


FORMS = [
    ("script.py",), ("./script.py",), ("../programs/script.py",), ("../link.py",),
    ("compiled.pyc",), ("folder",), ("./folder/",), ("archive.zip",), ("-m", "script"),
    ("-m", "package"), ("-m", "package.inner.leaf"), ("-c", PROBE.read_text()),
]  # fmt: skip
FLAGS: list[tuple[str, ...]] = [
    (), ("-P",), ("-I",), ("-O", "-B", "-W", "ignore", "-X", "utf8", "-X", "faulthandler"),
]  # fmt: skip


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: " ".join(form)[:20])
def test_a_program_sees_the_same_interpreter(
    place: Path, form: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    if flags == ("-I",) and not is_importable_in_isolation():
        pytest.skip("mpicoll is not installed")
    arguments = (*form, "none", "-x", "--", "-m")
    plain = run(place, *flags, *arguments)
    ours = run(place, *flags, "-m", "mpicoll.run", *arguments)
    if form[0] == "-m" and flags in (("-P",), ("-I",)):
        assert plain[0] == 1 and ours[0] == 2, "the current folder is not searched"
        return
    check(state_of(plain), state_of(ours), AT_START)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("form", FORMS, ids=lambda form: " ".join(form)[:20])
def test_a_program_for_torch_sees_the_same_interpreter(place: Path, form: tuple[str, ...]) -> None:
    plain = run(place, *form)
    ours = run(place, "-m", "torchcoll.run", *form)
    check(state_of(plain), state_of(ours), AT_START | FOR_TORCH)


def test_the_command_line_program_runs_modules_of_the_current_folder(place: Path) -> None:
    command = Path(sys.executable).parent / "mpicoll"
    if not command.exists():
        pytest.skip("mpicoll is not installed")
    plain, ours = run(place, "-m", "script"), run(place, str(command), "run", "-m", "script")
    check(state_of(plain), state_of(ours), AT_START)


def test_a_file_beside_the_program_hides_no_module_of_python_in_safe_mode(place: Path) -> None:
    (place / "statistics.py").write_text("raise SystemExit('it is imported')")
    (place / "program.py").write_text("import statistics; print(statistics.mean([1, 3]))")
    for flags in ((), ("-P",)):
        plain = run(place, *flags, "program.py")
        assert run(place, *flags, "-m", "mpicoll.run", "program.py") == plain
    assert plain[1] == "2\n"


def test_a_program_runs_in_a_folder_that_has_been_removed(place: Path) -> None:
    code = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, sys.argv[1:])"
    states = []
    for drop_in in ((), ("-m", "mpicoll.run")):
        (gone := place / "gone").mkdir()
        script = ("-c", "import sys; print(sys.path)")
        states.append(run(gone, "-P", "-c", code, sys.executable, *drop_in, *script))
    assert states[0] == states[1] and states[0][0] == 0


ENDS = {
    "nothing": "",
    "no status": "sys.exit()",
    "a status": "sys.exit(3)",
    "a large status": "sys.exit(259)",
    "a negative status": "sys.exit(-1)",
    "a truth": "sys.exit(True)",
    "a text": "sys.exit('a text')",
    "an object": "sys.exit([1, 2])",
    "an error": "1 / 0",
    "an error of a module": "import json; json.loads('no JSON')",
    "a chain": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('two')",
    "a group": "raise ExceptionGroup('several', [ValueError(1), KeyError(2)])",
    "an error of its own": "class Wrong(Exception): pass\nraise Wrong('here')",
    "an interrupt": "raise KeyboardInterrupt",
    "a hook": "def hook(kind, error, trace):\n"
    "    import traceback\n"
    "    print(traceback.format_exception(kind, error, trace))\n"
    "    print(sys.excepthook is hook, error.__traceback__ is trace)\n"
    "sys.excepthook = hook\n1 / 0",
    "a failing hook": "sys.excepthook = lambda *error: error[7]\n1 / 0",
    "a hook that leaves": "sys.excepthook = lambda *error: sys.exit(4)\n1 / 0",
    "the last error": "import atexit, traceback\n"
    "atexit.register(lambda: traceback.print_tb(sys.last_traceback))\n1 / 0",
    "functions at exit": "import atexit\n"
    "for number in range(3):\n    atexit.register(print, 'at exit', number)",
    "a hook at exit": "import atexit\n"
    "atexit.register(lambda: print(sys.excepthook is sys.__excepthook__))\nsys.exit(1)",
    "a thread": "import threading, time\n"
    "thread = threading.Thread(target=lambda: (threading.main_thread().join(), print('later')))\n"
    "thread.start()\nprint('first')",
    "a failing thread": "import threading\nthread = threading.Thread(target=lambda: 1 / 0)\n"
    "thread.start()\nthread.join()",
    "an object at the end": "class Last:\n    def __del__(self):\n"
    "        print('last', name)\nname, last = 'a name', Last()",
    "a warning": "import warnings\nwarnings.warn('old', DeprecationWarning)\n"
    "warnings.warn('odd')\nwarnings.warn('ignored', PendingDeprecationWarning)",
    "wrong syntax": "x = (",
    "wrong letters": "# coding: ascii\nx = '\u00e9'",
    "letters": "# coding: latin-1\nprint(ascii('\u00e9'))",
    "a future": "x: undefined_name = 1\nprint(__annotations__)",
}
"""Ends of programs, by their kind."""


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("form", [("program.py",), ("-m", "program"), ("-c",)], ids=" ".join)
def test_a_program_ends_as_by_itself(place: Path, form: tuple[str, ...], kind: str) -> None:
    source = f"import sys\n{ENDS[kind]}\n"
    (place / "program.py").write_text(source)
    if form == ("-c",):
        form = ("-c", source)
    plain, ours = run(place, *form), run(place, "-m", "mpicoll.run", *form)
    assert ours == plain


@pytest.mark.parametrize("kind", ["nothing", "a status", "an error", "a hook", "an interrupt"])
@pytest.mark.parametrize("form", [("program.py",), ("-m", "program")], ids=" ".join)
def test_an_interactive_interpreter_goes_on(place: Path, form: tuple[str, ...], kind: str) -> None:
    (place / "program.py").write_text(f"import sys\nx = 7\n{ENDS[kind]}\n")
    text = "print(x, __name__)\nimport sys\nsys.excepthook = sys.__excepthook__\n1 / 0\n"
    plain = run(place, "-i", *form, text=text)
    ours = run(place, "-i", "-m", "mpicoll.run", *form, text=text)
    assert ours == plain and "7 __main__" in plain[1]


@pytest.mark.launches
def test_a_program_sees_little_of_collective_calls_of_mpi() -> None:
    launcher = mpirun()
    assert launcher is not None
    states = [
        state_of((done.returncode, done.stdout, done.stderr))
        for drop_in in ((), ("-m", "mpicoll.run"))
        for done in [
            python(*drop_in, str(PROBE), "mpi", prefix=(launcher, "-n", "2"), merged=False)
        ]
    ]
    check(*states, AT_START | AFTER_CALLS_OF_MPI)
    plain, ours = (state["library: copied"] for state in states)
    assert set(ours) - set(plain) == {"mpi4py.MPI.Intracomm"}


@pytest.mark.launches
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_program_sees_little_of_collective_calls_of_torch() -> None:
    states = []
    for drop_in in ((), ("-m", "torchcoll.run")):
        launch = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
        done = python(
            *launch, *drop_in, str(PROBE), "torch", merged=False,
            environment={"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        states.append(state_of((done.returncode, done.stdout, "")))
    check(*states, AT_START | FOR_TORCH | AFTER_CALLS)


THREADS = """
import os
os.environ["OMP_NUM_THREADS"] = "2"
import torch
print(torch.get_num_threads())
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torch_reads_the_variables_that_a_program_sets_before_its_import(tmp_path: Path) -> None:
    (path := tmp_path / "program.py").write_text(THREADS)
    variables = {"OMP_NUM_THREADS": "1"}
    plain, ours = (
        python(*drop_in, str(path), environment=variables, merged=False).stdout
        for drop_in in ((), ("-m", "torchcoll.run"))
    )
    assert ours == plain != ""


@pytest.mark.parametrize("name", {**AT_START, **FOR_TORCH, **AFTER_CALLS_OF_MPI}.values())
def test_the_documentation_names_all_that_differs(name: str) -> None:
    _, _, section = PAGE.partition("\n## Know what the program sees\n")
    assert f"| {name} |" in section.partition("\n## ")[0]
