"""The numbers that Python and C share: C has them, and Python reads them from the extension."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mpicoll.c_extension import _compiled
from mpicoll.engine import compiled
from mpicoll.memory import mailbox

ROOT = Path(__file__).parents[2]
PACKAGES = "mpicoll", "torchcoll"
SAME_NAMES = (
    (compiled, ["COPY", "FOLD", "DIVIDE", "RAISE", "AWAIT", "FETCH", "VERIFY", "CALL", "POLL"]),
    (compiled, ["CACHED", "STREAMED", "ADAPTIVE", "INPUT", "OUTPUT"]),
    (mailbox, ["LAST_STATED", "HAS_ENDED", "UNDER_WAY", "NO_CALL", "PYTHON_CALL", "PYTHON_ROUND"]),
)
OTHER_NAMES = (
    (compiled, "_COLUMNS", "COLUMNS"), (mailbox, "_LENGTH", "LINE_LENGTH"),
    (mailbox, "_DIGEST", "LINE_DIGEST"),
)  # fmt: skip
SHARED = [*OTHER_NAMES, *((module, name, name) for module, names in SAME_NAMES for name in names)]
UNRELATED = {
    "mpicoll/cli/ending.py": {"FAILED", "REFUSED", "CLOSED"},  # exit statuses
    "mpicoll/flight/layout.py": {"ROWS"},  # of a file
    "mpicoll/tuning.py": {"YIELDS", "YIELD_NS"},  # of waits that Python states
}
"""Names of Python that mean something else in C."""


def enumerators() -> set[str]:
    """Return the names of all numbers that the headers of C enumerate."""
    text = "\n".join(
        path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.h")
    )
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return {
        name
        for body in re.findall(r"enum \w*\s*\{(.*?)\}", text, re.DOTALL)
        for name in re.findall(r"(?:^|,)\s*([A-Z]\w+)", body)
    }


def literals(path: Path) -> Iterator[str]:
    """Yield the names at the top of a module that are bound to numbers written there."""
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            parts = [*ast.walk(statement.value)]
            has_number = any(type(getattr(part, "value", None)) is int for part in parts)
            reads = any(isinstance(part, ast.Attribute | ast.Subscript) for part in parts)
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets if has_number and not reads else ():
                yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


@pytest.mark.parametrize(("module", "name", "number"), SHARED)
def test_python_reads_the_number_of_c(module: ModuleType, name: str, number: str) -> None:
    assert getattr(module, name) == getattr(_compiled, number)


@pytest.mark.parametrize("package", PACKAGES)
def test_python_has_no_copy_of_a_number_of_c(package: str) -> None:
    names = enumerators()
    assert {"COPY", "UNDER_WAY", "LINE_LENGTH", "INPUT_ROWS"} <= names
    copies = {
        (place, name)
        for path in (ROOT / package).rglob("*.py")
        for name in literals(path)
        if name in names
        and name not in UNRELATED.get(place := path.relative_to(ROOT).as_posix(), ())
    }
    assert copies == set()


def test_the_stub_names_the_numbers_of_the_module() -> None:
    stub = ast.parse((ROOT / "mpicoll" / "engine" / "_compiled.pyi").read_text())
    stated = {
        node.target.id: ast.unparse(node.annotation)
        for node in stub.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    numbers = {
        name: type(value).__name__
        for name, value in vars(_compiled).items()
        if isinstance(value, int | str) and not name.startswith("_")
    }
    assert numbers == stated
