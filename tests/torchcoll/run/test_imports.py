"""The modules that `torchcoll.run` imports beside torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from imported import OURS, modules_of, of_ours

pytest.importorskip("torch")

START = [
    "mpicoll.cli.missing", "mpicoll.cli.programs", "mpicoll.errors",
    "mpicoll.machine.configuration", "mpicoll.machine.exits", "mpicoll.machine.launchers",
    "mpicoll.run.imports", "mpicoll.selection.forced", "mpicoll.text.numbers",
    "mpicoll.text.pictures", "mpicoll.threads",
    "torchcoll.backend.compiling", "torchcoll.backend.registration", "torchcoll.run",
]  # fmt: skip
"""The modules of ours that a program needs which does nothing."""


@pytest.mark.parametrize("program", ["", "import torch.distributed"])
def test_a_program_imports_few_modules(tmp_path: Path, program: str) -> None:
    (path := tmp_path / "program.py").write_text(program)
    modules = modules_of("-m", "torchcoll.run", str(path))
    assert of_ours(modules) == START
    added = modules - modules_of("-c", "import torch, torch.distributed")
    libraries = {name for name in added if name.partition(".")[0] not in OURS}
    assert {name for name in libraries if not name.startswith("__editable__")} <= {"runpy"}
