"""The calls that a rank records, of groups and of messages, by all its threads."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import recorded

import mpicoll
from mpicoll.engine import _compiled
from mpicoll.errors import RankLost
from mpicoll.flight import directory, groups, recorder, signals
from mpicoll.flight.diagnosis import diagnose
from mpicoll.flight.layout import SUFFIX, Outcome
from mpicoll.flight.reader import read_all
from mpicoll.flight.records import Call, Group
from mpicoll.flight.words import sentences


def test_all_ranks_count_the_same_calls_of_a_group(place: Path) -> None:
    def run(c: mpicoll.Collectives) -> None:
        x = np.ones(4)
        for _ in range(3):
            c.allreduce(x)
        with c.plan("broadcast", x, root=1, algorithm="binomial@point-to-point") as plan:
            plan.run()
            plan.start().wait()
        part = c.split(c.rank % 2)
        assert part is not None
        part.barrier(algorithm="native")

    dumps = recorded(place, run)
    assert [dump.rank for dump in dumps] == [0, 1, 2]
    calls = [
        [
            (entry.sequence, entry.call.collective)
            for entry in dump.entries
            if entry.group.name == "world"
        ]  # type: ignore[union-attr]
        for dump in dumps
    ]
    assert calls[0] == calls[1] == calls[2]
    names = ["allreduce"] * 3 + ["plan of broadcast"] + ["broadcast"] * 2 + ["split"]
    assert [name for _, name in calls[0]] == names
    assert [sequence for sequence, _ in calls[0]] == list(range(1, 8))
    last = dumps[0].entries[-1]
    assert last.call.algorithm == "native" and last.call.collective == "barrier"
    assert last.group is not None and last.group.ranks == "0,2"
    assert all(entry.outcome is Outcome.COMPLETED for dump in dumps for entry in dump.entries)
    wheres = {entry.location.file for dump in dumps for entry in dump.entries if entry.location}
    assert wheres == {__file__}


def test_threads_that_join_at_once_share_a_recorder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_of_process", [])
    monkeypatch.setattr(signals, "_register", lambda _path: -1)
    monkeypatch.setattr(RankLost, "raised", RankLost.raised)
    flights: list[groups.GroupFlight | None] = []

    def exchange(item: Any, kind: Any) -> list[Any]:
        return [item, item]

    def meanwhile(item: Any, kind: Any) -> list[Any]:
        flights.append(groups.join(exchange, 0, 2, writers=_compiled))
        return [item, item]

    flights.append(groups.join(meanwhile, 0, 2, writers=_compiled))
    assert len({flight.recorder for flight in flights if flight is not None}) == 1
    assert len(list(place.rglob(f"*{SUFFIX}"))) == 1
    for open_recorder in groups._of_process:
        open_recorder.end(None)


def test_a_call_that_raises_keeps_the_files(place: Path) -> None:
    def run(c: mpicoll.Collectives) -> None:
        c.allreduce(np.ones(3))
        if c.rank == 1:
            raise ValueError("rank 1 leaves")
        c.allreduce(np.ones(3))

    with pytest.raises(ValueError, match="rank 1 leaves"):
        mpicoll.threads(3)(run)
    dumps, _ = read_all(place)
    assert any("rank 1 leaves" in text for text in dumps[1].errors)
    lost = dumps[0].entries[-1]
    assert lost.outcome is Outcome.RAISED and "rank 1" in lost.error
    assert "python -m mpicoll.postmortem" not in lost.error  # whose words these are


def test_a_process_that_two_threads_end(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one comes while the first still writes the error down."""
    ended = recorder.Recorder(directory.new_name(), (0, 1), writers=_compiled)
    monkeypatch.setattr(ended, "describe", lambda *error: ended.end())
    ended.end(RankLost("rank 1 has ended"))
    assert ended.memory is None


