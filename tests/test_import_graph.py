"""The imports of both packages, TYPE_CHECKING included: one way, and without a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COMMANDS = {
    f"mpicoll.{name}"
    for name in ("bench", "compare", "docs", "doctor", "explain", "hosts", "p2p", "postmortem",
                 "report", "run", "selftest", "study", "trace", "tune")
} | {"torchcoll.bench", "torchcoll.p2p", "torchcoll.run", "torchcoll.tune"}  # fmt: skip
BACKENDS = ("mpicoll.mpi", "torchcoll")


def modules() -> dict[str, Path]:
    """Return every module of both packages; a package is its ``__init__``."""
    found = {}
    for package in ("mpicoll", "torchcoll"):
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(name: str) -> Iterator[str]:
    """Yield the modules of both packages that one imports, at whatever depth."""
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


@cache  # once for the worker that runs these tests, and not wherever they are collected
def graph() -> dict[str, set[str]]:
    """Return the modules that each one imports."""
    return {name: set(imports(name)) - {name} for name in MODULES}


def room(name: str) -> str:
    """Return the folder of a module; files at the top are rooms of their own."""
    parts = name.split(".")
    folder = ".".join(parts[:2])
    return folder if len(parts) > 1 else name


def rooms() -> dict[str, set[str]]:
    """Return the graph between folders."""
    found: dict[str, set[str]] = {}
    for name, others in graph().items():
        found.setdefault(room(name), set()).update(map(room, others))
    return {name: others - {name} for name, others in found.items()}


@pytest.mark.parametrize("among", [graph, rooms], ids=["files", "folders"])
def test_no_circle(among: Callable[[], dict[str, set[str]]]) -> None:
    try:
        TopologicalSorter(among()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_no_module_imports_a_command() -> None:
    neutral = [name for name in MODULES
               if room(name) not in COMMANDS and not name.endswith("__main__")]  # fmt: skip
    found = {name: commands for name in neutral
             if (commands := {*map(room, graph()[name])} & COMMANDS)}  # fmt: skip
    assert found == {}


@pytest.mark.parametrize(("own", "other"), [BACKENDS, BACKENDS[::-1]])
def test_no_backend_imports_the_other(own: str, other: str) -> None:
    found = {name: each for name, imported in graph().items() if name.startswith(own)
             for each in imported if each.startswith(other)}  # fmt: skip
    assert found == {}


def documented_order() -> list[set[str]]:
    """Return the rooms of each row of the table in ``mpicoll/README.md``; commands come last."""
    text = (ROOT / "mpicoll" / "README.md").read_text()
    table = text[text.index("## Where things are") :]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][2:-1]
    names = [re.findall(r"`(\w+)(?:/|\.py)`", cell) for cell in cells]
    return [{each if each == "torchcoll" else f"mpicoll.{each}" for each in row} for row in names]


def test_folders_import_in_the_documented_order() -> None:
    above = set[str]()
    for row in documented_order():
        above |= row
        for name in row:
            later = {each for each in rooms()[name] if not _is_below(each, above)}
            assert not later, f"{name} imports {later}"
    assert len(above) > 20


def _is_below(room: str, above: set[str]) -> bool:
    return room in above or (room.startswith("torchcoll.") and room not in COMMANDS)


def test_the_graph_is_the_real_one() -> None:
    """Imports that only a type checker sees count, and those inside functions."""
    assert "mpicoll.backend" in graph()["mpicoll.collectives"]
    assert "mpicoll.mpi.launch" in graph()["mpicoll"] | graph()["mpicoll.threads"]
    assert len(graph()) > 150
    assert room("mpicoll.engine.plan") == "mpicoll.engine"
