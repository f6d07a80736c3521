"""READMEs are short, as they are for maintainers: what users need stands in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launcher import ROOT
from pages import DOCS

MOST_LINES = 60
MOST_WORDS = 12_000
"""Words of all Markdown outside the documentation, without the changelog and printed output."""
_OUTPUT = re.compile(r"^```console.*?^```$", re.M | re.S)
READMES = [
    path
    for folder in ("mpicoll", "torchcoll", "jobs", "tests")
    for path in sorted((ROOT / folder).rglob("*.md"))
    if DOCS not in path.parents
]


@pytest.mark.parametrize("path", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_readme_of_a_folder_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_all_readmes_together_are_short() -> None:
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *READMES]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    words = {name: len(_OUTPUT.sub("", text).split()) for name, text in texts.items()}
    assert sum(words.values()) <= MOST_WORDS, words
