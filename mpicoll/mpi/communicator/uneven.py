"""Calls of which a rank knows its own counts alone: what it knows, and the call when all is known.

Which of them it is, and whether MPI must serve it, follows from the counts of all ranks alone, so
that all ranks find the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from mpicoll.mpi.communicator.buffers import Flat, block, vector
from mpicoll.mpi.communicator.reading import Call, Place, folding, is_in_place, word, words


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
    def asking(self) -> bytes:
        """8 bytes, equal where ranks make such a call and do not know each other's counts."""
        text = f"{self.name} from {self.root}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest()


Reader = Callable[[Place, Any, Any, Any, int], Part | None]
"""Takes both buffers, operator and root as a program gives them."""


def _gatherv(at: Place, x: Any, out: Any, op: Any, root: int) -> Part | None:
    found = _rooted(at, x, out, root, written=False)
    return found and Part("gatherv", found[0], found[1], "", root, found[2])


def _scatterv(at: Place, x: Any, out: Any, op: Any, root: int) -> Part | None:
    found = _rooted(at, out, x, root, written=True)
    return found and Part("scatterv", found[1], found[0], "", root, found[2])


def _rooted(
    at: Place, own: Any, whole: Any, root: int, *, written: bool
) -> tuple[Flat, Flat | None, tuple[int, ...]] | None:
    """Return the own block, the root's whole array and the lengths, all in bytes.

    Args:
        written: the own block is, as in a scatter; else the whole array.
    """
    if at.rank != root:
        part = block(own, written=written)
        return None if part is None else (_bytes(part), None, (part.nbytes,))
    found = vector(whole, at.size, written=not written)
    if found is None:
        return None
    flat, rows = found
    part = _row(flat, rows, root).copy() if is_in_place(own) else block(own, written=written)
    if part is None or part.nbytes != rows[root] * flat.itemsize:
        return None
    return _bytes(part), _bytes(flat), _lengths(flat, rows)


def _alltoallv(at: Place, x: Any, out: Any, op: Any, root: int) -> Part | None:
    received = vector(out, at.size, written=True)
    if received is None:
        return None
    given = received[0].copy(), received[1]
    if not is_in_place(x):
        other = vector(x, at.size, written=False)
        if other is None:
            return None
        given = other
    counts = _lengths(*given) + _lengths(*received)
    return Part("alltoallv", _bytes(given[0]), _bytes(received[0]), "", 0, counts)


def _reduce_scatter_own(at: Place, x: Any, out: Any, op: Any, root: int) -> Part | None:
    own, result = block(x, written=False), block(out, written=True)
    call = folding("reduce_scatter", own, result, op)
    if call is None or own is None or result is None:
        return None
    return Part("reduce_scatter_own", own, result, call.op, 0, (result.size, own.size))


PART_READERS: dict[str, Reader] = {
    each.__name__[1:]: each for each in (_gatherv, _scatterv, _alltoallv, _reduce_scatter_own)
}
"""What reads the arguments of a method of mpi4py, by its name in small letters."""


def complete(at: Place, part: Part, counts: Sequence[tuple[int, ...]]) -> Call | None:
    """Return the call that a part belongs to, None where the parts do not fit together.

    Args:
        counts: those of all ranks.
    """
    if part.name == "alltoallv":
        return _pairs(at, part, counts)
    if part.name == "reduce_scatter_own":
        rows = tuple(each for each, _ in counts)
        if any(whole != sum(rows) for _, whole in counts):
            return None
        return Call("reduce_scatter", part.x, part.out, part.op, counts=rows)
    if not 0 <= part.root < at.size:
        return None
    rows = counts[part.root]
    if any(each != (rows[rank],) for rank, each in enumerate(counts) if rank != part.root):
        return None
    if min(rows) == max(rows):  # ranks need not acknowledge rows of one length
        whole = part.x if part.name == "scatterv" else part.out
        x, out = (
            each if each is None else words(each, at.size if each is whole else 1)
            for each in (part.x, part.out)
        )
        return Call(part.name[:-1], x, out, root=part.root)
    kind = word(rows)
    x, out = (each if each is None else each.view(kind) for each in (part.x, part.out))
    return Call(part.name[:-1], x, out, root=part.root, counts=_shorter(rows, kind.itemsize))


def _pairs(at: Place, part: Part, counts: Sequence[tuple[int, ...]]) -> Call | None:
    sent, received = [each[: at.size] for each in counts], [each[at.size :] for each in counts]
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
    return tuple(each * whole.itemsize for each in rows)


def _shorter(lengths: Sequence[int], width: int) -> tuple[int, ...]:
    return tuple(each // width for each in lengths)
