"""The recipes for other package managers ask for what `pyproject.toml` asks for."""

from __future__ import annotations

import re
import tomllib

import pytest
from launcher import ROOT

import mpicoll

RECIPES = ROOT / "jobs" / "recipes"
NAMES = {"msgspec-python": "msgspec"}
"""Names of conda-forge that differ from those of PyPI."""


def required() -> dict[str, str]:
    """Return the least version of each library, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return dict(requirement.split(">=") for requirement in project["dependencies"])


def test_conda_requires_the_same() -> None:
    text = (RECIPES / "conda" / "meta.yaml").read_text()
    run = text[text.index("\n  run:") : text.index("\ntest:")]
    versions = dict(re.findall(r"- ([\w-]+) >=([\d.]+)", run))
    assert {NAMES.get(name, name): version for name, version in versions.items()} == required()


def test_spack_requires_the_same() -> None:
    text = (RECIPES / "spack" / "package.py").read_text()
    versions = dict(re.findall(r'"py-([\w-]+)@([\d.]+):", type=\("build", "run"\)\)', text))
    assert versions == required()


@pytest.mark.parametrize("recipe", ["conda/meta.yaml", "spack/package.py"])
def test_a_recipe_builds_this_version(recipe: str) -> None:
    text = (RECIPES / recipe).read_text()
    assert re.search(r'version(?: = |\()"([\d.]+)"', text)[1] == mpicoll.__version__  # type: ignore[index]
