"""Calls of methods that are found by their arguments, without the checks of a first call."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from expect import case, input_shape
from run_collective import REDUCING, ROOTED, buffers, compare, device

from mpicoll import Collectives, Unavailable, user_op
from mpicoll.machine.nodes import RANKS_PER_NODE
from mpicoll.notation.contract import COLLECTIVES

pytestmark = pytest.mark.ranks(2, 3)


@contextmanager
def checked(c: Collectives) -> Iterator[list[tuple[Any, ...]]]:
    """The calls that are left to the checks from here on."""
    check, found = c.planner.checked, []

    def note(*given: Any) -> Any:
        found.append(given)
        return check(*given)

    c.planner.checked = note  # type: ignore[method-assign]
    yield found
    c.planner.checked = check  # type: ignore[method-assign]


@pytest.mark.parametrize("length", [60, 1 << 17])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("algorithm", ["auto", "native", "ring"])
def test_such_calls_are_checked_once(
    c: Collectives, algorithm: str, in_place: bool, length: int
) -> None:
    with checked(c) as calls:
        for turn in range(3):
            x = device(c, np.full(length, c.rank + turn), "int32")
            out = x if in_place else device(c, np.zeros(length), "int32")
            c.allreduce(x, out=out, algorithm=algorithm)
            compare(c, out, np.full(length, sum(range(c.size)) + c.size * turn), "int32")
    # A channel serves a known call of any length.
    assert len(calls) == 1 or (algorithm == "auto" and c.backend != "threads" and not calls)


@pytest.mark.parametrize(
    ("dtype", "op"), [("int32", "sum"), ("float16", "max"), ("float64", "avg")]
)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name != "barrier"])
def test_the_librarys_own_call_runs_on_any_arrays(
    c: Collectives, name: str, in_place: bool, dtype: str, op: str
) -> None:
    """And keeps none of them."""
    if op == "avg" and name in ("scan", "exscan"):
        pytest.skip("a mean has no prefix form")
    shapes = tuple(input_shape(name, c.size, rank, (5,), None) for rank in range(c.size))
    given: dict[str, Any] = {"root": c.size - 1} if name in ROOTED else {}
    given |= {"op": op} if name in REDUCING else {}
    seen = []
    with checked(c) as calls:
        for turn in range(4):
            inputs, results = case(name, shapes, dtype, op, c.size - 1, shift=turn)
            own, wanted = inputs[c.rank], results[c.rank]
            x, out = device(c, own, dtype), None
            if in_place:
                x, out = buffers(c, name, own, dtype, None)
            elif name == "scatter":  # all but the root learn its row from `out`
                out = device(c, np.zeros(5), dtype)
            try:
                found = getattr(c, name)(x, out=out, algorithm="native", **given)
            except Unavailable as refused:
                pytest.skip(str(refused))
            compare(c, found, wanted, dtype)
            seen += [weakref.ref(array) for array in (x, out, found) if array is not None]
            del x, out, found
    assert len(calls) <= 2  # the first of a root in place is agreed on alone
    calls.clear()
    assert all(each() is None for each in seen)


@pytest.mark.parametrize("starts_plan", [False, True])
def test_ranks_without_arrays_meet_a_root_that_runs_its_plan(
    c: Collectives, starts_plan: bool
) -> None:
    """Between nodes the root looks for the others in each wait, also where a plan is under way."""
    x, deadline = device(c, np.arange(5), "int64"), c.deadline
    c.deadline = 20  # after which a root that does not look gives up
    for _ in range(2):
        c.broadcast(x)
    with c.plan("allreduce", x, op=user_op(add, commutative=True)) as plan:  # no thread runs it
        started = plan.start() if starts_plan and c.rank == 0 else None
        compare(c, c.broadcast(x if c.rank == 0 else None), np.arange(5), "int64")
        (started or plan.start()).wait()
        compare(c, plan.out, c.size * np.arange(5), "int64")
    c.deadline = deadline


@pytest.mark.parametrize("name", ["broadcast", "scatter"])
def test_one_plan_serves_calls_of_ranks_without_arrays(c: Collectives, name: str) -> None:
    """Mixed with calls in which all ranks have arrays, of the same shape or of another one."""
    part = c.split(0)
    assert part is not None
    root, rng = part.size - 1, np.random.default_rng(7)
    for turn in range(24):
        length, has_x, has_out = 3 + int(rng.integers(2)), rng.random() < 0.4, rng.random() < 0.4
        whole = np.arange(part.size * length).reshape(part.size, length) + turn
        given, wanted = (whole, whole[part.rank]) if name == "scatter" else (whole[0], whole[0])
        x = device(part, given, "int64") if has_x or part.rank == root else None
        out = device(part, np.zeros(length), "int64") if has_out else None
        compare(part, getattr(part, name)(x, root, out=out), wanted, "int64")
    assert len(part.plans.plans) <= 4  # of two lengths, in place or not
    part.free()


def test_a_call_without_arrays_is_checked_once(c: Collectives) -> None:
    with checked(c) as calls:
        for turn in range(5):
            x = device(c, np.arange(6) + turn, "int64") if c.rank == 0 else None
            compare(c, c.broadcast(x), np.arange(6) + turn, "int64")
    assert len(calls) == 1 or c.transport.shared is None


def test_all_ranks_hold_the_same_plans_after_a_call_without_arrays(c: Collectives) -> None:
    x, part = device(c, np.arange(5), "int64"), c.split(0)
    assert part is not None
    for given in (x, x, x if c.rank == 0 else None):
        compare(c, part.broadcast(given), np.arange(5), "int64")
    check_plans_are_alike(part)
    part.free()


def test_all_ranks_hold_the_same_plans_after_a_rank_alone_has_dropped_one(c: Collectives) -> None:
    x, part = device(c, np.arange(5), "int64"), c.split(0)
    assert part is not None
    for turn in range(4):
        for root in range(c.size):
            compare(c, part.broadcast(x, root), np.arange(5), "int64")
        compare(c, part.allgather(x), np.tile(np.arange(5), (c.size, 1)), "int64")
        compare(c, part.scan(x), (c.rank + 1) * np.arange(5), "int64")
        if turn == 1 and c.rank == 0:
            while part.plans.plans:
                part.plans.drop_oldest()
    check_plans_are_alike(part)
    part.free()


def check_plans_are_alike(part: Collectives) -> None:
    numbers = part.exchange([plan.number for plan in part.plans.plans.values()])
    assert numbers == numbers[:1] * part.size


def test_the_librarys_own_barrier_repeats(c: Collectives) -> None:
    """Between nodes its plan is a signal on an array, which the barrier has not."""
    for _ in range(4):
        c.barrier(algorithm="native")


def test_the_librarys_own_call_that_auto_takes_runs_in_place(
    c: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a user's operator, which no compiled program serves."""
    monkeypatch.setattr(c.chooser, "preferred", lambda arguments: ["native", "ring"])
    fold, length = user_op(add, commutative=True), 1 << 17
    for turn in range(3):
        x = device(c, np.full(length, c.rank + turn), "float64")
        assert c.allreduce(x, fold, out=x) is x
        compare(c, x, np.full(length, sum(range(c.size)) + c.size * turn), "float64")


