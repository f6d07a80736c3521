"""The stable names are those of a list, so that nobody removes one without a decision."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from launcher import ROOT

LIST = Path(__file__).with_name("public_names.txt")


def stable_modules() -> list[str]:
    """Return the modules that the documentation calls stable."""
    text = (ROOT / "mpicoll" / "README.md").read_text("utf-8")
    (item,) = re.findall(r"the names in `__all__` of (.*?);", text, re.DOTALL)
    return re.findall(r"`((?:mpicoll|torchcoll)[\w.]*)`", item)


def test_the_public_names_are_those_of_the_list() -> None:
    pytest.importorskip("mpi4py")
    pytest.importorskip("torch")
    names = [
        f"{module}.{name}" for module in stable_modules() for name in import_module(module).__all__
    ]
    assert LIST.read_text("utf-8").splitlines() == sorted(names), (
        "a removed name needs a release that warns, and a new one a line in the list"
    )
