"""Every public name, and every public member of a class, has an example that runs.

The examples are doctests. A member has an example if its docstring has one, or if an example of its
class uses it.
"""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from launcher import ROOT
from sentences import docstrings, is_long, sentences
from stable_names import stable_modules

from mpicoll.backend import Request

WITHOUT = {
    "mpicoll.costs.Model": "a union of two classes, which have examples",
    "mpicoll.defaults.NAMES": "a tuple of texts",
    "mpicoll.notation.schedule.Op": "a union of four classes, which have examples",
    "mpicoll.notation.schedule.Round": "a type alias",
    "mpicoll.notation.schedule.Schedule": "a type alias",
    "mpicoll.Plan.fail": "internal: the executor calls it",
    "mpicoll.Plan.deadline": "internal: the executor calls it",
    "mpicoll.Plan.record": "internal: the flight recorder calls it",
    "mpicoll.Plan.without_arrays": "internal: the cache of plans calls it",
    "mpicoll.RankLost.raised": "internal: the flight recorder sets it",
}
"""The names without an example, with the reason."""
SAME_AS_MPI = ("mpicoll.Comm", "mpicoll.mpi.communicator.Comm", "mpicoll.mpi.communicator.CartComm")
"""Classes whose methods mpi4py documents: programs call them as before."""


@cache
def public_objects() -> dict[str, Any]:
    """Return each stable name with its object, once for each object."""
    objects: dict[str, Any] = {"mpicoll.backend.Request": Request}  # what public methods return
    for module in stable_modules():
        for name in import_module(module).__all__:
            value = getattr(import_module(module), name)
            if not isinstance(value, ModuleType) and all(
                value is not old for old in objects.values()
            ):
                objects[f"{module}.{name}"] = value
    return objects


def members(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and docstrings of the public members that this project defines.

    A public base class documents the members that it has.
    """
    if not inspect.isclass(value) or name in SAME_AS_MPI:
        return
    public_bases = [base for base in value.__mro__[1:] if base in public_classes()]
    for base in value.__mro__:
        if base.__module__.partition(".")[0] not in ("mpicoll", "torchcoll"):
            continue
        for member, attribute in vars(base).items():
            function = getattr(attribute, "fget", getattr(attribute, "__func__", attribute))
            function = getattr(attribute, "func", function)
            is_documented = any(hasattr(parent, member) for parent in public_bases)
            if not member.startswith("_") and callable(function) and not is_documented:
                yield member, function.__doc__ or ""


def public_classes() -> list[type]:
    return [value for value in public_objects().values() if inspect.isclass(value)]


def has_example(text: str) -> bool:
    return ">>> " in text


def without_example() -> Iterator[str]:
    """Yield the names without an example."""
    for name, value in public_objects().items():
        text = inspect.getdoc(value) or ""
        if not has_example(text):
            yield name
        examples = "\n".join(re.findall(r"^(?:>>>|\.\.\.) .*$", text, re.MULTILINE))
        for member, member_text in members(name, value):
            if not has_example(member_text) and not re.search(rf"\.{member}\b", examples):
                yield f"{name}.{member}"


@cache
def missing() -> set[str]:
    pytest.importorskip("mpi4py")
    pytest.importorskip("torch")
    return {*without_example()}


def test_every_public_name_has_an_example() -> None:
    assert missing() - WITHOUT.keys() == set()


def test_a_reason_is_needed() -> None:
    assert WITHOUT.keys() - missing() == set()


@pytest.mark.parametrize("package", ["mpicoll", "torchcoll"])
def test_few_sentences_of_docstrings_are_long(package: str) -> None:
    texts = [
        sentence
        for path in (ROOT / package).rglob("*.py")
        for text in docstrings(path.read_text())
        for sentence in sentences(text)
    ]
    assert sum(is_long(text, 30) for text in texts) <= 0.02 * len(texts)


@pytest.mark.parametrize("module", ["mpicoll.mpi.communicator.classes"])
def test_examples_that_need_mpi_run(module: str) -> None:
    """pytest-mpi skips the doctests of a folder with the name mpi."""
    pytest.importorskip("mpi4py")
    result = doctest.testmod(import_module(module))
    assert result.attempted > 0 and result.failed == 0
