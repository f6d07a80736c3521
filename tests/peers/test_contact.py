"""Asking a rank of another node: it answers, is stopped, has ended, or is no rank of the group."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mpicoll import RankLost
from mpicoll.backend import Stage
from mpicoll.machine.living import has_ended, is_stopped
from mpicoll.peers.contact import ENDED, SILENT, Address, Addresses, Answer, Contact
from mpicoll.peers.known import Peers
from mpicoll.peers.search import AllRanks, search

KEYS = [b"0" * 32, b"1" * 32]
LISTENS = """
import socket
bound = socket.create_server(("127.0.0.1", 0))
print(bound.getsockname()[1], flush=True)
input()
"""


def contact(rank: int, port: int = 0, other: bytes = KEYS[1]) -> Contact:
    """Return the contact of a rank of two; the other one listens at a port, by default its own."""

    def exchange(own: tuple[Address, bytes], _kind: object) -> list[tuple[Address, bytes]]:
        address = Address("127.0.0.1", port) if port else own[0]
        keys = [KEYS[0], other]
        return [(own[0] if each == rank else address, keys[each]) for each in range(2)]

    return Contact(rank, exchange, True, lambda operation: Answer(f"asked {operation}", 1, 2, 3))


@pytest.fixture
def listening() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that listens, and never answers, and its port."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        yield started, int(started.stdout.readline())
        started.kill()


def test_the_addresses_of_many_ranks_take_a_few_bytes_each() -> None:
    listed = [Address(f"10.0.{rank // 8192}.{rank // 32 % 256}", rank % 65536)
              for rank in range(1 << 16)]  # fmt: skip
    tracemalloc.start()
    addresses = Addresses(listed)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 16 * len(listed)
    for rank in (0, 40_000, 65_535):
        assert addresses[rank] == listed[rank]


def test_a_rank_answers() -> None:
    asked = contact(0)
    assert asked.ask([1], 7) == {1: Answer("asked 7", 1, 2, 3)}
    asked.close(lambda operation: Answer("it has freed the group"))
    assert asked.ask([0, 1], 7) == dict.fromkeys(range(2), Answer("it has freed the group"))


def test_who_knows_another_key_is_told_nothing() -> None:
    first, second = contact(0), contact(0, other=KEYS[0])
    assert first.name != second.name
    second.name = first.name
    assert second.ask([1], 7) == {1: ""}


@pytest.mark.parametrize(("times", "answer"), [(1, Answer("asked 7", 1, 2, 3)), (9, "")])
def test_a_rank_that_gives_up_an_answer_has_not_ended(
    monkeypatch: pytest.MonkeyPatch, times: int, answer: Answer | str
) -> None:
    """As one does that is asked too slowly, where more processes run than there are cores."""
    asked = contact(0)
    assert asked.listener is not None
    answers, gives_up = asked.listener._answer, iter(range(times))

    def slow(connection: socket.socket) -> None:
        if next(gives_up, None) is not None:
            raise TimeoutError
        answers(connection)

    monkeypatch.setattr(asked.listener, "_answer", slow)
    assert asked.ask([1], 7) == {1: answer}


def test_an_error_of_any_text_is_told() -> None:
    asked = contact(0)
    asked.close(lambda operation: Answer("\x01\udc80€" * 10_000))
    found = asked.ask([1], 7)[1]
    assert isinstance(found, Answer)
    assert found.left.startswith("\x01?€\x01")


def test_a_question_that_fails_ends_no_further_answers() -> None:
    asked = contact(0)
    asked.close(lambda operation: Answer(f"asked {1 // operation}"))
    assert asked.ask([1], 0) == {1: ""}
    assert asked.ask([1], 1) == {1: Answer("asked 1")}


def test_a_process_that_is_stopped_or_ends(listening: tuple[subprocess.Popen[str], int]) -> None:
    process, port = listening
    asked = contact(0, port)
    process.send_signal(signal.SIGSTOP)
    assert "does not answer" in str(asked.ask([1], 7)[1])
    assert not has_ended(process.pid)
    assert is_stopped(process.pid)
    process.kill()
    process.wait()
    assert has_ended(process.pid)
    assert asked.ask([1], 7)[1] == ENDED


def test_what_comes_to_the_port_ends_nothing() -> None:
    asked = contact(0)
    for data in (b"", b"x" * 24, asked.name + b"\xff" * 200, b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(asked.addresses[0]) as stranger:
            stranger.sendall(data)
    assert asked.ask([1], 7) == {1: Answer("asked 7", 1, 2, 3)}


def test_a_rank_answers_again_after_it_was_short_of_descriptors() -> None:
    asked = contact(0)
    assert asked.listener is not None
    accept, short = asked.listener.socket.accept, [OSError(errno.EMFILE, "Too many open files")]

    class Short:
        def accept(self) -> Any:
            if short:
                raise short.pop()
            return accept()

    asked.listener.socket = Short()  # type: ignore[assignment]
    for _ in range(3):  # the first of these ends the wait that is under way
        assert asked.ask([1], 7) == {1: Answer("asked 7", 1, 2, 3)}
    assert not short


def test_a_rank_that_frees_the_group_while_it_is_asked_answers() -> None:
    class Freed(Peers):
        """Another thread closes it as soon as its memory has been seen."""

        @property
        def shared(self) -> Any:  # type: ignore[override]
            found, self.found = self.found, None
            return found

        @shared.setter
        def shared(self, found: Any) -> None:
            self.found = found

    peers = Freed(0, 2)
    peers.shared = SimpleNamespace(notes=SimpleNamespace(waits_for=lambda rank: 1 - rank))
    assert peers._reply(7).awaits == 1
    assert peers._reply(7).awaits is None


@pytest.mark.parametrize(
    ("exchanges", "is_late", "gone"),
    [
        pytest.param(5, True, False, id="after this exchange"),
        pytest.param(6, True, False, id="after the next"),
        pytest.param(4, True, True, id="before this exchange"),
        pytest.param(5, False, True, id="in a plan, which no exchange precedes"),
    ],
)
def test_a_rank_that_freed_the_group_has_gone_unless_it_completed_the_call(
    exchanges: int, is_late: bool, gone: bool
) -> None:
    peers, others = Peers(0, 2), Peers(1, 2)
    peers.contact, others.contact = contact(0), contact(1)
    peers.exchanges, others.exchanges = 5, exchanges
    freed: list[Any] = []
    others.contact.close = freed.append  # type: ignore[method-assign]
    others.close()
    peers.contact.ask = lambda ranks, operation: {1: freed[0](operation)}  # type: ignore[method-assign]
    all_ranks = AllRanks(peers, peers.is_behind) if is_late else AllRanks(peers)
    assert search(peers, all_ranks).ask([1], 9) == gone
    assert all_ranks() == ([1] if gone else [])


def test_a_rank_that_is_silent_once_is_not_left_out() -> None:
    peers = Peers(0, 3)
    peers.contact = contact(0)
    said: list[dict[int, Answer | str]] = [{1: Answer("came"), 2: SILENT}, {2: Answer("came")}]
    answers = iter(said)
    peers.contact.ask = lambda ranks, operation: next(answers)  # type: ignore[method-assign]
    assert peers.hear([0, 1, 2], 7) == (set(), {0: "", 1: "came", 2: "came"})


def test_the_error_follows_who_waits_for_whom() -> None:
    """Rank 0 waits for rank 1, which waits for rank 2, which is asked, and left by an error."""
    peers = Peers(0, 3)
    peers.contact = contact(0)
    answers = {1: Answer(awaits=2), 2: Answer("ZeroDivisionError: planted")}
    peers.contact.ask = lambda ranks, operation: {each: answers[each] for each in ranks}  # type: ignore[method-assign]
    error = peers.lost(Stage("allreduce ring", 2, 4, -5), [1], "which did not come in 2 s")
    assert isinstance(error, RankLost)
    assert error.rank == 2
    assert error.reason == (
        "allreduce ring, round 2 of 4: rank 0 waits for rank 1, which waits for rank 2, which has "
        "left it: ZeroDivisionError: planted"
    )
