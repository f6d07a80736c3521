"""Calls of which a rank knows its own counts alone: what it knows, and the call when all is known.

Which of them it is, and whether MPI must serve it, follows from the counts of all ranks alone, so
that all ranks find the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from mpi4py import MPI

from mpicoll.mpi.communicator.buffers import (
    Flat,
    Refused,
    WrongLength,
    check_block,
    check_vector,
    numbers,
)
from mpicoll.mpi.communicator.reading import (
    READERS,
    Call,
    Reading,
    folding,
    is_in_place,
    of_type,
    word,
    words,
)


class Part(NamedTuple):
    """What one rank knows of a call.

    Attributes:
        name: of mpi4py's method, in small letters.
        counts: the bytes of its blocks; with an operator, the elements of its result and input.
    """

    name: str
    x: Flat | None
    out: Flat | None
    op: str
    root: int
    counts: tuple[int, ...]

    @property
    def asking(self) -> int:
        """A digest, equal where ranks make such a call and do not know each other's counts."""
        from mpicoll.calls.arguments import digest_of

        return digest_of(f"{self.name} from {self.root}")


Reader = Callable[[Reading, Any, Any, Any, int], Part]
"""Takes both buffers, operator and root as a program passes them; raises `Unreadable`."""


def _gatherv(at: Reading, x: Any, out: Any, op: Any, root: int) -> Part:
    block_bytes, whole, counts = _rooted(at, x, out, root, written=False)
    return Part("gatherv", block_bytes, whole, "", root, counts)


def _scatterv(at: Reading, x: Any, out: Any, op: Any, root: int) -> Part:
    block_bytes, whole, counts = _rooted(at, out, x, root, written=True)
    return Part("scatterv", whole, block_bytes, "", root, counts)


def _rooted(
    at: Reading, part: Any, whole: Any, root: int, *, written: bool
) -> tuple[Flat, Flat | None, tuple[int, ...]]:
    """Return this rank's block, the root's whole array and the lengths, all in bytes.

    Args:
        written: this rank's block is, as in a scatter; else the whole array.
    """
    if at.rank != root:
        local = at.block(part, written=written)
        return _bytes(local), None, (local.nbytes,)
    flat, rows = at.vector(whole, written=not written)
    in_place = at.is_in_place(part)
    local = _row(flat, rows, root).copy() if in_place else at.block(part, written=written)
    if local.nbytes != rows[root] * flat.itemsize:
        raise WrongLength(f"{local.nbytes} bytes, where the root's row has {rows[root]} elements")
    return _bytes(local), _bytes(flat), _lengths(flat, rows)


def _alltoallv(at: Reading, x: Any, out: Any, op: Any, root: int) -> Part:
    result, received = at.vector(out, written=True)
    if at.is_in_place(x):
        data, sent = result.copy(), received
    else:
        data, sent = at.vector(x, written=False)
    counts = _lengths(data, sent) + _lengths(result, received)
    return Part("alltoallv", _bytes(data), _bytes(result), "", 0, counts)


def _reduce_scatter_own(at: Reading, x: Any, out: Any, op: Any, root: int) -> Part:
    data, result = of_type(at, x, out), at.block(out, written=True, folded=True)
    call = folding("reduce_scatter", data, result, op)
    return Part("reduce_scatter_own", data, result, call.op, 0, (result.size, data.size))


PART_READERS: dict[str, Reader] = {
    reader.__name__[1:]: reader for reader in (_gatherv, _scatterv, _alltoallv, _reduce_scatter_own)
}
"""What reads the arguments of a method of mpi4py, by its name in small letters."""


def read(
    at: Reading, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any
) -> Call | Part:  # fmt: skip
    """Return what the arguments of a method of mpi4py describe.

    Raises:
        Refused: mpi4py's own method raises before it calls MPI, or the root is no rank.
        Exception: only MPI can read the arguments.
    """
    if not is_rank(at, root):
        raise Refused(f"the root is {root!r} of {at.size} ranks")
    if not (op is None or isinstance(op, MPI.Op)):
        raise Refused(f"the operator is {op!r}")
    try:
        if name in PART_READERS:
            return PART_READERS[name](at, x, out, op, root)
        return READERS[name](at, x, out, op, root, counts)
    except Refused:
        raise
    except Exception:
        _check(at, name, x, out, root)
        raise


