"""The documentation is true: examples run, links and paths lead somewhere, commands take flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from launcher import ROOT, mpirun, python, ranks
from pages import Folder, blocks_of, is_like

RANKS = 2
FOLDERS = ("mpicoll", "torchcoll", "jobs", "tests")
DOCUMENTS = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md",
    *sorted(each for folder in FOLDERS for each in (ROOT / folder).rglob("*.md")),
]  # fmt: skip
DOCS = ROOT / "mpicoll" / "docs"
YOURS = {"jobs/setup.sh", "my_algorithms.py"}
"""Files that a user may write."""
_PATH = r"`([\w./-]+\.(?:py|toml|sh|sbatch|md)|\.?[\w.-]+/[\w./-]*)`"
_COMMAND = r"-m ((?:mpicoll|torchcoll)(?:\.\w+)*)([^`|>#&\n]*)"

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


# -- examples -----------------------------------------------------------------------------


def example(package: str, folder: Path) -> str:
    """Write the block of the front page that imports a package to a file; return its path."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (found,) = [block for block in blocks if f"import {package}\n" in block]
    (folder / "example.py").write_text(found)
    return str(folder / "example.py")


def check(output: str, returncode: int) -> None:
    assert returncode == 0, output
    found = set(re.findall(r"rank (\d+) of (\d+)", output))
    assert found == {(str(rank), str(RANKS)) for rank in range(RANKS)}, output


@pytest.mark.launches
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_the_example_of_mpicoll_runs_under_mpirun(tmp_path: Path) -> None:
    done = ranks(RANKS, example("mpicoll", tmp_path), environment={"PYTHONPATH": str(ROOT)})
    check(done.stdout, done.returncode)


@pytest.mark.launches
def test_the_example_of_torchcoll_runs_under_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", str(RANKS))
    path = {"PYTHONPATH": str(ROOT)}
    done = python(*torchrun, example("torchcoll", tmp_path), environment=path)
    check(done.stdout, done.returncode)


@pytest.mark.launches
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_the_front_page_shows_what_its_commands_print(tmp_path: Path) -> None:
    """Numbers and signs may differ; the programs are those of the pages."""
    folder = Folder(tmp_path)
    commands = [
        command
        for block in blocks_of(ROOT / "README.md") if block.language == "console"
        for command in block.commands()
    ]  # fmt: skip
    assert len(commands) == 2
    for command, expected in commands:
        output, status = folder.run(command)
        assert status == 0, output
        assert is_like(expected, output), f"$ {command}\n{output}"


@each_document
def test_examples_are_python_and_run_by_themselves(document: Path, tmp_path: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        compile(block, str(document), "exec")
        is_elsewhere = document.parent == ROOT or DOCS in document.parents  # `tests/docs`
        if re.search(r"^(from|import) mpicoll", block, re.M) and not is_elsewhere:
            (tmp_path / "example.py").write_text(block)
            done = python(str(tmp_path / "example.py"), environment={"PYTHONPATH": str(ROOT)})
            assert done.returncode == 0, done.stdout


# -- links, paths and commands ------------------------------------------------------------


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        found = (document.parent / path).resolve() if path else document
        assert found.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(found), f"{target} has no such heading"


@each_document
def test_named_paths_exist(document: Path) -> None:
    for path in set(re.findall(_PATH, document.read_text())) - YOURS:
        assert exists(path, document.parent), f"{path} does not exist"


@each_document
def test_named_commands_exist_and_take_their_flags(document: Path) -> None:
    for module, flags in commands(document.read_text()):
        if module.startswith("torchcoll") and find_spec("torch") is None:
            continue
        spec = find_spec(module)
        assert spec is not None, f"there is no {module}"
        assert not spec.submodule_search_locations or find_spec(f"{module}.__main__"), module
        if flags:
            assert flags <= accepted(module), f"{module} has no {flags - accepted(module)}"


def test_the_front_page_of_the_package_links_every_folder_with_a_readme() -> None:
    text = (ROOT / "mpicoll" / "README.md").read_text()
    readmes = [f"{path.parent.name}/README.md" for path in (ROOT / "mpicoll").glob("*/README.md")]
    assert [name for name in readmes if f"]({name})" not in text] == []


def test_a_broken_document_is_noticed() -> None:
    assert not exists("mpicoll/nowhere.py", ROOT)
    assert not exists("nowhere.py", ROOT)
    assert exists("plan.py", ROOT / "mpicoll" / "runtime")
    line = "`mpirun -n 4 python -m mpicoll.hosts --rate 1 -- -m mpicoll.bench -b 4 --sizez 4`"
    assert list(commands(line)) == [
        ("mpicoll.hosts", {"--rate"}), ("mpicoll.bench", {"-b", "--sizez"})
    ]  # fmt: skip
    assert "--sizez" not in accepted("mpicoll.bench")
    assert "--sizes" in accepted("mpicoll.bench")
    assert anchors(ROOT / "CONTRIBUTING.md") >= {"house-rules"}


def exists(path: str, folder: Path) -> bool:
    """Whether a path exists from the root or a folder; a bare name, anywhere in the packages."""
    if any((start / path).exists() for start in (ROOT, ROOT / "mpicoll", folder)):
        return True
    return "/" not in path and any(next((ROOT / each).rglob(path), None) for each in FOLDERS)


def commands(text: str) -> Iterator[tuple[str, set[str]]]:
    """Yield every module that is run with -m, and its flags."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"(?=-m (?:mpicoll|torchcoll))", line):
            for module, arguments in re.findall(_COMMAND, part):
                yield module.rstrip("."), set(re.findall(r"(?<!\S)--?[a-zA-Z][\w-]*", arguments))


@cache
def accepted(module: str) -> set[str]:
    """Return the flags that a command's help names; `mpicoll.run` leaves most to a program."""
    spec = find_spec(module)
    assert spec is not None
    place = f"{module}.__main__" if spec.submodule_search_locations else module
    main = import_module(place).main
    shown = (
        CliRunner().invoke(main, ["--help"]).output if isinstance(main, click.Command)
        else python("-m", module, "--help").stdout
    )  # fmt: skip
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", shown))


@cache
def anchors(document: Path) -> set[str]:
    """Return the headings of a document as GitHub links to them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
