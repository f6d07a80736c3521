"""Cores, their limits, and the remarks that follow from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpicoll.errors import ArgumentError
from mpicoll.machine.nodes import (
    CORES,
    RANKS_PER_NODE,
    Cores,
    container_quota,
    own_cores,
    stated_node,
    usable_cores,
)
from mpicoll.machine.processes import Machine, Process, other_load, oversubscription, own_process


@pytest.mark.parametrize(
    ("text", "quota"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None)]
)
def test_the_quota_of_the_container_is_read(tmp_path: Path, text: str, quota: float | None) -> None:
    path = tmp_path / "cpu.max"
    assert container_quota(path) is None
    path.write_text(text)
    assert container_quota(path) == quota


def test_stated_cores_limit_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORES, "0.25")
    assert usable_cores([own_cores()]) == 0.25


@pytest.mark.parametrize("text", ["0", "-1", "many", "nan", "inf", "9" * 5000], ids=len)
def test_impossible_cores_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(CORES, text)
    with pytest.raises(ArgumentError, match=r"such as 0\.5"):
        own_cores()


@pytest.mark.parametrize("text", ["0", "-1", "two", "²", "9" * 5000], ids=len)
def test_impossible_nodes_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(RANKS_PER_NODE, text)
    with pytest.raises(ArgumentError, match="number of ranks"):
        stated_node(0)


def test_a_process_reports_its_machine() -> None:
    description = own_process()
    assert description.machine.cores >= len(description.cores.allowed) >= 1
    assert (
        description.host
        and description.machine.processor
        and description.machine.kernel.startswith("Linux")
    )


def process(load: float = 0.0) -> Process:
    return Process("here", Cores([0, 1], None), load, Machine("P", "Linux 6", 2))


@pytest.mark.parametrize(("ranks", "remarks"), [(2, 0), (3, 1)])
def test_more_ranks_than_cores_are_remarked(ranks: int, remarks: int) -> None:
    warnings = oversubscription((tuple(range(ranks)),), [process()] * ranks)
    assert len(warnings) == remarks
    assert all("3 ranks share 2 cores on here" in warning for warning in warnings)


@pytest.mark.parametrize("quota", [None, 0.5])
@pytest.mark.parametrize(("load", "remarks"), [(2.0, 0), (2.5, 1)])
def test_other_load_is_remarked(load: float, remarks: int, quota: float | None) -> None:
    """The load is that of the whole machine, and so are the cores."""
    first = process(load)
    warnings = other_load(((0,),), [first._replace(cores=Cores([0], quota))])
    assert len(warnings) == remarks
    assert all("2.5 on 2 cores" in warning for warning in warnings)
