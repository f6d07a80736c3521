"""Chrome traces: the events of the documented format, their order, and what they say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from synthetic_job import EPOCH, MILLISECOND, dump, lockstep, row, world

from mpicoll.errors import ArgumentError
from mpicoll.exports.perfetto import trace, write
from mpicoll.flight.entries import Sample
from mpicoll.flight.layout import Outcome
from mpicoll.flight.reader import Dump

LATE = [[0, 0, 4], [0, 2, 0], [1, 1, 1]]
"""Rank 2 is 4 ms late in the first call, rank 1 is 2 ms late in the second one."""


def job(**hosts: Any) -> list[Dump]:
    rows = lockstep(LATE)
    return [dump(rank, rows[rank], size=3, **hosts) for rank in range(3)]


def of_phase(events: list[dict[str, Any]], phase: str, **fields: Any) -> list[dict[str, Any]]:
    return [
        event for event in events
        if event["ph"] == phase and all(event.get(name) == fields[name] for name in fields)
    ]  # fmt: skip


def check_format(events: list[dict[str, Any]]) -> None:
    """Check the rules of the format: fields, order, nesting, and arrows that end in slices."""
    assert {event["ph"] for event in events} <= set("MXiCsf")
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times) and min(times) >= 0
    # The viewer of Chrome shows a counter without a category as "undefined.NAME".
    assert all(event["cat"] for event in events if event["ph"] not in "M")
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in of_phase(events, "X"):
        assert isinstance(event["name"], str) and event["dur"] >= 0
        begin, end = event["ts"], event["ts"] + event["dur"]
        open_slices = tracks.setdefault((event["pid"], event["tid"]), [])
        while open_slices and open_slices[-1][1] <= begin + 1e-4:
            open_slices.pop()
        assert not open_slices or end <= open_slices[-1][1] + 1e-4, "slices overlap"
        open_slices.append((begin, end))
    arrows = Counter(event["id"] for event in events if event["ph"] in "sf")
    assert set(arrows.values()) <= {2}
    for event in events:
        if event["ph"] in "sf":
            assert any(
                call["ts"] <= event["ts"] < call["ts"] + call["dur"]
                for call in of_phase(events, "X", pid=event["pid"], tid=event["tid"])
            ), "an arrow without a slice"


def test_calls_are_slices_with_waiting_and_moving_inside() -> None:
    events = trace(job())["traceEvents"]
    check_format(events)
    calls = of_phase(events, "X", cat="call", pid=0)
    assert [(call["name"], call["ts"]) for call in calls] == [
        ("allreduce", 0.0), ("allreduce", 10_000.0), ("allreduce", 21_000.0),
    ]  # fmt: skip
    assert calls[0]["args"]["location"] == "train.py:40 in step"
    waits = {
        (event["pid"], event["ts"]): event["dur"] for event in of_phase(events, "X", cat="wait")
    }
    assert waits == {(0, 0): 4000, (1, 0): 4000, (0, 10_000): 2000, (2, 10_000): 2000}
    moves = of_phase(events, "X", cat="move", pid=0)
    assert [(event["ts"], event["dur"]) for event in moves] == [(4000, 20), (12_000, 20)]


def test_arrows_lead_from_the_last_rank_to_those_that_waited() -> None:
    events = trace(job())["traceEvents"]
    begins, ends = (
        {event["id"]: (event["pid"], event["ts"]) for event in of_phase(events, phase)}
        for phase in "sf"
    )
    assert sorted((begins[number], ends[number]) for number in begins) == [
        ((1, 12_000), (0, 12_000)), ((1, 12_000), (2, 12_000)),
        ((2, 4000), (0, 4000)), ((2, 4000), (1, 4000)),
    ]  # fmt: skip


def test_clocks_of_hosts_are_aligned() -> None:
    rows = lockstep(LATE * 5, ahead=lambda call, rank: 500.0 if rank == 2 else 0.0)
    hosts = [{}, {}, {"host": "b", "boot": "b"}]
    dumps = [dump(rank, rows[rank], size=3, **hosts[rank]) for rank in range(3)]
    record = trace(dumps)
    check_format(record["traceEvents"])
    (first, *_) = of_phase(record["traceEvents"], "X", cat="call", pid=2)
    assert first["ts"] == pytest.approx(4000, abs=100)
    names = {
        event["args"]["name"] for event in of_phase(record["traceEvents"], "M", name="process_name")
    }
    assert names == {"rank 0 on host0", "rank 1 on host0", "rank 2 on b"}


def test_calls_that_overlap_get_tracks_of_their_own() -> None:
    group = world(1)
    rows = [row(1, 0, 10, group=group), row(2, 1, 4, group=group), row(3, 2, 6, group=group),
            row(4, 11, 12, group=group)]  # fmt: skip
    events = trace([dump(0, rows, size=1)])["traceEvents"]
    check_format(events)
    tracks = [event["tid"] for event in of_phase(events, "X", cat="call")]
    assert tracks == [1, 1, 2, 1]
    names = [event["args"]["name"] for event in of_phase(events, "M", name="thread_name")]
    assert names == ["thread 1", "thread 1, overlapping 2"]


def test_calls_under_way_and_issued_calls_are_marked() -> None:
    dumps = job()
    stuck = dumps[0].entries[-1]._replace(end=0, outcome=Outcome.UNDER_WAY)
    issued = dumps[1].entries[-1]
    issued = issued._replace(end=issued.start, outcome=Outcome.ISSUED)
    dumps[0].entries[-1], dumps[1].entries[-1] = stuck, issued
    events = trace(dumps)["traceEvents"]
    check_format(events)
    (call,) = of_phase(events, "X", cat="call", pid=0)[2:]
    assert call["args"]["state"] == "under way" and call["dur"] == 20
    assert len(of_phase(events, "i", pid=1)) == 1


def test_samples_become_counters() -> None:
    samples = [
        Sample(at, EPOCH + at * MILLISECOND, running * MILLISECOND, queued * MILLISECOND, thread=7)
        for at, running, queued in ((-1, 0, 0), (9, 5, 1), (19, 15, 1))
    ]
    dumps = job()
    events = trace([dumps[0]._replace(samples=samples), *dumps[1:]])["traceEvents"]
    check_format(events)
    counters = of_phase(events, "C")
    assert [(event["ts"], event["args"]) for event in counters] == [
        (0, {"running": 50.0, "no core": 10.0}), (10_000, {"running": 100.0, "no core": 0.0}),
    ]  # fmt: skip


def test_a_job_without_calls_and_a_path_without_folder(tmp_path: Path) -> None:
    write(tmp_path / "t.json", [dump(0, [], size=1)])
    record = json.loads((tmp_path / "t.json").read_text())
    assert {event["ph"] for event in record["traceEvents"]} == {"M"}
    with pytest.raises(ArgumentError, match="is not a folder"):
        write(tmp_path / "nowhere" / "t.json", job())
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
