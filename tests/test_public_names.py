"""The stable names are those of a list, so that nobody removes one without a decision."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from stable_names import stable_modules

LIST = Path(__file__).with_name("public_names.txt")


def test_the_public_names_are_those_of_the_list() -> None:
    pytest.importorskip("mpi4py")
    pytest.importorskip("torch")
    names = [
        f"{module}.{name}" for module in stable_modules() for name in import_module(module).__all__
    ]
    assert LIST.read_text("utf-8").splitlines() == sorted(names), (
        "a removed name needs a release that warns, and a new one a line in the list"
    )
