"""The entry point by which torch finds the backend."""

from __future__ import annotations

import pytest
from launcher import python

pytest.importorskip("torch")


IMPORT = """
import sys, torch
print(torch.distributed.Backend("torchcoll") in torch.distributed.Backend.backend_list)
print(*(name for name in ("mpicoll", "mpi4py", "torchcoll.launch") if name in sys.modules))
"""


def test_importing_torch_registers_it_and_imports_nothing_more(installed: dict[str, str]) -> None:
    done = python("-P", "-c", IMPORT, environment=installed)
    assert done.stdout.split() == ["True"], done.stdout
