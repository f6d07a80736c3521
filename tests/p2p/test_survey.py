"""The measurement of pairs, on ranks that are threads of this process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpicoll
from mpicoll import Collectives
from mpicoll.cli.watchdog import Watchdog
from mpicoll.errors import ArgumentError
from mpicoll.machine.links import SELF
from mpicoll.measurement.ping_pong import (
    BOTH_WAYS,
    COPY,
    LATENCY,
    ONE_WAY,
    PairFindings,
    PairSettings,
    PingPong,
)
from mpicoll.p2p import survey
from mpicoll.p2p.options import Options
from mpicoll.p2p.run import run
from mpicoll.p2p.survey import Survey, wrongs

SIZES = (8, 4096, 65536)


def measure(c: Collectives, sizes: tuple[int, ...] = SIZES) -> PairFindings:
    settings = PairSettings(sizes, ("point-to-point", "symmetric"), budget=0.3)
    return Survey({"threads": c}, settings, Watchdog(0)).measure()


@pytest.fixture(scope="module")
def everywhere() -> list[PairFindings]:
    """What each of three ranks on two nodes finds."""
    return mpicoll.threads(3, ranks_per_node=2)(measure)


@pytest.mark.parametrize("keeps", [True, False])
def test_pairs_keep_a_group_that_is_costly_to_form(
    keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    formed: list[Any] = []
    split = Collectives.split

    def count_split(self: Collectives, color: Any, key: Any = None) -> Any:
        formed.append(split(self, color, key))
        return formed[-1]

    monkeypatch.setattr(Survey, "_keeps_groups", lambda self, name: keeps)
    monkeypatch.setattr(Collectives, "split", count_split)
    mpicoll.threads(2)(lambda c: measure(c, (8, 64)))
    assert (len(formed) == 2) is keeps


def test_all_ranks_find_the_same(everywhere: list[PairFindings]) -> None:
    assert everywhere[0] == everywhere[1] == everywhere[2]


def test_every_case_is_measured_or_refused(everywhere: list[PairFindings]) -> None:
    samples = everywhere[0]
    ways = [(s, t) for s in range(3) for t in range(3) if s != t]
    pairs = [(s, t) for s, t in ways if s < t]
    for transport in ("point-to-point", "symmetric"):
        cases = {case[2:] for case in samples if case.transport == transport}
        assert cases == {
            *((LATENCY, *ends, 8) for ends in pairs),
            *((ONE_WAY, *ends, nbytes) for ends in ways for nbytes in SIZES[1:]),
            *((BOTH_WAYS, *ends, nbytes) for ends in pairs for nbytes in SIZES[1:]),
        }
    assert {case[2:] for case in samples if case.transport == SELF} == {
        (COPY, rank, rank, nbytes) for rank in range(3) for nbytes in SIZES[1:]
    }
    refused = {(c.transport, *sorted((c.source, c.target))) for c in samples if samples[c].message}
    assert refused == {("symmetric", 0, 2), ("symmetric", 1, 2)}
    measured = [pair_samples for pair_samples in samples.values() if not pair_samples.message]
    assert all(
        len(pair_samples.visits) >= 3 and min(pair_samples.samples) > 0 for pair_samples in measured
    )
    assert wrongs(samples) == []


class Lossy(PingPong):
    """A transport that loses the last byte of every message."""

    def _message(self, root: int, nbytes: int) -> Any:
        run, view = super()._message(root, nbytes), self.memory[nbytes - 1 : nbytes]
        plan, regions = self.plans.pop()

        def lossy() -> None:
            content = np.array(view)
            run()
            if self.group.rank != root:
                view[:] = content

        methods = {"run": staticmethod(lossy), "free": plan.free}
        self.plans.append((type("Plan", (), methods), regions))  # type: ignore[arg-type]
        return lossy


def test_wrong_bytes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "PingPong", Lossy)
    samples, _ = mpicoll.threads(2)(measure)
    lines = wrongs(samples)
    assert {line.partition(":")[0] for line in lines} == {
        f"WRONG between ranks 0 and 1 (threads, {name})" for name in ("point-to-point", "symmetric")
    }
    assert all("got 255" in line for line in lines)


class Slow(PingPong):
    """Rank 0 waits before each large message to rank 2, rank 1 before each small one to rank 3."""

    def _message(self, root: int, nbytes: int) -> Any:
        run = super()._message(root, nbytes)
        slow = (self.pair, nbytes) in (((0, 2), 4096), ((1, 3), 8)) and root == 0
        return (lambda: (time.sleep(0.05 * (self.group.rank == root)), run())) if slow else run


@pytest.mark.exhaustive
def test_times_are_of_one_message_in_its_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "PingPong", Slow)
    samples = mpicoll.threads(4)(measure, SIZES[:2])[0]
    times = {case[2:]: min(pair_samples.samples) / 1000 for case, pair_samples in samples.items()}
    # Of a message of 50 ms: a sender waits for all of it, half a round trip is half of it, and
    # none of it goes the other way. An error is a factor of two at least.
    assert 50 <= times[ONE_WAY, 0, 2, 4096] < 100
    assert 25 <= times[LATENCY, 1, 3, 8] < 50
    assert times[ONE_WAY, 2, 0, 4096] < 25


# -- what is refused, and what is announced ---------------------------------------------------


def options(**flags: Any) -> Options:
    plain: dict[str, Any] = {
        "backends": ("threads",), "transports": (), "sizes": SIZES, "device": "cpu", "budget": 0.3,
        "output": None, "plot": None, "layout": "table", "dry": False, "seed": 0, "timeout": 0.0,
        "interface": None,
    }  # fmt: skip
    return Options(**plain | flags)


def run_on(size: int, **flags: Any) -> list[int]:
    def run_rank(c: Collectives) -> int:
        return run(options(**flags), {"threads": lambda interface: c})

    return mpicoll.threads(size, ranks_per_node=2)(run_rank)


@pytest.mark.parametrize(
    ("size", "flags", "text"),
    [
        (2, {"transports": ("ipc",)}, "no ipc transport for these buffers"),
        (1, {}, "two ranks"),
        (2, {"device": "cuda"}, "threads is left out"),
        (2, {"output": Path("/nowhere/at/all.jsonl")}, "is not a folder"),
        (2, {"plot": Path("pairs.txt")}, r"ends in \.png"),
    ],
    ids=str,
)
def test_impossible_runs_are_refused_on_all_ranks(
    size: int, flags: dict[str, Any], text: str
) -> None:
    with pytest.raises(ArgumentError, match=text):
        run_on(size, **flags)


def test_a_dry_run_names_what_joins_the_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_on(3, dry=True) == [0, 0, 0]
    text = capsys.readouterr().out
    assert "network: 0-2 1-2" in text and "latency of 8 B, bandwidth of 4K, 64K" in text
