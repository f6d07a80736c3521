"""Ranks as threads of one process: results, errors, lost ranks, nodes."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpicoll
from mpicoll import ArgumentError, Collectives, Deadlock, Disagreement, RankLost, Unavailable

ROOT = Path(__file__).parent.parent.parent


def total(c: Collectives, algorithm: str = "auto") -> Any:
    return c.allreduce(np.arange(3) + c.rank, algorithm=algorithm)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_returns_what_each_rank_does(size: int) -> None:
    found = mpicoll.threads(size)(lambda c, *given, last: (c.rank, c.size, *given, last), 7, last=8)
    assert found == [(rank, size, 7, 8) for rank in range(size)]


@pytest.mark.parametrize(
    ("algorithm", "transport"),
    [("ring@point-to-point", "point-to-point"), ("ring@symmetric", "symmetric"),
     ("native", "native"), ("native:reduce+broadcast", "native")],
)  # fmt: skip
def test_says_what_runs(algorithm: str, transport: str) -> None:
    def ask(c: Collectives) -> tuple[str, str, Any]:
        with c.plan("allreduce", np.ones(4), algorithm=algorithm) as plan:
            plan.run()
            return plan.algorithm, plan.transport, plan.out.tolist()

    assert mpicoll.threads(3)(ask) == [(algorithm.partition("@")[0], transport, [3.0] * 4)] * 3


def test_is_a_backend_of_its_own() -> None:
    def ask(c: Collectives) -> tuple[str, str, bool]:
        return c.backend, c.library, "native_persistent" in c.algorithms("allreduce")

    assert mpicoll.threads(2)(ask) == [("threads", "threads of one process", False)] * 2


def test_has_no_persistent_natives() -> None:
    with pytest.raises(Unavailable, match="no persistent collectives; use 'native'"):
        mpicoll.threads(2)(total, "native_persistent")


def test_nodes_share_memory() -> None:
    def ask(c: Collectives) -> tuple[Any, str]:
        with c.plan("allreduce", np.ones(4), algorithm="ring") as plan:
            plan.run()
            assert plan.out.tolist() == [3.0] * 4
            return c.nodes, plan.transport

    wanted = ((0, 1), (2,)), "symmetric+point-to-point"
    assert mpicoll.threads(3, ranks_per_node=2)(ask) == [wanted] * 3


def test_ranks_apart_have_no_shared_memory() -> None:
    def ask(c: Collectives) -> list[str]:
        assert total(c).tolist() == [3, 6, 9]
        return c.transports

    assert mpicoll.threads(3, ranks_per_node=1)(ask) == [["point-to-point"]] * 3


def test_a_group_keeps_its_nodes() -> None:
    """In the order of its own ranks, as other transports have it."""

    def ask(c: Collectives) -> tuple[int, Any]:
        part = c.split(c.rank % 2, key=-c.rank)
        assert part is not None
        with part:
            assert total(part, "ring").tolist() == [1, 3, 5]
            return part.rank, part.nodes

    found = mpicoll.threads(4, ranks_per_node=2)(ask)
    assert found == [(1, ((0,), (1,)))] * 2 + [(0, ((0,), (1,)))] * 2


def test_a_thread_sees_the_callers_context() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    token = variable.set(3)
    found = mpicoll.threads(2)(lambda c: variable.get())
    variable.reset(token)
    assert found == [3, 3]


# -- errors -----------------------------------------------------------------------------------


def test_raises_what_one_rank_raises() -> None:
    """The ranks that wait for it end at once, and are not in the way."""

    def fail(c: Collectives) -> None:
        if c.rank == 2:
            raise ValueError("planted")
        c.barrier()

    with pytest.raises(ValueError, match="planted") as caught:
        mpicoll.threads(4)(fail)
    assert caught.value.__notes__ == ["on rank 2 of 4"]


def test_raises_once_what_all_ranks_raise() -> None:
    with pytest.raises(ArgumentError, match="unknown op 'summ'") as caught:
        mpicoll.threads(3)(lambda c: c.allreduce(np.ones(3), "summ"))
    assert caught.value.__notes__ == ["on ranks 0, 1, 2 of 3"]


def test_raises_different_errors_together() -> None:
    def fail(c: Collectives) -> None:
        c.allreduce(np.ones(3), "summ" if c.rank == 1 else "sum")

    with pytest.raises(ExceptionGroup, match="3 of 3 ranks failed") as caught:
        mpicoll.threads(3)(fail)
    first, second = caught.value.exceptions
    assert isinstance(first, Disagreement) and first.__notes__ == ["on ranks 0, 2 of 3"]
    assert isinstance(second, ArgumentError) and second.__notes__ == ["on rank 1 of 3"]


def test_raises_what_is_no_exception() -> None:
    """Such as an exit, or a test that is skipped."""

    def leave(c: Collectives) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        mpicoll.threads(2)(leave)


@pytest.mark.parametrize(
    ("size", "options", "text"),
    [(0, {}, "size must be a number"), ("4", {}, "size must be"), (2.0, {}, "size must be"),
     (2, {"ranks_per_node": -1}, "ranks_per_node must be"), (2, {"deadline": 0}, "positive")],
)  # fmt: skip
def test_refuses_bad_arguments(size: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        mpicoll.threads(size, **options)


# -- lost ranks -------------------------------------------------------------------------------

WAITS: dict[str, Callable[[Collectives], Any]] = {
    "method": total,
    "native": lambda c: c.plan("allreduce", np.ones(3), algorithm="native").run(),
    "messages": lambda c: c.plan("allreduce", np.ones(3), algorithm="ring@point-to-point").run(),
    "shared memory": lambda c: c.plan("allreduce", np.ones(3), algorithm="ring@symmetric").run(),
    "receive": lambda c: c.recv(np.ones(3), c.size - 1),
    "exchange": lambda c: c.exchange(3),
    "split": lambda c: c.split(0),
}


@pytest.mark.parametrize("how", ["failed with KeyError", "has ended"])
@pytest.mark.parametrize("nodes", [1, 4], ids=["one node", "many nodes"])
@pytest.mark.parametrize("wait", [wait for wait in WAITS if wait != "shared memory"])
def test_a_lost_rank_ends_every_wait(wait: str, nodes: int, how: str) -> None:
    """Long before the deadline, and the others name it."""

    def lose(c: Collectives) -> None:
        if c.rank == c.size - 1:
            if how == "has ended":
                return
            raise KeyError("planted")
        with pytest.raises(RankLost, match=f"waits for rank (3, which {how}|., which )") as caught:
            WAITS[wait](c)
        said.append(str(caught.value))

    said: list[str] = []
    began = time.monotonic()
    try:
        mpicoll.threads(4, ranks_per_node=4 // nodes)(lose)
    except KeyError:
        assert how != "has ended"
    assert time.monotonic() - began < 100
    assert any(f"waits for rank 3, which {how}" in each for each in said) and len(said) == 3


@pytest.mark.parametrize("started", [0, 1, 3], ids=["run", "one started", "some started"])
@pytest.mark.parametrize("transport", ["point-to-point", "symmetric"])
def test_a_rank_lost_after_binding_ends_runs(transport: str, started: int) -> None:
    def lose(c: Collectives) -> None:
        algorithm = f"two_shot@{transport}"
        plans = [c.plan("allreduce", np.ones(300), algorithm=algorithm) for _ in range(3)]
        plans[0].run()
        if c.rank == 2:
            raise KeyError("planted")
        requests = [plan.start() for plan in plans[:started]]
        for wait in [request.wait for request in requests] or [plans[0].run]:
            with pytest.raises(RankLost, match=r"which failed with KeyError|which has ended"):
                wait()

    began = time.monotonic()
    with pytest.raises(KeyError):
        mpicoll.threads(3)(lose)
    assert time.monotonic() - began < 100


@pytest.mark.parametrize("transport", ["point-to-point", "symmetric", "native"])
def test_a_deadlock_ends_by_the_deadline(transport: str) -> None:
    """Rank 0 calls once more than the others, who wait for a message that nobody sends."""
    algorithm = "native" if transport == "native" else f"ring@{transport}"

    def hang(c: Collectives) -> None:
        plan = c.plan("allreduce", np.ones(3), algorithm=algorithm)
        if c.rank:
            c.recv(np.ones(1), 0)
        plan.run()

    with pytest.raises(ExceptionGroup, match="2 of 2 ranks failed") as caught:
        mpicoll.threads(2, deadline=0.2)(hang)
    said = [str(each) for each in caught.value.exceptions]
    assert all(isinstance(each, RankLost) for each in caught.value.exceptions)
    assert any("did not come in" in each for each in said)


@pytest.mark.parametrize("what", ["point-to-point", "symmetric", "native", "message"])
def test_a_loop_of_tests_ends_by_the_deadline(what: str) -> None:
    """Rank 1 comes too late; what is computed between a start and the first test does not count."""
    algorithm = "native" if what == "native" else f"ring@{what}"
    over = threading.Event()

    def hang(c: Collectives) -> None:
        plan = c.plan("allreduce", np.ones(3), algorithm=algorithm) if what != "message" else None
        if c.rank:
            over.wait(20)
            return
        request = plan.start() if plan else c.irecv(np.ones(1), 1)
        time.sleep(0.6)
        assert not request.test()
        c.deadline = 1.5
        try:
            while not request.test():
                time.sleep(0.01)
        finally:
            over.set()

    with pytest.raises(RankLost, match=r"rank 0 waits for rank 1, which did not come in 1\.5"):
        mpicoll.threads(2)(hang)


def test_the_deadline_may_be_set_within() -> None:
    def hang(c: Collectives) -> None:
        c.deadline = 0.1
        c.recv(np.ones(1), 1 - c.rank)

    with pytest.raises(ExceptionGroup):
        mpicoll.threads(2)(hang)


def test_waiting_for_ones_own_message_is_a_deadlock() -> None:
    with pytest.raises(Deadlock, match="from itself that it has not sent"):
        mpicoll.threads(2)(lambda c: c.recv(np.ones(2), c.rank))


# -- messages ---------------------------------------------------------------------------------


def test_messages_are_matched_in_order_under_each_tag() -> None:
    """Whether they are asked for before they are sent, or after."""

    def talk(c: Collectives) -> list[float]:
        if c.rank == 0:
            c.send(np.array([1.0]), 1, tag=3)
            c.send(np.array([2.0]), 1, tag=3)
            c.send(np.array([9.0]), 1, tag=4)
            return []
        a, b, other = np.zeros(1), np.zeros(1), np.zeros(1)
        c.recv(other, 0, tag=4)
        requests = [c.irecv(a, 0, tag=3), c.irecv(b, 0, tag=3)]
        for each in reversed(requests):
            each.wait()
        return [a[0], b[0], other[0]]

    assert mpicoll.threads(2)(talk)[1] == [1.0, 2.0, 9.0]


def test_what_was_sent_may_be_written_again() -> None:
    def talk(c: Collectives) -> float:
        x = np.array([1.0])
        if c.rank == 0:
            c.send(x, 1)
            x[:] = 2.0
        c.barrier()
        return c.recv(np.zeros(1), 0)[0] if c.rank else 0.0

    assert mpicoll.threads(2)(talk)[1] == 1.0


@pytest.mark.parametrize("out", [np.zeros(2), np.zeros(3, "float32")], ids=["short", "dtype"])
def test_a_message_that_does_not_fit_is_an_error_of_the_receiver(out: Any) -> None:
    def talk(c: Collectives) -> None:
        if c.rank == 0:
            c.send(np.ones(3), 1)
        else:
            c.recv(out, 0)

    with pytest.raises(ArgumentError, match="3 elements of float64 were sent") as caught:
        mpicoll.threads(2)(talk)
    assert caught.value.__notes__ == ["on rank 1 of 2"]
