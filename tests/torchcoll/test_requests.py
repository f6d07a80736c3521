"""Operations under way: what is waited for, in which order, and what follows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from launcher import python

torch = pytest.importorskip("torch")
requests = pytest.importorskip("torchcoll.requests")


class Work:
    """A work of torch.distributed that notes when it is waited for."""

    def __init__(self, log: list[str], name: str, error: Exception | None = None) -> None:
        self.log, self.name, self.error = log, name, error

    def wait(self) -> None:
        if self.error is not None:
            raise self.error
        self.log.append(f"wait {self.name}")

    def is_completed(self) -> bool:
        return True


class Waits:
    """Waits for a work as long as torch does."""

    def __init__(self) -> None:
        self.ranks: list[int] = []

    def wait(self, work: Work, place: int) -> None:
        work.wait()


def note(log: list[str], text: str) -> Callable[[], None]:
    return lambda: log.append(text)


@pytest.mark.parametrize("polls", [True, False])
def test_what_follows_runs_once(polls: bool) -> None:
    log: list[str] = []
    posts = [lambda: Work(log, "a"), lambda: Work(log, "b")]
    works = requests.Works(posts, [note(log, "after")], polls=polls, waits=Waits())
    works.start()
    while not works.test():
        pass
    works.wait()
    assert log == ["wait a", "wait b", "after"]


def test_what_follows_one_work_precedes_the_wait_for_the_next() -> None:
    log: list[str] = []
    works = requests.Works(polls=False, waits=Waits())
    works.add(0, lambda: Work(log, "a"), note(log, "copy a"))
    works.add(1, lambda: Work(log, "b"))
    works.start()
    works.wait()
    assert log == ["wait a", "copy a", "wait b"]


def test_an_error_of_the_waiting_thread_is_raised_where_it_is_waited_for() -> None:
    posts = [lambda: Work([], "a", RuntimeError("lost"))]
    works = requests.Works(posts, polls=False, waits=Waits()).start()
    works.is_complete()
    with pytest.raises(RuntimeError, match="lost"):
        works.wait()


SELF = """
import torch, torchcoll
with torchcoll.world() as c:
    first, second, other, sent = torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.ones(1)
    early = c.irecv(first, 0, 5)
    print(early.test())
    c.isend(sent, 0, 5)
    print(early.test())
    c.isend(2 * sent, 0, 5)
    c.isend(3 * sent, 0, 6)
    c.irecv(other, 0, 6).wait()
    c.irecv(second, 0, 5).wait()
    print(first.item(), second.item(), other.item())
    try:
        c.irecv(first, 0).wait()
    except torchcoll.Deadlock as error:
        print(error)
"""


def test_messages_of_a_rank_to_itself_match_in_order_of_their_tag() -> None:
    done = python("-c", SELF, environment={"GLOO_SOCKET_IFNAME": "lo"})
    assert done.stdout.splitlines() == [
        "False", "True", "1.0 2.0 3.0",
        "this rank waits for a message from itself that it has not sent",
    ]  # fmt: skip
