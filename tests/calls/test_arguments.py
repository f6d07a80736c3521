"""Bad input: the same clear error on every rank, and the group works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from run_collective import compare, device, library

from mpicoll import ArgumentError, CollectiveError, Collectives, user_op
from mpicoll.notation.elements import ReduceOp

Bad = Callable[[Collectives], Any]


def add(left: Any, right: Any) -> Any:
    return left + right


def vector(c: Collectives, count: int = 4, dtype: str = "float32") -> Any:
    return device(c, np.zeros(count), dtype)


class Raising:
    """An argument of which nothing can be asked."""

    def __index__(self) -> int:
        raise RuntimeError("planted")

    def __repr__(self) -> str:
        raise RuntimeError("planted")


class Unhashable:
    """An operator that is no key of a dictionary."""

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, left: Any, right: Any) -> Any:
        return left + right

    def method(self, left: Any, right: Any) -> Any:
        return self(left, right)


EVERYWHERE: dict[str, tuple[str, Bad]] = {
    "collective": ("unknown collective 'allredduce': did you mean 'allreduce'",
                   lambda c: c.plan("allredduce", vector(c))),
    "algorithm": ("unknown allreduce algorithm 'rng'",
                  lambda c: c.allreduce(vector(c), algorithm="rng")),
    "removed algorithm": (
        "unknown allreduce algorithm 'adaptive': python -m mpicoll.tune now measures",
        lambda c: c.plan("allreduce", vector(c), algorithm="adaptive")),
    "removed algorithm over a transport": ("mpicoll.tune now measures",
                                           lambda c: c.barrier(algorithm="adaptive@cma")),
    "parameter": ("has no 'radius'",
                  lambda c: c.broadcast(vector(c), algorithm="knomial(radius=3)")),
    "parameter value": ("at least 2",
                        lambda c: c.broadcast(vector(c), algorithm="knomial(radix=1)")),
    "inner algorithm, which one rank of a node runs": (
        "unknown broadcast algorithm 'hello'",
        lambda c: c.plan("broadcast", vector(c), algorithm="two_level(across=hello)")),
    "composition": ("unknown allreduce composition",
                    lambda c: c.allreduce(vector(c), algorithm="native:scan+reduce")),
    "op": ("unknown op 'summ'", lambda c: c.allreduce(vector(c), "summ")),
    "op on dtype": ("op 'band' is not defined on float32",
                    lambda c: c.allreduce(vector(c), "band")),
    "mean of integers": ("op 'avg' is not defined on int32",
                         lambda c: c.allreduce(vector(c, 4, "int32"), "avg")),
    "prefix mean": ("scan has no op 'avg'", lambda c: c.scan(vector(c), "avg")),
    "root": ("root=99 is out of range", lambda c: c.broadcast(vector(c), 99)),
    "negative root": ("root=-1 is out of range", lambda c: c.reduce(vector(c), root=-1)),
    "no array": ("not an array", lambda c: c.allreduce([1.0, 2.0])),
    "nothing": ("needs an array", lambda c: c.allreduce(None)),
    "rows": ("its first axis is one row per rank", lambda c: c.alltoall(vector(c, 5 * c.size + 1))),
    "out shape": ("out of allreduce has shape (3,)",
                  lambda c: c.allreduce(vector(c), out=vector(c, 3))),
    "out dtype": ("out is float64 where x is float32",
                  lambda c: c.allreduce(vector(c), out=vector(c, 4, "float64"))),
    "counts length": ("does not match",
                      lambda c: c.allgather(vector(c), counts=[4] * (c.size + 1))),
    "counts sum": ("needs (5,)", lambda c: c.allgather(vector(c), counts=[5] * c.size)),
    "negative counts": ("negative", lambda c: c.allgather(vector(c), counts=[-1] * c.size)),
    "counts on a vector": ("takes no counts",
                           lambda c: c.plan("allreduce", vector(c), counts=[1] * c.size)),
    "counts no matrix": ("a matrix", lambda c: c.alltoall(vector(c), counts=[1] * c.size)),
    "not contiguous": ("not C-contiguous", lambda c: c.allreduce(vector(c, 8)[::2])),
    "composition over a transport": (
        "native:reduce+broadcast chooses its own transport",
        lambda c: c.allreduce(vector(c), algorithm="native:reduce+broadcast@symmetric")),
    "tag": ("tag must be a number", lambda c: c.isend(vector(c), 0, -5)),
    "peer": ("peer=77 is out of range", lambda c: c.isend(vector(c), 77)),
}  # fmt: skip


@pytest.mark.parametrize("case", EVERYWHERE)
def test_is_refused_everywhere(c: Collectives, case: str) -> None:
    message, bad = EVERYWHERE[case]
    with pytest.raises(CollectiveError) as caught:
        bad(c)
    assert message in str(caught.value)
    still_works(c)


ON_ONE_RANK: dict[str, tuple[str, Bad, Bad]] = {
    "shape": ("shape differs", lambda c: c.allreduce(vector(c, 5)),
              lambda c: c.allreduce(vector(c))),
    "dtype": ("dtype differs", lambda c: c.allreduce(vector(c, 4, "float64")),
              lambda c: c.allreduce(vector(c))),
    "op": ("op differs", lambda c: c.allreduce(vector(c), "max"),
           lambda c: c.allreduce(vector(c))),
    "commutative": ("op differs: rank 0 has 'add (a function)'",
                    lambda c: c.allreduce(vector(c), user_op(add, commutative=True)),
                    lambda c: c.allreduce(vector(c), add)),
    "namesake": ("op differs: rank 0 has 'sum', rank",
                 lambda c: c.allreduce(vector(c), ReduceOp("sum", function=add)),
                 lambda c: c.allreduce(vector(c), "sum")),
    "root": ("root differs", lambda c: c.broadcast(vector(c), c.size - 1),
             lambda c: c.broadcast(vector(c))),
    "algorithm": ("algorithm differs", lambda c: c.allreduce(vector(c), algorithm="ring"),
                  lambda c: c.allreduce(vector(c), algorithm="recursive_doubling")),
    "collective": ("collective differs", lambda c: c.scan(vector(c)),
                   lambda c: c.allreduce(vector(c))),
    "counts": ("counts differs", lambda c: c.allgather(vector(c), counts=[4] * c.size),
               lambda c: c.allgather(vector(c, 3), counts=[3] * c.size)),
    "error": ("unknown op", lambda c: c.allreduce(vector(c), "summ"),
              lambda c: c.allreduce(vector(c))),
    "in place": ("in place differs", lambda c: c.allreduce(x := vector(c), out=x),
                 lambda c: c.allreduce(vector(c))),
    "no parameter": ("not of the form",
                     lambda c: c.broadcast(vector(c), algorithm="chain(segments={[]: 1})"),
                     lambda c: c.broadcast(vector(c))),
    "unbounded parameter": ("must be at most",
                            lambda c: c.broadcast(vector(c), algorithm=f"chain(segments={10**9})"),
                            lambda c: c.broadcast(vector(c))),
    "deep algorithm": ("longer than",
                       lambda c: c.allreduce(vector(c), algorithm="two_level(across=" * 200),
                       lambda c: c.allreduce(vector(c))),
    "an argument that raises": ("cannot be checked: RuntimeError: 'planted'",
                                lambda c: c.broadcast(vector(c), Raising()),
                                lambda c: c.broadcast(vector(c))),
    "missing": ("needs an array", lambda c: c.reduce_scatter(None),
                lambda c: c.reduce_scatter(vector(c, c.size))),
}  # fmt: skip


@pytest.mark.parametrize("case", ON_ONE_RANK)
def test_one_deviating_rank_is_told_to_all(c: Collectives, case: str) -> None:
    """No rank hangs: each gets the error, and the next call works."""
    if c.size == 1:
        pytest.skip("needs two ranks")
    message, odd, even = ON_ONE_RANK[case]
    with pytest.raises(ArgumentError) as caught:
        (odd if c.rank == c.size - 1 else even)(c)
    assert message in str(caught.value)
    still_works(c)


@pytest.mark.parametrize("bound", [True, False], ids=["a method", "an object"])
def test_an_operator_need_not_be_hashable(c: Collectives, bound: bool) -> None:
    """Calls with the same one share a plan."""
    op = Unhashable()
    before = len(c.plans.plans)
    for _ in range(3):
        one = device(c, np.ones(3), "float32")
        found = c.allreduce(one, op.method if bound else op, algorithm="recursive_doubling")
        compare(c, found, np.full(3, c.size), "float32")
    assert len(c.plans.plans) == before + 1


def read_only(c: Collectives) -> Any:
    array = np.zeros(4, "float32")
    array.flags.writeable = False
    return array


def nested(c: Collectives) -> Any:
    import torch

    return torch.nested.nested_tensor([torch.zeros(2)])


UNFIT: dict[str, tuple[str, str, Bad]] = {
    "out": ("numpy", "out is read-only", lambda c: c.allreduce(vector(c), out=read_only(c))),
    "matrix": ("numpy", "x is a matrix", lambda c: c.allreduce(np.matrix([[1.0, 2.0]]))),
    "masked": ("numpy", "x is a MaskedArray", lambda c: c.allreduce(np.ma.zeros(4))),
    "meta": ("torch", "x is on device meta", lambda c: c.allreduce(vector(c).to("meta"))),
    "nested": ("torch", "x is a nested tensor", lambda c: c.allreduce(nested(c))),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:the matrix subclass", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("alone", [True, False], ids=["on one rank", "everywhere"])
@pytest.mark.parametrize("case", UNFIT)
def test_memory_of_other_rules_is_refused(c: Collectives, case: str, alone: bool) -> None:
    whose, message, bad = UNFIT[case]
    if library(c) != whose:
        pytest.skip(f"{whose} alone has such memory")
    odd = not alone or c.rank == c.size - 1
    with pytest.raises(ArgumentError, match=message):
        (bad if odd else lambda c: c.allreduce(vector(c)))(c)
    still_works(c)


def test_a_message_is_not_received_into_what_cannot_be_written(c: Collectives) -> None:
    if library(c) != "numpy":
        pytest.skip("every tensor can be written")
    with pytest.raises(ArgumentError, match="out is read-only"):
        c.irecv(read_only(c), 0)
    c.irecv(vector(c), c.rank), c.send(read_only(c), c.rank)


@pytest.mark.parametrize("alone", [True, False], ids=["on one rank", "everywhere"])
@pytest.mark.parametrize(
    ("color", "key", "label"),
    [("a", 0, "color"), (1.5, 0, "color"), (-3, 0, "color"), (1 << 31, 0, "color"),
     (0, "k", "key"), (0, 0.5, "key"), (0, 1 << 31, "key")],
)  # fmt: skip
def test_a_group_is_named_by_whole_numbers(
    c: Collectives, color: Any, key: Any, label: str, alone: bool
) -> None:
    odd = not alone or c.rank == c.size - 1
    with pytest.raises(ArgumentError, match=f"{label} is None or a whole number from"):
        c.split(*(color, key) if odd else (0, 0))
    still_works(c)


@pytest.mark.parametrize("color", [True, np.int8(1), (1 << 31) - 1], ids=repr)
def test_a_whole_number_of_any_type_is_a_color(c: Collectives, color: Any) -> None:
    part = c.split(color if c.rank else int(color), np.int64(-c.rank))
    assert part is not None and part.size == c.size and part.rank == c.size - 1 - c.rank
    part.free()


def test_overlapping_buffers_are_refused(c: Collectives) -> None:
    memory = vector(c, 8)
    with pytest.raises(ArgumentError, match="overlap"):
        c.plan("allreduce", memory[:4], out=memory[2:6])
    still_works(c)


def test_size_constraint_is_told(c: Collectives) -> None:
    if c.size % 2 == 0 or c.size == 1:
        pytest.skip(f"{c.size} is served")
    with pytest.raises(CollectiveError, match="needs an even number of ranks"):
        c.allgather(vector(c), algorithm="neighbor_exchange")
    still_works(c)


def test_unordered_algorithm_names_ordered_ones(c: Collectives) -> None:
    if c.size < 3:
        pytest.skip("two ranks are always in order")
    with pytest.raises(CollectiveError, match="does not keep rank order") as caught:
        c.allreduce(vector(c), lambda left, right: left, algorithm="ring")
    assert "recursive_doubling" in str(caught.value)
    still_works(c)


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    "made", [lambda x: None, lambda x: 3.0, lambda x: x[:1], lambda x: x * 1j],
    ids=["nothing", "a number", "fewer elements", "complex numbers"],
)  # fmt: skip
def test_what_an_operator_returns_is_checked(c: Collectives, made: Callable[[Any], Any]) -> None:
    """It would be spread over the result, or cut to its dtype."""
    with pytest.raises(ArgumentError, match=r"returned .*: folds here need"):
        c.allreduce(vector(c), lambda left, right: made(right), algorithm="one_shot")
    still_works(c)


def still_works(c: Collectives) -> None:
    one = device(c, np.ones(3), "float32")
    compare(c, c.allreduce(one, algorithm="recursive_doubling"), np.full(3, c.size), "float32")
