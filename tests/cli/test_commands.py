"""The commands under one name: `mpicoll` and `torchcoll`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import ModuleType

import pytest
from click.shell_completion import get_completion_class
from launcher import ROOT, python

import mpicoll.__main__
from mpicoll.cli.former import FORMER_NAMES

SCRIPT = """
import re, sys
from {package}.__main__ import main
if __name__ == "__main__":
    sys.argv[0] = re.sub(r"(-script.pyw|.exe)?$", "", sys.argv[0])
    sys.exit(main())
"""
"""The wrapper that pip writes."""
HEAVY = {"numpy", "mpi4py", "rich", "scipy", "msgspec", "mpicoll.engine", "mpicoll.bench"}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bin") / "mpicoll"
    path.write_text(SCRIPT.format(package="mpicoll"))
    return str(path)


def packages() -> dict[str, ModuleType]:
    modules = {"mpicoll": mpicoll.__main__}
    if pytest.importorskip("torch", reason="torchcoll imports torch"):
        import torchcoll.__main__

        modules["torchcoll"] = torchcoll.__main__
    return modules


@pytest.mark.parametrize("package", ["mpicoll", "torchcoll"])
def test_the_help_lists_every_command_of_a_package(package: str) -> None:
    sections = packages()[package].SECTIONS
    listed = {name for commands in sections.values() for name in commands}
    names = {path.parent.name for path in (ROOT / package).glob("*/__main__.py")}
    assert listed == names - {*FORMER_NAMES}
    assert len(listed) <= 14


def former_modules() -> set[str]:
    """Return the names of all modules that run a command under its former name."""
    texts = {path: path.read_text() for path in (ROOT / "mpicoll").rglob("*.py")}
    return {name for text in texts.values() for name in re.findall(r'run_former\("(.*)"\)', text)}


def test_every_former_name_has_its_module() -> None:
    assert former_modules() == {*FORMER_NAMES}


@pytest.mark.parametrize("start", ["-m mpicoll.{}", "-m mpicoll {}"])
@pytest.mark.parametrize("name", FORMER_NAMES)
def test_a_former_name_runs_its_command_after_a_warning(name: str, start: str) -> None:
    is_self_test = "." in name
    successor = "python -m tests.selftest." if is_self_test else "python -m mpicoll."
    process = python(*start.format(name).split(), "--help", merged=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("Usage: ")
    assert re.match(rf"Warning: mpicoll\.{name} is now {successor}\w+.*\n\Z", process.stderr)


def test_an_installed_package_says_where_a_self_test_is(tmp_path: Path) -> None:
    code = (
        "import pathlib, mpicoll.cli.former as former; "
        f"former._ROOT = pathlib.Path({str(tmp_path)!r}); former.run_former('selftest.soak')"
    )
    process = python("-c", code, merged=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("Error: mpicoll.selftest.soak is now python -m tests.selftest")


def test_the_help_names_every_command_in_one_line() -> None:
    output = python("-m", "mpicoll", environment={"COLUMNS": "80"}).stdout
    assert output == python("-m", "mpicoll", "--help", environment={"COLUMNS": "80"}).stdout
    lines = dict(re.findall(r"^  ([\w.]+)  +(.+)$", output, re.MULTILINE))
    assert output.startswith("Usage: mpicoll [OPTIONS] COMMAND\n")
    for commands in mpicoll.__main__.SECTIONS.values():
        assert commands.items() <= lines.items()


def test_the_help_imports_no_command_and_no_large_library() -> None:
    code = (
        "import sys; from mpicoll.__main__ import main; main(['--help'], standalone_mode=False); "
        f"print(sorted(set(sys.modules) & {HEAVY!r}))"
    )
    assert python("-c", code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("start", ["module", "script"])
def test_a_command_runs_under_the_one_name(script: str, start: str) -> None:
    first = (script,) if start == "script" else ("-m", "mpicoll")
    environment = {"PYTHONPATH": str(ROOT)}
    process = python(*first, "explain", "barrier", environment=environment)
    assert process.returncode == 0
    assert process.stdout == python("-m", "mpicoll.explain", "barrier").stdout
    usage = python(*first, "bench", "--sizez", "1", environment=environment)
    assert usage.returncode == 2
    assert usage.stdout.startswith("Usage: mpicoll bench [OPTIONS]")


def test_a_module_by_itself_keeps_its_name_in_messages() -> None:
    assert python("-m", "mpicoll.bench", "-h").stdout.startswith("Usage: python -m mpicoll.bench ")


def test_a_program_is_found_in_the_current_folder(script: str, tmp_path: Path) -> None:
    """As ``python -m`` finds it, though a script does not put the folder on the path."""
    (tmp_path / "program.py").write_text("import sys; print(sys.argv[1:], sys.path[0])")
    code = (
        f"import os, runpy, sys; os.chdir({str(tmp_path)!r}); sys.argv = ['mpicoll', 'run', '-m', "
        f"'program', '7']; runpy.run_path({script!r}, run_name='__main__')"
    )
    process = python("-c", code, environment={"PYTHONPATH": str(ROOT)})
    assert process.stdout == f"['7'] {tmp_path}\n"


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_rank_names_an_unknown_command(rank: int) -> None:
    environment = {"PMI_RANK": str(rank), "PMI_SIZE": "2"}
    process = python("-m", "mpicoll", "benhc", environment=environment)
    assert process.returncode == 2
    assert ("Error: No such command 'benhc'" in process.stdout) == (rank == 0)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("mpicoll bnech", "No such command 'bnech'. Did you mean 'bench'?"),
        ("mpicoll xyz", "No such command 'xyz'."),
        ("mpicoll --verson", "No such option '--verson'. Did you mean '--version'?"),
        ("mpicoll --bogus", "No such option '--bogus'."),
        ("mpicoll costs --bogus", "No such option '--bogus'."),
        (
            "mpicoll costs --topologi a",
            "No such option '--topologi'. Did you mean '--topology'?",
        ),
        ("mpicoll tune export --bogus", "No such option '--bogus'."),
        ("torchcoll tnue", "No such command 'tnue'. Did you mean 'tune'?"),
    ],
)
def test_a_misspelled_word_is_named_with_the_word_that_is_alike(words: str, hint: str) -> None:
    if words.startswith("torchcoll"):
        pytest.importorskip("torch", reason="torchcoll imports torch")
    process = python("-m", *words.split())
    assert process.returncode == 2
    assert process.stdout.splitlines()[-1] == f"Error: {hint}"


def test_versions_name_mpicoll_mpi_torch_and_the_executor() -> None:
    lines = python("-m", "mpicoll", "--version").stdout.splitlines()
    assert lines[0] == f"mpicoll {mpicoll.__version__}"
    assert [line.split()[0] for line in lines[1:]] == ["Python", "MPI:", "torch:", "executor:"]
    assert lines[4].startswith("executor: compiled (")


COMPLETIONS = {
    "be": {"bench"},
    "--v": {"--version"},
    "bench --algo": {"--algorithms", "--algorithm"},
    "bench --timing ": {"together", "loop", "0", "1"},
}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("words", COMPLETIONS)
def test_a_shell_completes_commands_and_flags(
    shell: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, _, incomplete = words.rpartition(" ")
    is_fish = shell == "fish"
    monkeypatch.setenv("COMP_WORDS", f"mpicoll {begin if is_fish else words}")
    monkeypatch.setenv("COMP_CWORD", incomplete if is_fish else str(words.count(" ") + 1))
    make = get_completion_class(shell)
    assert make is not None
    completion = make(mpicoll.__main__.main, {}, "mpicoll", "_MPICOLL_COMPLETE")
    assert set(re.split(r"[\n\t,]", completion.complete())) >= COMPLETIONS[words]


def test_the_script_answers_a_shell(script: str) -> None:
    environment = {
        "_MPICOLL_COMPLETE": "bash_complete", "COMP_WORDS": "mpicoll doct", "COMP_CWORD": "1",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    assert python(script, environment=environment).stdout == "plain,doctor\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documentation_has_the_line_of_each_shell(shell: str) -> None:
    documented = (ROOT / "mpicoll" / "docs" / "reference" / "command_line.md").read_text()
    assert f"_MPICOLL_COMPLETE={shell}_source mpicoll" in documented


def test_a_missing_torch_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    process = python("-m", "torchcoll", "--help", environment={"PYTHONPATH": path})
    assert process.returncode == 2
    assert process.stdout == "Error: torchcoll needs torch: pip install 'mpicoll[torch]'\n"


@pytest.mark.parametrize("module", ["mpicoll", "mpicoll.costs"])
def test_an_interrupt_while_a_command_is_imported_has_one_line(tmp_path: Path, module: str) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    process = python("-m", module, "--help", environment={"PYTHONPATH": path})
    assert (process.returncode, process.stdout) == (130, "Error: interrupted\n")
