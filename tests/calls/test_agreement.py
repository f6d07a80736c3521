"""Ranks that are in different calls: the same clear error on all of them, and the group goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from threading import Event
from typing import Any

import numpy as np
import pytest
from run_collective import compare, device

from mpicoll import CollectiveError, Collectives, Disagreement
from mpicoll.machine.nodes import RANKS_PER_NODE
from mpicoll.machine.waited import Looks
from mpicoll.peers.contact import Contact, _Listener

pytestmark = pytest.mark.ranks(2, 3)


def ones(c: Collectives, count: int | tuple[int, ...] = 60, dtype: str = "float64") -> Any:
    return device(c, np.ones(count), dtype)


CALLS: dict[str, Callable[[Collectives], Any]] = {
    "allreduce": lambda c: c.allreduce(ones(c)),
    "another length": lambda c: c.allreduce(ones(c, 61)),
    "another dtype": lambda c: c.allreduce(ones(c, 60, "float32")),
    "another operator": lambda c: c.allreduce(ones(c), "max"),
    "a function": lambda c: c.allreduce(ones(c), add),
    "another algorithm": lambda c: c.allreduce(ones(c), algorithm="ring"),
    "native": lambda c: c.allreduce(ones(c), algorithm="native"),
    "native, another length": lambda c: c.allreduce(ones(c, 61), algorithm="native"),
    "in place": lambda c: in_place(c),
    "broadcast": lambda c: c.broadcast(ones(c)),
    "another root": lambda c: c.broadcast(ones(c), 1),
    "gather": lambda c: c.gather(ones(c)),
    "reduce": lambda c: c.reduce(ones(c)),
    "scan": lambda c: c.scan(ones(c)),
    "a long scan": lambda c: c.scan(ones(c, 1 << 12)),
    "scatter": lambda c: c.scatter(ones(c, (c.size, 60)) if c.rank == 0 else None),
    "broadcast by messages": lambda c: c.broadcast(ones(c), algorithm="binomial"),
    "reduce by messages": lambda c: c.reduce(ones(c), algorithm="binomial"),
    "a lot": lambda c: c.broadcast(ones(c, 1 << 16)),
    "barrier": lambda c: c.barrier(),
    "plan": lambda c: c.plan("allreduce", ones(c)),
    "exchange": lambda c: c.exchange(c.rank),
    "split": lambda c: c.split(0),
    "allocate": lambda c: c.allocate(60),
    "wrong": lambda c: c.allreduce([1.0]),
    "wrong root": lambda c: c.broadcast(ones(c), 77),
    "wrong output": lambda c: c.allreduce(ones(c), out=ones(c, 3)),
}


def add(left: Any, right: Any) -> Any:
    return left + right


def in_place(c: Collectives) -> Any:
    x = ones(c)
    return c.allreduce(x, out=x)


def goes_on(c: Collectives) -> None:
    for _ in range(3):
        compare(c, c.allreduce(ones(c)), np.full(60, c.size), "float64")
        compare(c, c.broadcast(ones(c)), np.ones(60), "float64")


def differ(c: Collectives, name: str, deviating: str) -> None:
    """The last rank makes another call: all hear of the same difference, and who differs."""
    with pytest.raises(CollectiveError) as caught:
        CALLS[deviating if c.rank == c.size - 1 else name](c)
    own = re.sub(r"^rank \d+: ", "", str(caught.value))  # what a rank says of another
    assert name.startswith("wrong") or c.exchange(own) == [own] * c.size


OTHERS = ("barrier", "plan", "exchange", "split", "allocate", "wrong")
PAIRS = [("allreduce", each) for each in CALLS if each != "allreduce"]
PAIRS += [("native", each) for each in ("native, another length", "barrier", "plan", "wrong")]
PAIRS += [("broadcast", "another root"), *permutations(OTHERS, 2)]
BETWEEN_NODES = [("allreduce", each) for each in ("another length", "barrier", "plan", "wrong")]
BETWEEN_NODES += [("broadcast", "another root"), ("barrier", "split"), ("wrong", "exchange")]
ONE_WAY = (
    "broadcast", "scatter", "reduce", "gather", "scan", "a long scan", "broadcast by messages",
    "reduce by messages", "a lot",
)  # fmt: skip
BETWEEN_NODES += [pair for each in ONE_WAY for pair in ((each, "barrier"), ("barrier", each))]


@pytest.mark.parametrize(("name", "deviating"), PAIRS)
def test_ranks_in_different_calls(c: Collectives, name: str, deviating: str) -> None:
    differ(c, name, deviating)
    goes_on(c)
    for each in (name, deviating):  # both are known now, if they can be
        for _ in range(3):
            try:
                CALLS[each](c)
            except CollectiveError:
                assert each.startswith("wrong")
    differ(c, name, deviating)
    goes_on(c)


@pytest.mark.parametrize("make", [lambda c: c.allreduce, lambda c: partial(c.plan, "allreduce")])
def test_an_error_of_the_arguments_is_brief(c: Collectives, make: Callable[..., Any]) -> None:
    """Every rank prints it: the method, and no frame of what compares the calls."""
    with pytest.raises(Disagreement) as raised:
        make(c)(ones(c, 60 if c.rank else 61))
    inner = [frame for frame in raised.traceback if "/mpicoll/" in str(frame.path)]
    assert len(inner) <= 3
    goes_on(c)


@pytest.fixture
def apart(c: Collectives) -> Iterator[Collectives]:
    """The same ranks, two on each node."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RANKS_PER_NODE, "2")
        part = c.split(0)
    assert part is not None
    if len(part.nodes) == 1:
        part.free()
        pytest.skip("the ranks share a node")
    yield part
    part.free()


