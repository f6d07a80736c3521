"""Which rank a waiting rank asks, and what it learns from the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from time import sleep
from typing import Any

import pytest

from mpicoll import RankLost
from mpicoll.backend import Stage
from mpicoll.memory.notes import GROUP
from mpicoll.peers.contact import ENDED, SILENT, Answer, Contact, Notice
from mpicoll.peers.known import Peers
from mpicoll.peers.polling import wait_polling
from mpicoll.peers.search import AllRanks, search

SIZES = [2, 3, 4, 7, 8, 32, 33, 100]
LATE = Answer(exchanges=0)
WAITS = Answer(exchanges=9)


def asked_ranks(size: int, rank: int, looks: int) -> list[int]:
    """Return the ranks that a rank asks in its first looks."""
    peers = Peers(rank, size)
    one_search = search(peers, AllRanks(peers))
    return [one_rank for _ in range(looks) for one_rank in one_search.next_ranks()]


@pytest.mark.parametrize("size", SIZES)
def test_every_rank_is_asked_once_in_each_look(size: int) -> None:
    looks = 3 * size.bit_length()
    for asked in zip(*(asked_ranks(size, rank, looks) for rank in range(size)), strict=True):
        assert sorted(asked) == list(range(size))
        assert all(rank != other for rank, other in enumerate(asked))


@pytest.mark.parametrize("size", SIZES)
def test_news_reaches_all_ranks_in_as_many_looks_as_their_number_has_bits(size: int) -> None:
    looks = (size - 1).bit_length()
    asked, informed = [asked_ranks(size, rank, looks) for rank in range(size)], {size // 2}
    for look in range(looks):
        informed |= {rank for rank in range(size) if asked[rank][look] in informed}
    assert len(informed) == size


@pytest.mark.parametrize("size", SIZES)
def test_a_rank_asks_all_others_in_the_end(size: int) -> None:
    """The others that would ask a rank that has ended may be late themselves."""
    looks = (size - 1) * size.bit_length()
    assert set(asked_ranks(size, 0, looks)) == set(range(1, size))


def test_a_rank_alone_asks_nobody() -> None:
    assert asked_ranks(1, 0, 3) == []


class _Told(Contact):
    """Answers from a table instead of the network, and notes which ranks are asked."""

    def __init__(self, answers: Mapping[int, Answer | str]) -> None:
        self.answers, self.asked = answers, list[int]()

    def ask(self, ranks: Sequence[int], operation: int) -> dict[int, Answer | str]:  # type: ignore[override]
        self.asked += ranks
        return {rank: self.answers.get(rank, WAITS) for rank in ranks}


def waiting(size: int, answers: Mapping[int, Answer | str]) -> tuple[Peers, _Told, Any]:
    """Return rank 0 in an exchange, whom it asks, and its search."""
    peers, contact = Peers(0, size), _Told(answers)
    peers.contact, peers.exchanges = contact, 9
    return peers, contact, search(peers, AllRanks(peers, peers.is_behind))


@pytest.mark.parametrize(
    ("answers", "looks", "suspect"),
    [
        pytest.param({1: LATE}, 1, 1, id="the next rank is late"),
        pytest.param({1: Answer(awaits=5, exchanges=9), 5: LATE}, 1, 5, id="it awaits a late one"),
        pytest.param({1: SILENT, 2: LATE}, 2, 1, id="a stopped rank goes before a late one"),
        pytest.param({1: LATE, 2: SILENT}, 2, 2, id="also where it is found later"),
    ],
)
def test_the_missing_rank_is_found_by_one_question_a_look(
    answers: dict[int, Answer | str], looks: int, suspect: int
) -> None:
    peers, contact, one_search = waiting(8, answers)
    for _ in range(looks):
        assert not one_search.ask(one_search.next_ranks(), GROUP)
    assert peers.awaited_rank == suspect
    assert one_search.missing() == [suspect]
    assert len(contact.asked) == looks + 1


@pytest.mark.parametrize("answer", [ENDED, Answer("ZeroDivisionError: planted", exchanges=9)])
def test_a_rank_that_has_ended_or_left_ends_the_wait(answer: Answer | str) -> None:
    _, _, one_search = waiting(8, {1: answer})
    assert one_search.ask(one_search.next_ranks(), GROUP)
    assert one_search.missing() == [1]


@pytest.mark.parametrize("first", [LATE, WAITS])
def test_all_ranks_are_asked_for_an_error_without_a_suspect(first: Answer) -> None:
    """The suspect may have come, and another rank be late."""
    _, contact, one_search = waiting(8, {1: first, 6: LATE})
    one_search.ask(one_search.next_ranks(), GROUP)
    contact.answers = {6: LATE}
    assert one_search.missing() == [6]


@pytest.mark.parametrize(
    ("operation", "is_told"),
    [(-7, True), (GROUP, True), (-9, False)],
    ids=["its", "group", "other"],
)
def test_a_rank_that_tells_why_it_left_ends_the_wait_of_the_others(
    operation: int, is_told: bool
) -> None:
    """It may have ended before it is asked."""
    peers, contact, _ = waiting(8, {5: ENDED})
    peers.deadline = 0.3
    peers._take(Notice(5, operation, "RankLost: planted", 3))
    stage, missing = Stage("an exchange", operation=-7), AllRanks(peers, peers.is_behind, -7)
    contact.answers = {5: ENDED, 1: LATE}
    with pytest.raises(RankLost) as raised:
        wait_polling(lambda: False, missing, stage, peers)
    assert raised.value.rank == (3 if is_told else 1)


@pytest.mark.parametrize("seconds", [0.0, 0.007], ids=["idle", "busy"])
def test_the_last_messages_of_a_rank_that_has_ended_arrive(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library receives them during several tests, also if other processes have the core."""
    monkeypatch.setattr("os.sched_yield", lambda: sleep(seconds))
    peers, contact, _ = waiting(8, {1: ENDED})
    tests_after_the_question = count()

    def test() -> bool:
        return bool(contact.asked) and next(tests_after_the_question) >= 50

    wait_polling(test, AllRanks(peers, peers.is_behind), Stage("an exchange"), peers)
    assert contact.asked