def test_a_users_operator_is_known_again(c: Collectives) -> None:
    with checked(c) as calls:
        again = user_op(add)
        for operator in (add, add, again, again, subtract):
            found = c.allreduce(device(c, np.ones(7), "float64"), operator)
            if operator is not subtract:
                compare(c, found, np.full(7, c.size), "float64")
    assert len(calls) == 3, [each[3] for each in calls]


def fold_of(takes_most: bool) -> Any:
    return lambda left, right: left + right if takes_most else left * right


def test_functions_of_one_expression_share_a_plan_where_they_do_the_same(c: Collectives) -> None:
    x, part = device(c, np.full(3, 2.0), "float64"), c.split(0)
    assert part is not None
    takes_most, sums, products = True, np.full(3, 2.0 * c.size), np.full(3, 2.0**c.size)
    for turn in range(6):
        compare(part, part.allreduce(x, lambda left, right: left + right), sums, "float64")
        takes_most = turn % 3 == 0
        result = part.allreduce(x, lambda a, b: a + b if takes_most else a * b)  # noqa: B023
        compare(part, result, sums if takes_most else products, "float64")
    assert len(part.plans.plans) == 2
    for takes_most in (True, False):
        result = part.allreduce(x, fold_of(takes_most))
        compare(part, result, sums if takes_most else products, "float64")
    part.free()


def add(left: Any, right: Any) -> Any:
    return left + right


def subtract(left: Any, right: Any) -> Any:
    return left - right


def test_arrays_that_share_memory_in_another_way_are_checked(c: Collectives) -> None:
    want = np.arange(c.size * 4).reshape(c.size, 4)
    whole, other = device(c, want, "int32"), device(c, np.zeros(want.shape), "int32")
    with checked(c) as calls:
        for out in (whole, whole, other, other):
            c.allgather(whole[c.rank], out=out, algorithm="native")
    assert [each[2] is whole for each in calls] == [True, False]
    compare(c, other, want, "int32")


@pytest.mark.parametrize("kind", [tuple, list])
def test_counts_that_may_change_are_checked(c: Collectives, kind: type) -> None:
    counts = kind(kind(target for target in range(c.size)) for _ in range(c.size))
    x = device(c, np.full((sum(range(c.size)), 1), c.rank), "int32")
    want = np.repeat(np.arange(c.size), c.rank).reshape(-1, 1)
    with checked(c) as calls:
        for _ in range(3):
            compare(c, c.alltoall(x, counts=counts, algorithm="native"), want, "int32")
    assert len(calls) == (1 if kind is tuple else 3)


@pytest.mark.parametrize(("algorithm", "most"), [("native", 1), ("auto", 2)])
def test_the_librarys_own_calls_of_all_lengths_have_one_plan(
    c: Collectives, monkeypatch: pytest.MonkeyPatch, algorithm: str, most: int
) -> None:
    """Nodes of one rank, so that `auto` leaves all calls to MPI; the first one reads its tables."""
    if c.backend == "threads":
        pytest.skip("threads are one node")
    monkeypatch.setenv(RANKS_PER_NODE, "1")
    part = c.split(0)
    assert part is not None
    for length in (4, 1, 5, 0, 5, 3000):
        total = part.allreduce(device(part, np.full(length, c.rank), "int64"), algorithm=algorithm)
        compare(part, total, np.full(length, sum(range(c.size))), "int64")
    if c.backend == "mpi4py" or algorithm == "native":
        assert len(part.plans.plans) <= most
    part.free()
