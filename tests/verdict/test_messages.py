"""The verdict on jobs whose ranks wait for each other in messages, which have no rows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from synthetic_job import LINE, Work, worked

from mpicoll.flight.reader import Dump
from mpicoll.verdict.activity import Calls
from mpicoll.verdict.findings import Kind
from mpicoll.verdict.judging import judge
from mpicoll.verdict.sentences import sentences

STEPS, VICTIM, PLACE = 300, 2, 5


def exchanging(works: Sequence[Sequence[Work]], *, with_calls: int = 0) -> list[Dump]:
    """Return the files of ranks that exchange messages after their work.

    Args:
        with_calls: of so many steps one ends with an allreduce in place of messages; 0 for none.
    """
    dumps = []
    for dump in worked(works):
        calls = [row for row in dump.entries if with_calls and row.sequence % with_calls == 0]
        rows = [row._replace(sequence=place, number=place) for place, row in enumerate(calls, 1)]
        messages = Calls([row for row in dump.entries if row not in calls])
        samples = [
            sample._replace(messages=messages.until(sample.at), location=PLACE)
            for sample in dump.samples
        ]
        dumps.append(dump._replace(entries=rows, samples=samples, locations={PLACE: LINE}))
    return dumps


def equal(size: int, seed: int = 1) -> list[list[Work]]:
    """Return the work of equal ranks, on a busy machine."""
    draw = random.Random(seed)
    return [
        [Work(2 + 0.1 * draw.random(), max(0.0, draw.gauss(0.3, 0.3))) for _ in range(size)]
        for _ in range(STEPS)
    ]


def planted(size: int, **longer: float) -> list[list[Work]]:
    works = equal(size)
    for ranks in works:
        changes = {name: getattr(ranks[-1], name) + length for name, length in longer.items()}
        ranks[-1] = ranks[-1]._replace(**changes)
    return works


@pytest.mark.parametrize("with_calls", [0, 2])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("seed", [1, 2])
def test_equal_ranks_are_not_blamed(size: int, seed: int, with_calls: int) -> None:
    assert judge(exchanging(equal(size, seed), with_calls=with_calls)).findings == []


@pytest.mark.parametrize("with_calls", [0, 2, 50])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("activity", "kind"), [("running", Kind.MORE_WORK), ("asleep", Kind.ASLEEP)]
)
def test_the_rank_that_the_others_wait_for_is_blamed(
    size: int, activity: str, kind: Kind, with_calls: int
) -> None:
    verdict = judge(exchanging(planted(size, **{activity: 3.0}), with_calls=with_calls))
    assert [(finding.kind, finding.ranks) for finding in verdict.findings] == [(kind, (size - 1,))]


def test_the_sentence_names_the_line_of_the_messages() -> None:
    first, *_ = sentences(judge(exchanging(planted(3, running=3.0))))
    assert first.startswith("Rank 2 keeps the other ranks waiting in messages at train.py:")
    assert "more of the time between its messages: the program gives it more work" in first


def test_without_a_cause_the_time_in_messages_is_told() -> None:
    (first, *_) = sentences(judge(exchanging(equal(3))))
    assert first.startswith("No rank, node or link stands out in 0 calls") and "messages" in first


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("with_calls", [0, 2])
def test_a_rank_that_hands_out_work_is_no_measure(workers: int, with_calls: int) -> None:
    works = [[Work(0.02), *ranks] for ranks in equal(workers)]
    assert judge(exchanging(works, with_calls=with_calls)).findings == []


def test_a_slow_worker_is_compared_with_the_others() -> None:
    works = [[Work(0.02), *ranks] for ranks in planted(2, running=3.0)]
    (finding,) = judge(exchanging(works)).findings
    assert (finding.kind, finding.ranks) == (Kind.MORE_WORK, (2,))


def test_a_rank_without_a_core_is_blamed() -> None:
    (finding,) = judge(exchanging(planted(3, queued=6.0))).findings
    assert (finding.kind, finding.ranks) == (Kind.SHARED_CORE, (2,))
