"""The modules that `torchcoll.run` imports beside torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from imported import OURS, modules_of, of_ours
from launcher import python

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


SERVING = 60
"""The most modules of ours that a group of one node, and its first call, have needed."""
UNUSED = (
    "mpicoll.collectives.", "mpicoll.lowering.", "mpicoll.algorithms.", "mpicoll.calls.binding.",
    "mpicoll.peers.", "mpicoll.gpu.", "torchcoll.transport.", "torchcoll.rendezvous.",
)  # fmt: skip
"""What methods, plans and other nodes need."""
FIRST_CALL = """
import sys
import torch, torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(3))
dist.all_reduce(torch.ones(3), async_op=True).wait()
if dist.get_rank() == 0:
    print(*sys.modules)
dist.destroy_process_group()
"""


@pytest.mark.launches
def test_calls_of_one_node_import_no_more_than_they_need(tmp_path: Path) -> None:
    (path := tmp_path / "program.py").write_text(FIRST_CALL)
    done = python(
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m",
        "torchcoll.run", str(path), merged=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    modules = of_ours(set(done.stdout.split()))
    assert [name for name in modules if f"{name}.".startswith(UNUSED)] == []
    assert "torchcoll.backend.channels" in modules
    assert len(modules) <= SERVING