def test_the_switch_turns_it_off(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPICOLL_FLIGHT", "0")
    mpicoll.threads(2)(lambda c: c.barrier())
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(("local", "warnings"), [("0", 1), ("1", 0)])
def test_a_run_goes_on_where_nothing_can_be_written(
    place: Path, local: str, warnings: int, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """One process says so for all of its host, and which one it is."""
    for name, value in (("PMI_RANK", "3"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", local)):
        monkeypatch.setenv(name, value)
    (place / "file").touch()
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(place / "file" / "below"))
    monkeypatch.setattr(groups, "_warned", [])
    assert mpicoll.threads(2)(lambda c: int(c.allreduce(np.ones(1, int))[0])) == [2, 2]
    error = capfd.readouterr().err
    assert (
        error.count("calls are not recorded: /") == error.count("warning: rank 3 on ") == warnings
    )


class Interrupted(Exception):
    """What a handler raises."""


def interrupt(number: int, frame: object) -> None:
    raise Interrupted


@pytest.mark.parametrize(("method", "calls"), [("locate", 1), ("describe", 2)])
def test_a_handler_that_runs_in_the_recorder(
    method: str, calls: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program gets its error, and the next call is recorded."""
    signals = [signal.SIGUSR1]
    whole = getattr(recorder.Recorder, method)

    def interrupted(self: recorder.Recorder, *arguments: Any) -> Any:
        if signals:
            signal.raise_signal(signals.pop())
        return whole(self, *arguments)

    def call() -> None:
        if method == "describe":
            raise ValueError

    monkeypatch.setattr(recorder.Recorder, method, interrupted)
    rank = recorder.Recorder("job", (0, 2), writers=_compiled)
    log = _compiled.Log(rank.ring, rank.intern(Group("g", "world", 0, "0-1")))
    run = log.recorded(rank.intern(Call("allreduce")), call)

    def make_call() -> None:
        with suppress(ValueError):
            run()

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            make_call()
        make_call()
    finally:
        signal.signal(signal.SIGUSR1, before)
        rank.close()
    (dump,), _ = read_all(place)
    assert not signals and len(dump.entries) == calls
    assert dump.entries[-1].location.function.endswith("make_call")


def test_messages_between_two_ranks_are_recorded_apart(place: Path) -> None:
    def run(c: mpicoll.Collectives) -> None:
        x, y = np.ones(4), np.empty(4)
        c.barrier()
        if c.rank == 0:
            c.send(x, 1, tag=3)
            c.irecv(y, 1).wait()
        else:
            c.recv(y, 0, tag=3)
            request = c.isend(x, 0)
            while not request.test():
                pass
        c.sendrecv(x, 1 - c.rank, y)

    dumps = recorded(place, run, size=2)
    calls = [
        [
            (entry.sequence, entry.call.collective, entry.call.signature)
            for entry in dump.entries[1:]
        ]
        for dump in dumps
    ]
    assert calls[0] == [
        (1, "send", "to rank 1, tag 3"),
        (2, "irecv", "from rank 1, tag 0"),
        (3, "sendrecv", "from rank 1, to rank 1, tag 0"),
    ]
    assert [name for _, name, _ in calls[1]] == ["recv", "isend", "sendrecv"]
    every = [entry for dump in dumps for entry in dump.entries]
    assert all(entry.outcome is Outcome.COMPLETED for entry in every)
    assert {entry.group.messages for entry in every if entry.group} == {False, True}
    assert diagnose(dumps, time.time_ns()).stuck == []


def test_a_message_that_does_not_come_is_named(place: Path) -> None:
    def run(c: mpicoll.Collectives) -> None:
        y = np.empty(4)
        c.barrier()
        if c.rank == 0:
            c.deadline = 0.2
            with pytest.raises(RankLost):
                c.recv(y, 1, tag=7)

    (sentence,) = sentences(diagnose(recorded(place, run, size=2), time.time_ns()))
    assert sentence.startswith("Rank 0 has left recv of from rank 1, tag 7, from ")
