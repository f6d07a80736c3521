"""The launcher of a process, from environment variables alone."""

from __future__ import annotations

import sys

import pytest

from mpicoll.machine.launchers import Launch, find_launch, is_first_process, ranks_of_host
from mpicoll.machine.launches import mismatch, single_rank, singletons

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2"}
HYDRA = {"PMI_SIZE": "3", "PMI_RANK": "0"}
TORCHRUN = {"WORLD_SIZE": "8", "RANK": "7"}
SRUN = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}


@pytest.mark.parametrize(
    ("variables", "launch"),
    [
        (OPEN_MPI, Launch("Open MPI's mpirun", 4, 2)),
        (HYDRA, Launch("MPICH's mpirun", 3, 0)),
        (TORCHRUN, Launch("torchrun", 8, 7)),
        (SRUN, Launch("srun", 2, 1)),
        (SRUN | TORCHRUN, Launch("torchrun", 8, 7)),
        (TORCHRUN | HYDRA, Launch("MPICH's mpirun", 3, 0)),
        ({"PMI_SIZE": "many"}, None),
        ({}, None),
    ],
)
def test_the_launcher_is_found(variables: dict[str, str], launch: Launch | None) -> None:
    assert find_launch(variables) == launch
    assert is_first_process(variables) == (launch is None or launch.rank == 0)


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}, 4),
        ({"PMI_SIZE": "8"}, None),
        ({"PMI_SIZE": "8", "MPI_LOCALNRANKS": "many"}, None),
        ({"PMI_SIZE": "8", "MPI_LOCALNRANKS": "9" * 5000}, None),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2"}, 2),
        ({}, None),
    ],
)
def test_the_ranks_of_a_host(variables: dict[str, str], count: int | None) -> None:
    assert ranks_of_host(variables) == count


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, None),
        ({"PMI_SIZE": "1", "PMI_RANK": "0", "PMIX_RANK": "0"}, None),
        ({"PMIX_RANK": "1"}, "PMIX_RANK is set: a launcher started this process, which MPICH 5"),
    ],
)
def test_a_single_rank_is_told_how_to_start_several(
    variables: dict[str, str], says: str | None
) -> None:
    text = single_rank("MPICH 5", variables)
    assert text.startswith("there is one rank: nothing moves between ranks")
    assert f"-n 2 {sys.executable} -m mpicoll.bench" in text
    assert (says in text) if says else ("is set" not in text)


def test_a_single_rank_of_torchcoll_is_sent_to_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "torchcoll.bench"])
    assert "torchrun --nproc-per-node 2 -m torchcoll.bench" in single_rank("gloo", {})


def test_single_ranks_of_a_launcher_are_detected() -> None:
    message = singletons(1, "MPICH 5", OPEN_MPI)
    assert message is not None and "Open MPI" in message and "-n 4" in message
    assert "torchrun --nproc-per-node 8" in (singletons(1, "MPICH 5", TORCHRUN) or "")


@pytest.mark.parametrize(
    ("variables", "module", "advised"),
    [
        (OPEN_MPI, "mpicoll.p2p", "-m mpicoll.p2p,"),
        (TORCHRUN, "mpicoll.p2p", "-m torchcoll.p2p."),
        (TORCHRUN, "mpicoll.bench.twins", "-m torchcoll.bench."),
        (OPEN_MPI, "pytest", "-m mpicoll.bench,"),
    ],
)
def test_the_advice_names_the_command_that_was_started(
    variables: dict[str, str], module: str, advised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.orig_argv", ["python", "-m", module])
    assert advised in (singletons(1, "MPICH 5", variables) or "")


@pytest.mark.parametrize(
    ("size", "variables"), [(4, OPEN_MPI), (1, {}), (1, {"PMI_SIZE": "1"})], ids=str
)
def test_a_group_and_a_single_process_are_fine(size: int, variables: dict[str, str]) -> None:
    assert singletons(size, "MPICH 5", variables) is None


@pytest.mark.parametrize(
    ("vendor", "variables", "differs"),
    [
        ("Open MPI", HYDRA, True),
        ("MPICH", OPEN_MPI, True),
        ("MPICH", HYDRA, False),
        ("Open MPI", OPEN_MPI, False),
        ("MPICH", TORCHRUN, False),
        ("MPICH", {}, False),
        ("MPICH", {"OMPI_COMM_WORLD_SIZE": "1"}, False),
    ],
)
def test_the_launcher_of_another_mpi_is_named(
    vendor: str, variables: dict[str, str], differs: bool
) -> None:
    message = mismatch(vendor, variables)
    assert (message is not None) == differs
    assert message is None or f"-n {variables.get('PMI_SIZE', '4')}" in message