@pytest.mark.launch_only
@pytest.mark.parametrize(("name", "deviating"), BETWEEN_NODES)
def test_ranks_of_several_nodes_in_different_calls(
    apart: Collectives, name: str, deviating: str
) -> None:
    test_ranks_in_different_calls(apart, name, deviating)


@pytest.mark.launch_only
@pytest.mark.parametrize("name", ["native", "exchange", "reduce by messages"])
def test_a_look_at_a_late_rank_is_one_question(
    apart: Collectives, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The rank comes once it has been asked, so others have looked."""
    if apart.backend != "mpi4py":
        pytest.skip("ranks wait in gloo, and ask nobody")
    c, run, was_asked = apart, CALLS[name], Event()
    questions, looks = list[int](), list[bool]()
    ask, answer, is_due = Contact._ask_once, _Listener._answer, Looks.is_due

    def ask_once(contact: Contact, rank: int, question: Any) -> Any:
        questions.append(rank)
        return ask(contact, rank, question)

    def tell(listener: _Listener, connection: Any) -> None:
        answer(listener, connection)
        was_asked.set()

    def look(waited: Looks) -> bool:
        looks.append(is_due(waited))
        return looks[-1]

    for _ in range(2):
        run(c)
    monkeypatch.setattr(Contact, "_ask_once", ask_once)
    monkeypatch.setattr(_Listener, "_answer", tell)
    monkeypatch.setattr(Looks, "is_due", look)
    if c.rank == c.size - 1:
        assert was_asked.wait(100)
    run(c)
    counts = len(questions), sum(looks)
    all_questions, all_looks = zip(*c.exchange(counts, tuple[int, int]), strict=True)
    assert 0 < sum(all_questions) <= sum(all_looks) + 1


@pytest.mark.launch_only
@pytest.mark.parametrize("name", ["reduce", "scan"])
def test_the_group_goes_on_after_the_last_rank_of_a_call_raised(
    apart: Collectives, name: str
) -> None:
    """Those that have given their part have left the call."""
    if apart.backend != "mpi4py":
        pytest.skip("gloo sends to a rank that receives")
    c, x, raises = apart, ones(apart), False
    last = 0 if name == "reduce" else c.size - 1

    def fold(left: Any, right: Any) -> Any:
        if raises and c.rank == last:
            raise ZeroDivisionError("planted")
        return left + right

    algorithm = "binomial" if name == "reduce" else "linear"
    call = partial(getattr(c, name), x, fold, algorithm=algorithm)
    for _ in range(3):
        call()
    raises = True
    if c.rank == last:
        with pytest.raises(ZeroDivisionError):
            call()
    else:
        call()
    goes_on(c)
    raises = False
    for _ in range(3):
        call()


@pytest.mark.launch_only
def test_known_calls_of_several_nodes(apart: Collectives) -> None:
    c, x, long = apart, ones(apart), ones(apart, 1 << 12)
    for _ in range(3):
        results = c.allreduce(x), c.broadcast(x, 1), c.reduce(x), c.allgather(x), c.scan(x)
        before = c.exscan(long)
    sums, same, folded, rows, prefix = results
    if c.rank:
        compare(c, before, np.full(1 << 12, c.rank), "float64")
    compare(c, sums, np.full(60, c.size), "float64")
    compare(c, same, np.ones(60), "float64")
    compare(c, rows, np.ones((c.size, 60)), "float64")
    compare(c, prefix, np.full(60, c.rank + 1), "float64")
    if c.rank == 0:
        compare(c, folded, np.full(60, c.size), "float64")
    for root in (0, c.size - 1):
        few = device(c, np.full(20, c.rank + 1.0), "float32")
        for _ in range(3):
            compare(c, c.broadcast(few, root), np.full(20, root + 1), "float32")
            gathered, folded = c.gather(few, root), c.reduce(few, "max", root)
            assert (gathered is None) == (folded is None) == (c.rank != root)
            if c.rank == root:
                each = np.repeat(np.arange(1, c.size + 1), 20).reshape(c.size, 20)
                compare(c, gathered, each, "float32")
                compare(c, folded, np.full(20, c.size), "float32")
    for count in (1 << 16, 1 << 17):  # large enough to be bound to the arrays of each call
        large = ones(c, count)
        for _ in range(3):
            compare(c, c.broadcast(large, 1), np.ones(count), "float64")
            compare(c, c.allreduce(large, out=ones(c, count)), np.full(count, c.size), "float64")


@pytest.mark.launch_only
@pytest.mark.parametrize("name", ["broadcast", "scatter"])
def test_only_the_root_has_an_array_in_a_call_that_is_left_to_the_library(
    apart: Collectives, name: str
) -> None:
    c = apart
    for count in (10, 70_000, 300_000):
        for _ in range(3):
            x = ones(c, (c.size, count), "float32") if c.rank == 1 else None
            shape = count if name == "scatter" else (c.size, count)
            compare(c, getattr(c, name)(x, 1), np.ones(shape), "float32")
