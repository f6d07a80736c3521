"""Whether an MPI library reads GPU memory itself, for libraries of every kind.

pytest-mpi takes a folder called ``mpi`` for its mark, and skips what is there.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mpicoll.mpi import gpu_trial
from mpicoll.mpi.gpu_awareness import GpuAwareness


class Library:
    """An MPI library with the extensions that are given."""

    def __init__(self, **functions: Callable[..., int]) -> None:
        self.__dict__.update(functions)


def mpich(answer: int, status: int = 0) -> Callable[..., int]:
    def query(kind: int, result: Any) -> int:
        assert kind == 0
        ctypes.cast(result, ctypes.POINTER(ctypes.c_int))[0] = answer
        return status

    return query


YES, NO = Library(MPIX_Query_cuda_support=lambda: 1), Library(MPIX_Query_cuda_support=lambda: 0)
CRAY = "MPI VERSION    : CRAY MPICH version 8.1.29.8 (ANL base 3.4a2)"


@pytest.mark.parametrize(
    ("library", "version", "variables", "aware", "reason"),
    [
        (YES, "Open MPI v5.0.11", {}, True, "MPIX_Query_cuda_support() says yes"),
        (NO, "Open MPI v5.0.11", {}, False, "MPIX_Query_cuda_support() says no"),
        (Library(MPIX_GPU_query_support=mpich(1)), "MPICH Version: 5.0.2", {}, True, "says yes"),
        (Library(MPIX_GPU_query_support=mpich(0)), "MPICH Version: 5.0.2", {}, False, "says no"),
        (Library(MPIX_GPU_query_support=mpich(1, 15)), "MPICH", {}, False, "no GPU support"),
        (Library(), "MPICH Version: 3.4", {}, False, "MPICOLL_GPU_AWARE=1 overrides"),
        (Library(), CRAY, {"MPICH_GPU_SUPPORT_ENABLED": "1"}, True, "_ENABLED=1"),
        (Library(), CRAY, {"MPICH_GPU_SUPPORT_ENABLED": "0"}, False, "_ENABLED=0"),
        (Library(), "MVAPICH2 Version: 2.3.7", {"MV2_USE_CUDA": "1"}, True, "MV2_USE_CUDA=1"),
        (Library(), "Intel(R) MPI Library 2021", {"I_MPI_OFFLOAD": "1"}, True, "I_MPI_OFFLOAD"),
        (Library(), "MPICH Version: 5.0.2", {"MV2_USE_CUDA": "1"}, False, "no GPU support"),
        (NO, "Open MPI", {"MPICOLL_GPU_AWARE": "1"}, True, "MPICOLL_GPU_AWARE=1"),
        (YES, "Open MPI", {"MPICOLL_GPU_AWARE": "0"}, False, "MPICOLL_GPU_AWARE=0"),
    ],
)
def test_awareness(
    library: Any, version: str, variables: dict[str, str], aware: bool, reason: str
) -> None:
    found = GpuAwareness.ask(library, version, variables)
    assert found.aware is aware
    assert reason in found.reason


def test_one_rank_that_cannot_binds_all() -> None:
    """Messages of two ranks must go one way."""
    yes, no = GpuAwareness(True, "yes"), GpuAwareness(False, "no")
    assert GpuAwareness.agreed([yes, no, yes]) == no
    assert GpuAwareness.agreed([yes, yes]) == yes


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("print('begun')", ""),
        ("raise SystemExit('no MPI')", ""),
        ("print('begun', flush=True); import os; os.kill(os.getpid(), 11)", "signal 11"),
        ("print('begun'); assert False, 'wrong values'", "AssertionError: wrong values"),
    ],
)
def test_a_trial_tells_what_becomes_of_gpu_memory(code: str, says: str) -> None:
    """A child that does not come as far proves nothing."""
    assert gpu_trial.run([sys.executable, "-c", code], os.environ) == says


def test_a_trial_that_does_not_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell begins within milliseconds, so that the limit passes in its sleep."""
    monkeypatch.setattr(gpu_trial, "_SECONDS", 2.0)
    command = ["sh", "-c", "echo begun; exec sleep 1000"]
    assert gpu_trial.run(command, os.environ) == "no end within 2 s"


@pytest.mark.parametrize(("why", "aware"), [("", True), ("signal 11", False)])
def test_what_only_the_build_says_is_tried_first(
    why: str, aware: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_trial, "obstacle", lambda gpu: why)
    claim = GpuAwareness.ask(YES, "Open MPI v5.0.11", {})
    found = claim.try_on(0)
    assert (claim.is_sure, found.is_sure, found.aware) == (False, True, aware)
    assert why in found.reason
    assert GpuAwareness.ask(YES, "Open MPI", {"MPICOLL_GPU_AWARE": "1"}).is_sure


def test_a_trial_is_no_rank_of_the_launch() -> None:
    given = {"PMIX_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "SLURM_PROCID": "1",
             "OMPI_MCA_pml": "ucx", "UCX_TLS": "all"}  # fmt: skip
    left = set(gpu_trial.singleton_environment(given))
    assert {"OMPI_MCA_pml", "UCX_TLS"} <= left and not left & {*list(given)[:3]}


def test_the_real_library_answers() -> None:
    found = GpuAwareness.detect()
    assert found.reason
