"""A benchmark that no launcher has started starts its ranks itself."""

from __future__ import annotations

import sys

import pytest

from mpicoll.bench import starting
from mpicoll.machine.nodes import Cores

FIRST = {
    "mpicoll.bench": [sys.executable, "-m", "mpicoll.bench"],
    "mpicoll bench": [sys.executable, "/usr/bin/mpicoll", "bench"],
    "mpicoll as a module": [sys.executable, "-m", "mpicoll", "bench"],
    "torchcoll.bench": [sys.executable, "-m", "torchcoll.bench"],
    "torchcoll bench": [sys.executable, "/usr/bin/torchcoll", "bench"],
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMIX_RANK",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(starting, "mpirun", lambda: "/bin/mpirun")


@pytest.mark.parametrize("words", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize(
    ("cores", "count"),
    [(Cores([0], None), 2), (Cores([0, 1, 2, 3], None), 4), (Cores([0, 1, 2, 3], 2.5), 2)],
)
def test_each_core_gets_a_rank(
    words: list[str], cores: Cores, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", [*words, "allreduce", "--sizes", "4K"])
    monkeypatch.setattr(starting, "own_cores", lambda: cores)
    command = starting.launch_command()
    assert command and str(count) in command
    package = "torchcoll" if "torchcoll" in " ".join(words) else "mpicoll"
    assert command[-5:] == ["-m", f"{package}.bench", "allreduce", "--sizes", "4K"]
    launcher = [sys.executable, "-m", "torch.distributed.run"] if package == "torchcoll" else [
        "/bin/mpirun", "-n", str(count),
    ]  # fmt: skip
    assert command[:3] == launcher


@pytest.mark.parametrize(
    "variables",
    [{"PMI_SIZE": "1"}, {"OMPI_COMM_WORLD_SIZE": "4"}, {"WORLD_SIZE": "2"}, {"PMIX_RANK": "0"}],
    ids=str,
)
def test_a_rank_starts_no_ranks(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", FIRST["mpicoll.bench"])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert starting.launch_command() is None


def test_without_a_launcher_one_rank_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", FIRST["mpicoll.bench"])
    monkeypatch.setattr(starting, "mpirun", lambda: None)
    assert starting.launch_command() is None


@pytest.mark.parametrize("words", [["pytest"], [sys.executable, "-m", "mpicoll.bench.twins"]])
def test_other_programs_start_no_ranks(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", words)
    assert starting.launch_command() is None
