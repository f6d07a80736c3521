"""Every collective and algorithm against NumPy: shapes, roots, counts, order; methods, groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expect import expected, input_shape, values
from layouts import Layout
from run_collective import (
    EVERY,
    EVERY_REDUCTION,
    ROOTED,
    UNEVEN,
    affine,
    compare,
    device,
    pairs_of_op_and_dtype,
    run,
)  # fmt: skip

from mpicoll import Collectives, Unavailable, Unsupported, user_op
from mpicoll.algorithms.registry import algorithms
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.elements import OPS


def is_librarys(algorithm: str) -> bool:
    """Whether a launch runs it: schedules run there in `engine/test_shared_memory.py`."""
    return algorithm == "auto" or "native" in algorithm


def marked(name: str, algorithm: str, *more: bool) -> Any:
    """Return one case; threads have no persistent calls."""
    only = () if is_librarys(algorithm) else pytest.mark.threads_only
    if algorithm == "native_persistent":
        only = pytest.mark.launch_only
    return pytest.param(name, algorithm, *more, marks=only)


def cases(found: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """Parametrise by some of `EVERY`."""
    return pytest.mark.parametrize(("name", "algorithm"), [marked(*each) for each in found])


def in_turns(found: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """Parametrise by some of `EVERY`, the library's both in place and not, schedules by turns."""
    both = [
        marked(*each, turn)
        for index, each in enumerate(found)
        for turn in ((False, True) if is_librarys(each[1]) else (index % 2 == 1,))
    ]
    return pytest.mark.parametrize(("name", "algorithm", "in_place"), both)


every = cases(EVERY)


@pytest.mark.kept_group
@pytest.mark.ranks(2, more=(5,))
@in_turns(EVERY)
def test_serves_the_last_root(c: Collectives, name: str, algorithm: str, in_place: bool) -> None:
    in_place ^= c.size % 2 == 1  # schedules meet the other turn on five ranks
    run(c, name, algorithm, root=c.size - 1 if name in ROOTED else 0, in_place=in_place)


@pytest.mark.kept_group
@pytest.mark.threads_only
@pytest.mark.ranks(Layout(4, per_node=2))
@every
@pytest.mark.parametrize(("row", "in_place"), [((), False), ((0,), True), ((2, 3), True)], ids=str)
def test_serves_every_shape(
    c: Collectives, name: str, algorithm: str, row: tuple[int, ...], in_place: bool
) -> None:
    run(c, name, algorithm, row=row, in_place=in_place)


@pytest.mark.kept_group
@pytest.mark.threads_only
@pytest.mark.ranks(Layout(4, per_node=2), more=(7,))
@cases([each for each in EVERY if each[0] in ROOTED])
@pytest.mark.parametrize(("nth", "in_place"), [(1, True), (-2, False)])
def test_serves_every_root(
    c: Collectives, name: str, algorithm: str, nth: int, in_place: bool
) -> None:
    run(c, name, algorithm, root=nth % c.size, in_place=in_place)


@pytest.mark.kept_group
@pytest.mark.ranks(3)
@cases([each for each in EVERY if each[0] in UNEVEN])
@pytest.mark.parametrize(("step", "in_place"), [(0, True), (1, False), (3, True)])
def test_serves_uneven_counts(
    c: Collectives, name: str, algorithm: str, step: int, in_place: bool
) -> None:
    ranks = range(c.size)
    counts: Any = [(step * rank) % 5 for rank in ranks]
    if name == "alltoall":
        counts = [[(step * i + j) % 4 for j in ranks] for i in ranks]
        in_place = False
    run(c, name, algorithm, row=(2,), counts=counts, in_place=in_place)


@pytest.mark.kept_group
@pytest.mark.ranks(3)
@in_turns(EVERY_REDUCTION)
def test_keeps_rank_order(c: Collectives, name: str, algorithm: str, in_place: bool) -> None:
    """An operator that does not commute is folded in rank order, or refused."""
    run(c, name, algorithm, dtype="uint8", op=affine, in_place=in_place)


@pytest.mark.kept_group
@pytest.mark.ranks(3)
@cases(EVERY_REDUCTION)
def test_folds_a_commutative_function(c: Collectives, name: str, algorithm: str) -> None:
    gcd = user_op(lambda left, right: left & right, commutative=True)
    inputs = [
        values(input_shape(name, c.size, rank, (7,), None), "uint8", rank, affine)
        for rank in range(c.size)
    ]
    wanted = expected(name, inputs, "band", 0, None)[c.rank]
    try:
        plan = c.plan(name, device(c, inputs[c.rank], "uint8"), op=gcd, algorithm=algorithm)
    except (Unavailable, Unsupported) as refused:
        pytest.skip(str(refused))
    with plan:
        plan.run()
        compare(c, plan.out, wanted, "uint8")


