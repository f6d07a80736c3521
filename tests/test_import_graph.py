"""The imports of both packages: one way, and without a circle.

Those in functions, of a type checker and by name, as of `importlib.import_module`, count as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
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


def imports(source: str) -> Iterator[str]:
    """Yield the modules of both packages that a text imports, at whatever depth."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Call):
            yield from _imports_by_name(node)


def _imports_by_name(call: ast.Call) -> Iterator[str]:
    """Yield the modules that a call imports by a function, or hands to one."""
    parts = [call.func, *call.args]
    words = {getattr(part, "attr", getattr(part, "id", "")) for part in parts}
    if words & {"import_module", "__import__"}:
        constants = (part.value for part in call.args if isinstance(part, ast.Constant))
        yield from (value for value in constants if value in MODULES)


@pytest.mark.parametrize(
    "source",
    [
        "import mpicoll.engine.plan",
        "def run():\n    from mpicoll.engine.plan import Plan",
        "def run():\n    from mpicoll.engine import plan",
        "if TYPE_CHECKING:\n    from mpicoll.engine.plan import Plan",
        "importlib.import_module('mpicoll.engine.plan').Plan",
        "load = lambda: import_module('mpicoll.engine.plan')",
        "load = partial(import_module, 'mpicoll.engine.plan')",
        "plan = __import__('mpicoll.engine.plan')",
    ],
)
def test_an_import_is_found(source: str) -> None:
    assert [*imports(source)] == ["mpicoll.engine.plan"]


@cache  # once for the worker that runs these tests, and not wherever they are collected
def graph() -> dict[str, set[str]]:
    """Return the modules that each one imports."""
    return {name: set(imports(path.read_text())) - {name} for name, path in MODULES.items()}


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
    # The package itself names the command that draws schedules for notebooks.
    neutral = [name for name in MODULES if name != "mpicoll"
               and room(name) not in COMMANDS and not name.endswith("__main__")]  # fmt: skip
    found = {name: commands for name in neutral
             if (commands := {*map(room, graph()[name])} & COMMANDS)}  # fmt: skip
    assert found == {}


@pytest.mark.parametrize(("own", "other"), [BACKENDS, BACKENDS[::-1]])
def test_no_backend_imports_the_other(own: str, other: str) -> None:
    found = {name: each for name, imported in graph().items() if name.startswith(own)
             for each in imported if each.startswith(other)}  # fmt: skip
    assert found == {}


def documented_order() -> list[str]:
    """Return the rooms in the order of the table in ``mpicoll/README.md``.

    The package itself comes before the commands, as only these use its names.
    """
    text = (ROOT / "mpicoll" / "README.md").read_text()
    table = text[text.index("## Where things are") :]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][2:]
    *folders, commands = [
        [name if name == "torchcoll" else f"mpicoll.{name}"
         for name in re.findall(r"`(\w+)(?:/|\.py)`", cell)]
        for cell in cells
    ]  # fmt: skip
    return [*chain.from_iterable(folders), "mpicoll", *commands]


def upward(arrows: dict[str, set[str]]) -> list[str]:
    """Return the arrows between folders that run against the documented order."""
    order = documented_order()
    place = {name: number for number, name in enumerate(order)}
    last = len(order)
    return [
        f"{name} -> {target}" for name in order for target in sorted(arrows.get(name, ()))
        if place.get(_whole(target), last) > place[name]
    ]  # fmt: skip


def _whole(target: str) -> str:
    is_part = target.startswith("torchcoll.") and target not in COMMANDS
    return "torchcoll" if is_part else target


def test_folders_import_in_the_documented_order() -> None:
    # The package itself names the command that draws schedules for notebooks.
    assert upward(rooms()) == ["mpicoll -> mpicoll.explain"]
    assert len(documented_order()) > 20


def test_an_arrow_against_the_order_is_found() -> None:
    arrows = {"mpicoll.flight": {"mpicoll.engine", "mpicoll.errors", "mpicoll.explain"}}
    assert upward(arrows) == [
        "mpicoll.flight -> mpicoll.engine",
        "mpicoll.flight -> mpicoll.explain",
    ]


def test_the_graph_is_the_real_one() -> None:
    """Imports that only a type checker sees count, and those inside functions."""
    assert "mpicoll.backend" in graph()["mpicoll.collectives"]
    assert "mpicoll.mpi.launch" in graph()["mpicoll"] | graph()["mpicoll.threads"]
    assert len(graph()) > 150
    assert room("mpicoll.engine.plan") == "mpicoll.engine"
