"""A part of mpi4py's own tests, run with our communicators: `tests/support/mpi4py_suite.py`.

They are in mpi4py's sdist alone, which `.ci/run` unpacks: ``MPI4PY_SOURCES`` says where.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mpi4py_suite import run_ranks

SOURCES = os.environ.get("MPI4PY_SOURCES", "")
MODULES = (
    "test_cco_vec.TestCCOVecWorld", "test_cco_vec.TestCCOVecInplaceWorld",
    "test_cco_obj.TestCCOObjWorld",
)  # fmt: skip


@pytest.mark.launches
@pytest.mark.skipif(not SOURCES, reason="MPI4PY_SOURCES does not name mpi4py's sdist, unpacked")
def test_mpi4pys_own_tests_pass_with_ours() -> None:
    outcomes = run_ranks(Path(SOURCES), 2, *MODULES, ours=True)
    assert len(outcomes) >= 27
    assert set(outcomes.values()) == {"ok"}, outcomes
