"""What each collective promises: before, after, shapes of the result, factors, operators.

This is the one place that says what a rank holds before a collective and must hold
after it. The simulator's proof, the run-time check's expected values and the memory
layout all follow from it.

A *contribution* ``(rank, block)`` is what that rank held under that name at the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from mpicoll.errors import ArgumentError, UnknownName
from mpicoll.notation.schedule import Block

Contribution = tuple[int, Block]
Contents = dict[Block, tuple[Contribution, ...]]


class Place(NamedTuple):
    """Which rank of how many, which root, and into how many blocks vector or rows are cut."""

    rank: int
    size: int
    root: int
    blocks: int

    @property
    def parts(self) -> int:
        """Into how many blocks each row is cut: those of row i are i * parts and following."""
        return max(1, self.blocks // self.size)


@dataclass(frozen=True)
class Collective:
    """One collective operation.

    Attributes:
        before: blocks a rank holds at the start, in the order of its input array.
        after: blocks a rank must hold at the end, in the order of its output array,
            each with the contributions that its value is folded from, in rank order.
        unit: what a block is: a piece of every rank's ``vector``, one row per rank
            (``rows``), one row per pair of ranks (``pairs``), or nothing (barrier).
        synchronizes: no rank can end before all have begun, where no block is empty.
        busbw: factor from algorithm to bus bandwidth (nccl-tests' PERFORMANCE.md).
    """

    name: str
    before: Callable[[Place], list[Block]]
    after: Callable[[Place], Contents]
    unit: Literal["none", "vector", "rows", "pairs"] = "vector"
    rooted: bool = False
    reduces: bool = False
    synchronizes: bool = False
    busbw: Callable[[int], float] = lambda size: 1.0
    aliases: tuple[str, ...] = ()

    def holds_input(self, rank: int, root: int) -> bool:
        """Whether a rank gives an array to this collective."""
        return self.unit != "none" and (self.name not in ("broadcast", "scatter") or rank == root)

    def gets_output(self, rank: int, root: int) -> bool:
        """Whether a rank gets an array from this collective."""
        return self.unit != "none" and (self.name not in ("reduce", "gather") or rank == root)


def _vector(at: Place) -> list[Block]:
    return list(range(at.blocks))


def _rows(at: Place) -> list[Block]:
    return list(range(at.size * at.parts))


def _own(at: Place) -> list[Block]:
    return list(range(at.rank * at.parts, (at.rank + 1) * at.parts))


@lru_cache(maxsize=65536)
def _fold_of(ranks: range, block: Block) -> tuple[Contribution, ...]:
    return tuple((rank, block) for rank in ranks)


def _folded(ranks: range, blocks: list[Block]) -> Contents:
    return {block: _fold_of(ranks, block) for block in blocks}


def _at_root(contents: Callable[[Place], Any]) -> Callable[[Place], Any]:
    def rooted(at: Place) -> Any:
        found = contents(at)
        return found if at.rank == at.root else type(found)()

    return rooted


def _from_root(at: Place) -> Contents:
    return {block: ((at.root, block),) for block in _vector(at)}


def _reduced(at: Place) -> Contents:
    return _folded(range(at.size), _vector(at))


def _gathered(at: Place) -> Contents:
    return {block: ((block // at.parts, block),) for block in range(at.size * at.parts)}


def _exprefix(at: Place) -> Contents:
    return _folded(range(at.rank), _vector(at)) if at.rank else {}


def _rows_factor(size: int) -> float:
    return (size - 1) / size


COLLECTIVES = {
    each.name: each
    for each in (
        Collective("barrier", lambda at: [], lambda at: {}, unit="none", synchronizes=True),
        Collective(
            "broadcast", _at_root(_vector), _from_root, rooted=True, aliases=("bcast",)
        ),
        Collective("reduce", _vector, _at_root(_reduced), rooted=True, reduces=True),
        Collective(
            "allreduce", _vector, _reduced, reduces=True, synchronizes=True,
            busbw=lambda size: 2 * (size - 1) / size,
        ),
        Collective(
            "gather", _own, _at_root(_gathered), unit="rows", rooted=True, busbw=_rows_factor,
            aliases=("gatherv",),
        ),
        Collective(
            "allgather", _own, _gathered, unit="rows", synchronizes=True, busbw=_rows_factor,
            aliases=("allgatherv", "allgatherintotensor"),
        ),
        Collective(
            "scatter", _at_root(_rows),
            lambda at: {block: ((at.root, block),) for block in _own(at)}, unit="rows",
            rooted=True, busbw=_rows_factor, aliases=("scatterv",),
        ),
        Collective(
            "reduce_scatter", _rows, lambda at: _folded(range(at.size), _own(at)),
            unit="rows", reduces=True, synchronizes=True, busbw=_rows_factor,
            aliases=("reducescatterblock", "reducescattertensor"),
        ),
        Collective(
            "alltoall",
            lambda at: [(at.rank, peer) for peer in range(at.size)],
            lambda at: {(peer, at.rank): ((peer, (peer, at.rank)),) for peer in range(at.size)},
            unit="pairs", synchronizes=True, busbw=_rows_factor,
            aliases=("alltoallv", "alltoallsingle"),
        ),
        Collective(
            "scan", _vector, lambda at: _folded(range(at.rank + 1), _vector(at)), reduces=True
        ),
        Collective("exscan", _vector, _exprefix, reduces=True),
    )
}  # fmt: skip


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_SPELLINGS = {
    _plain(spelling): each
    for each in COLLECTIVES.values()
    for spelling in (each.name, *each.aliases)
}


def collective(name: str) -> Collective:
    """Look a collective up by any spelling of the field.

    >>> collective("Reduce-Scatter").name, collective("all_reduce").name, collective("bcast").name
    ('reduce_scatter', 'allreduce', 'broadcast')

    Raises:
        UnknownName: there is no such collective.
    """
    try:
        return _SPELLINGS[_plain(name)]
    except (KeyError, AttributeError, TypeError):
        raise UnknownName("collective", name, COLLECTIVES) from None


@dataclass(frozen=True)
class ReduceOp:
    """An associative operator.

    Attributes:
        name: one of the predefined names, or the name of the user's function.
        kinds: the kinds of dtype it is defined on: b(ool), i(nteger), u(nsigned),
            f(loat), c(omplex).
        function: the user's ``function(left, right) -> array``, elementwise and associative.
    """

    name: str
    kinds: str = "biufc"
    commutative: bool = True
    function: Callable[[Any, Any], Any] | None = None


OPS = {
    op.name: op
    for op in (
        ReduceOp("sum", "iufc"),
        ReduceOp("prod", "iufc"),
        ReduceOp("min", "iuf"),
        ReduceOp("max", "iuf"),
        ReduceOp("avg", "fc"),
        ReduceOp("band", "biu"),
        ReduceOp("bor", "biu"),
        ReduceOp("bxor", "biu"),
        ReduceOp("land", "biu"),
        ReduceOp("lor", "biu"),
    )
}

_OP_ALIASES = {"mean": "avg", "average": "avg", "product": "prod", "add": "sum"}
_KINDS = {
    "bool": "b", "int": "i", "uint": "u", "float": "f", "bfloat": "f", "complex": "c",
}  # fmt: skip
_KIND_NAMES = {
    "b": "bool", "i": "signed integers", "u": "unsigned integers", "f": "floats", "c": "complex",
}  # fmt: skip

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


def user_op(function: Callable[[Any, Any], Any], *, commutative: bool = False) -> ReduceOp:
    """Make an operator of an elementwise associative ``function(left, right) -> array``."""
    return ReduceOp(getattr(function, "__name__", "function"), "biufc", commutative, function)


def reduce_op(op: str | ReduceOp | Callable[[Any, Any], Any]) -> ReduceOp:
    """Look an operator up by name; a bare function is taken as not commutative.

    Raises:
        UnknownName: there is no such operator.
    """
    if isinstance(op, ReduceOp):
        return op
    if callable(op):
        return user_op(op)
    name = str(op).lower()
    name = _OP_ALIASES.get(name, name)
    if name not in OPS:
        raise UnknownName("op", op, OPS)
    return OPS[name]


def kind_of(dtype: str) -> str:
    """Return a dtype name's kind: b, i, u, f or c.

    >>> kind_of("bfloat16"), kind_of("uint8")
    ('f', 'u')

    Raises:
        UnknownName: no backend carries this dtype.
    """
    if dtype not in DTYPES:
        raise UnknownName("dtype", dtype, DTYPES)
    return _KINDS[dtype.rstrip("0123456789")]


def check_op(op: ReduceOp, dtype: str, what: Collective) -> None:
    """Raise ArgumentError where an operator is not defined on a dtype or for a collective."""
    if kind_of(dtype) not in op.kinds:
        fits = ", ".join(_KIND_NAMES[kind] for kind in op.kinds)
        raise ArgumentError(f"op {op.name!r} is not defined on {dtype}: it takes {fits}")
    if op.name == "avg" and op.function is None and what.name in ("scan", "exscan"):
        raise ArgumentError(f"{what.name} has no op 'avg': a mean has no prefix form; use 'sum'")