_SENDS = {"gather", "gatherv", "reduce"}
"""Methods of which ranks other than the root read no output."""
_RECEIVES = {"scatter", "scatterv"}
"""Methods of which ranks other than the root read no input."""
_BLOCKS = {
    "gather": (0, 1), "scatter": (1, 0), "allgather": (0, 1), "alltoall": (1, 1),
    "reduce_scatter_block": (1, 0),
}  # fmt: skip
"""Methods whose input or output is a row of blocks."""
_VECTORS = {"gatherv": (0, 1), "scatterv": (1, 0), "allgatherv": (0, 1), "alltoallv": (1, 1)}
"""Methods whose input or output has a count for each block."""


def _check(at: Reading, name: str, x: Any, out: Any, root: int) -> None:
    """Raise `Refused` where mpi4py refuses a buffer of this rank."""
    is_root = at.rank == root
    if name == "bcast":
        check_block(x, 0, written=not is_root)
        return
    if name == "reduce_scatter":
        out, counts = out
        numbers(counts, at.size)
    if name in _RECEIVES:
        reads_x, reads_out = is_root, not (is_root and is_in_place(out))
    elif name in _SENDS:
        reads_x, reads_out = not (is_root and is_in_place(x)), is_root
    else:
        reads_x, reads_out = not is_in_place(x), True
    for index, (spec, is_read) in enumerate(((x, reads_x), (out, reads_out))):
        if not is_read:
            continue
        if _VECTORS.get(name, (0, 0))[index]:
            check_vector(spec, at.size, written=index == 1)
        else:
            blocks = at.size * _BLOCKS.get(name, (0, 0))[index]
            check_block(spec, blocks, written=index == 1)


def is_refused(at: Reading, *arguments: Any) -> bool:
    """Whether mpi4py refuses the arguments of a method on this rank alone, as `read` takes them."""
    try:
        read(at, *arguments)
    except Refused:
        return True
    except Exception:  # MPI's own method says it
        return False
    finally:
        at.close()
    return False


def is_rank(at: Reading, root: Any) -> bool:
    """Whether a root is a rank."""
    try:
        return 0 <= operator.index(root) < at.size
    except TypeError:
        return False


def complete(at: Reading, part: Part, counts: Sequence[tuple[int, ...]]) -> Call | None:
    """Return the call that a part belongs to, None where the parts do not fit together.

    Args:
        counts: those of all ranks.
    """
    if part.name == "alltoallv":
        return _pairs(at, part, counts)
    if part.name == "reduce_scatter_own":
        rows = tuple(rows_of_rank for rows_of_rank, _ in counts)
        if any(whole != sum(rows) for _, whole in counts):
            return None
        return Call("reduce_scatter", part.x, part.out, part.op, counts=rows)
    if not 0 <= part.root < at.size:
        return None
    rows = counts[part.root]
    if any(lengths != (rows[rank],) for rank, lengths in enumerate(counts) if rank != part.root):
        return None
    if min(rows) == max(rows):  # ranks need not acknowledge rows of one length
        whole = part.x if part.name == "scatterv" else part.out
        x, out = (
            array if array is None else words(array, at.size if array is whole else 1)
            for array in (part.x, part.out)
        )
        return Call(part.name[:-1], x, out, root=part.root)
    kind = word(rows)
    x, out = (array if array is None else array.view(kind) for array in (part.x, part.out))
    return Call(part.name[:-1], x, out, root=part.root, counts=_shorter(rows, kind.itemsize))


def _pairs(at: Reading, part: Part, counts: Sequence[tuple[int, ...]]) -> Call | None:
    sent, received = [row[: at.size] for row in counts], [row[at.size :] for row in counts]
    if sent != list(zip(*received, strict=True)):
        return None
    assert part.x is not None
    assert part.out is not None
    lengths = list(chain.from_iterable(sent))
    if min(lengths) == max(lengths):
        return Call("alltoall", words(part.x, at.size), words(part.out, at.size))
    kind = word(lengths)
    matrix: Any = tuple(_shorter(row, kind.itemsize) for row in sent)
    return Call("alltoall", part.x.view(kind), part.out.view(kind), counts=matrix)


def _row(whole: Flat, rows: Sequence[int], rank: int) -> Flat:
    start = sum(rows[:rank])
    return whole[start : start + rows[rank]]


def _bytes(flat: Flat) -> Flat:
    return flat.view("uint8")


def _lengths(whole: Flat, rows: Sequence[int]) -> tuple[int, ...]:
    return tuple(count * whole.itemsize for count in rows)


def _shorter(lengths: Sequence[int], width: int) -> tuple[int, ...]:
    return tuple(length // width for length in lengths)
