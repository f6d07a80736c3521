"""Each command and example of the documentation runs, and prints what its page shows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from launcher import ROOT, mpirun, python
from pages import BLOCKS, DOCS, PAGES, Block, Folder, blocks_of, is_like, launches, may_fail

NOT_RUN = {
    "needs Slurm": 5, "needs a launcher": 1, "needs a running job": 2, "needs root": 2,
    "needs several hosts": 3, "needs the network": 4, "takes minutes": 24,
    "it would remove the package that is tested": 2,
}  # fmt: skip
"""The blocks that no test runs, by reason. A new one needs a reason that holds."""


def _console() -> Iterator[object]:
    for number, block in enumerate(BLOCKS):
        if block.language == "console" and not block.reason:
            starts_ranks = any(launches(command) for command, _ in block.commands())
            marks = [pytest.mark.launches] if starts_ranks else []
            name = f"{block.page.relative_to(DOCS)}:{number}"
            yield pytest.param(block, id=name, marks=marks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("block", [*_console()])
def test_commands_print_what_the_page_shows(block: Block, folder: Folder) -> None:
    if "torch" in block.text:
        pytest.importorskip("torch")
    if "mpirun" in block.text and mpirun() is None:
        pytest.skip("no mpirun")
    for command, expected in block.commands():
        output, status = folder.run(command)
        assert status == 0 or may_fail(expected), output
        assert not expected or is_like(expected, output), f"$ {command}\n{output}"


RUN_ALL = """
import json, sys, traceback
if any("import torch" in text for texts in json.load(open(sys.argv[1])).values() for text in texts):
    import torch
    from torchcoll.backend.registration import register
    register()  # as the entry point of an installed package does
failures = {}
for page, texts in json.load(open(sys.argv[1])).items():
    names = {"__name__": "__main__"}
    try:
        for text in texts:
            exec(compile(text, page, "exec"), names)
    except BaseException:
        failures[page] = traceback.format_exc()
print("failures:", json.dumps(failures))
"""


@pytest.fixture(scope="module")
def failures(folder: Folder) -> dict[str, str]:
    """The errors of the Python examples by page: all run in one process."""
    texts = {
        str(page): [block.text for block in blocks_of(page)
                    if block.language == "python" and not (block.file_name or block.reason)
                    and (find_spec("torch") or "import torch" not in block.text)]
        for page in PAGES
    }  # fmt: skip
    (folder.path / "examples.json").write_text(json.dumps(texts))
    result = python("-c", RUN_ALL, str(folder.path / "examples.json"))
    assert "failures: " in result.stdout, result.stdout
    return dict(json.loads(result.stdout.rpartition("failures: ")[2]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_python_examples_run(page: Path, failures: dict[str, str]) -> None:
    assert str(page) not in failures, failures.get(str(page))


def test_blocks_that_are_not_run_are_counted() -> None:
    assert dict(Counter(block.reason for block in BLOCKS if block.reason)) == NOT_RUN


def test_every_block_has_a_language_that_is_tested() -> None:
    untested_blocks = [block for block in BLOCKS
              if block.language not in ("console", "python", "toml", "bibtex")
              and not block.language.startswith("{")]  # fmt: skip
    assert untested_blocks == []


def test_every_file_of_a_page_is_used() -> None:
    files = [block.file_name for block in BLOCKS if block.file_name]
    commands = " ".join(block.text for block in BLOCKS if block.language == "console")
    assert len(files) == len(set(files))
    assert [name for name in files if name not in commands] == []


@pytest.mark.parametrize(
    ("expected", "output", "fits"),
    [
        ("ring 1.5 us +", "ring   27 us ★", True),
        ("ring 1.5 us 2.1x +", "ring   27 us ~", True),
        ("ring 1.5 us", "tree 1.5 us", False),
        ("rank 0\n...\nend", "rank 0\nmore\nend", True),
        ("rank 0\n", "rank 0\nmore\n", False),
        (
            "it ran 2.0 (1.8 to 3) times as fast.",
            "it showed no sure difference, at 1.1 (0.9 to 2) times the speed.",
            True,
        ),
        (
            "a\nbcast at a.py:1   1   +2",
            "a\nSlower: Bcast at a.py:2.\nBcast at a.py:2  1  -2 ?",
            True,
        ),
    ],
)
def test_only_numbers_and_verdicts_may_differ(expected: str, output: str, fits: bool) -> None:
    assert is_like(expected, output) is fits


def test_folders_have_four_kinds_of_pages() -> None:
    kinds = {path.parent.name for path in PAGES} - {"docs"}
    assert kinds >= {"tutorials", "howto", "reference", "explanation"}
    assert (ROOT / "mpicoll" / "docs" / "index.md").exists()