@pytest.mark.parametrize("algorithm", ["auto", "native", *map(str, algorithms("barrier"))])
def test_barrier_waits_for_the_last(c: Collectives, algorithm: str) -> None:
    """Nobody leaves before the last one comes, who says when on a clock that all share."""
    import time

    with c.plan("barrier", algorithm=algorithm) as plan:
        plan.run()
        last = c.size - 1
        if c.rank == last:
            time.sleep(0.02)
        arrived = time.monotonic()
        plan.run()
        left = time.monotonic()
        assert min(c.exchange(left)) >= c.exchange(arrived)[last]
        plan.start().wait()


@pytest.mark.parametrize("name", ["allreduce", "scan", "reduce", "broadcast", "gather"])
def test_plans_take_by_position_what_methods_take(c: Collectives, name: str) -> None:
    op, root = ("max" if name in ("allreduce", "scan", "reduce") else "sum"), c.size - 1
    positional = {"allreduce": (op,), "scan": (op,), "reduce": (op, root)}.get(name, (root,))
    inputs = [values(input_shape(name, c.size, rank, (5,), None), "float32", rank)
              for rank in range(c.size)]  # fmt: skip
    wanted = expected(name, inputs, op, root, None)[c.rank]
    x = device(c, inputs[c.rank], "float32")
    compare(c, getattr(c, name)(x, *positional), wanted, "float32")
    with c.plan(name, x, *positional) as plan:
        plan.run()
        compare(c, plan.out, wanted, "float32")
    with pytest.raises(TypeError, match="too many positional arguments"):
        c.plan(name, x, *positional, 0, 0)


@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name != "barrier"])
def test_methods_return_what_plans_do(c: Collectives, name: str) -> None:
    """The methods run thrice: agreed, built and cached."""
    inputs = [values(input_shape(name, c.size, rank, (5,), None), "float32", rank)
              for rank in range(c.size)]  # fmt: skip
    wanted = expected(name, inputs, "sum", 0, None)[c.rank]
    method = getattr(c, name)
    for _ in range(3):
        compare(c, method(device(c, inputs[c.rank], "float32")), wanted, "float32")


@pytest.mark.parametrize("name", ["broadcast", "scatter"])
def test_only_the_root_needs_to_know(c: Collectives, name: str) -> None:
    root = c.size - 1
    shape = input_shape(name, c.size, root, (3, 2), None)
    host = values(shape, "float64", root)
    x = device(c, host, "float64") if c.rank == root else None
    got = getattr(c, name)(x, root)
    compare(c, got, host if name == "broadcast" else host[c.rank], "float64")


def test_writes_into_out(c: Collectives) -> None:
    x = device(c, np.arange(6.0), "float64")
    out = device(c, np.zeros(6), "float64")
    assert c.allreduce(x, out=out) is out
    compare(c, out, np.arange(6.0) * c.size, "float64")
    assert c.allreduce(x, out=x) is x
    compare(c, x, np.arange(6.0) * c.size, "float64")


def test_started_plans_overlap(c: Collectives) -> None:
    """Ranks may wait in different orders, and run another plan before they do."""
    x = device(c, np.arange(100.0) + c.rank, "float64")
    wanted = expected("allreduce", [np.arange(100.0) + r for r in range(c.size)], "sum", 0, None)
    plans = [c.plan("allreduce", x, algorithm="ring") for _ in range(3)]
    with c.plan("allreduce", x, algorithm="recursive_doubling") as other:
        requests = [plan.start() for plan in plans]
        if c.rank % 2:
            requests.pop(1).wait()
        other.run()
        for request in requests if c.rank % 2 else reversed(requests):
            request.wait()
        compare(c, other.out, wanted[c.rank], "float64")
    for plan in plans:
        compare(c, plan.out, wanted[c.rank], "float64")
        plan.free()


def test_groups_are_independent(c: Collectives) -> None:
    """Halves by parity, in reversed order, and groups of groups."""
    part = c.split(c.rank % 2, key=-c.rank)
    assert part is not None
    members = [rank for rank in range(c.size) if rank % 2 == c.rank % 2][::-1]
    assert members[part.rank] == c.rank
    got = part.allgather(device(part, np.array([c.rank]), "int64"), algorithm="ring")
    compare(part, got, np.array(members).reshape(-1, 1), "int64")
    alone = part.split(None if part.rank else 0)
    assert (alone is None) == bool(part.rank)
    if alone is not None:
        assert alone.size == 1
        alone.free()
    part.free()
    with pytest.raises(RuntimeError, match="this group has been freed"):
        part.allgather(device(c, np.array([c.rank]), "int64"), algorithm="ring")
    with pytest.raises(RuntimeError, match="this group has been freed"):
        part.split(0)


def test_point_to_point(c: Collectives) -> None:
    right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    x = device(c, np.full(4, c.rank), "int32")
    out = device(c, np.zeros(4), "int32")
    if c.size == 1:
        pytest.skip("needs a peer")
    c.sendrecv(x, right, out, left, tag=3)
    compare(c, out, np.full(4, left), "int32")
    pending = [c.irecv(out, right), c.isend(x, left)]
    for request in pending:
        request.wait()
    compare(c, out, np.full(4, right), "int32")


def test_every_op_is_tested() -> None:
    assert {op for op, _ in pairs_of_op_and_dtype()} == set(OPS)
