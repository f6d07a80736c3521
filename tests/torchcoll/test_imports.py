"""What `torchcoll` imports: never the other backend."""

from __future__ import annotations

import pkgutil

import pytest
from launcher import python

pytest.importorskip("torch")

import torchcoll


def test_no_module_imports_the_mpi4py_backend() -> None:
    """In a fresh interpreter, in which `mpicoll.mpi` cannot be imported."""
    modules = [each.name for each in pkgutil.walk_packages(torchcoll.__path__, "torchcoll.")]
    assert "torchcoll.transport" in modules
    code = f"import sys; sys.modules['mpicoll.mpi'] = None\nimport {', '.join(modules)}"
    done = python("-c", code)
    assert done.returncode == 0, done.stdout
