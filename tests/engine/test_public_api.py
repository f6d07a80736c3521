"""The extension uses no private part of Python, so that one source builds for every version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mpicoll

ROOT = Path(mpicoll.__file__).parents[1]
SOURCES = sorted(
    path for name in ("mpicoll", "torchcoll") for path in (ROOT / name).rglob("*.[ch]")
)
PRIVATE = re.compile(r"\bPy_BUILD_CORE\w*|\binternal/|\bpycore_\w+|\b_Py\w*|->native_thread_id")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_a_source_names_nothing_private(source: Path) -> None:
    assert not PRIVATE.findall(source.read_text())
