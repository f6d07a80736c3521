"""Memory of zero-copy messages: the readers that a write must wait for."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from mpicoll.lowering.messages import INPUT, OUTPUT, Piece, overlaps
from mpicoll.lowering.reuse import ZeroCopy


@given(
    some.lists(some.tuples(some.integers(0, 40), some.integers(1, 9)), max_size=12),
    some.tuples(some.integers(0, 40), some.integers(0, 12)),
)
def test_what_a_write_would_change_is_found(pieces: list[tuple[int, int]], at: Any) -> None:
    zero_copy, written = ZeroCopy(), Piece(OUTPUT, *at)
    for number, (start, length) in enumerate(pieces):
        zero_copy.add(number, Piece(OUTPUT, start, length))
        zero_copy.add(100 + number, Piece(INPUT, start, length))
    hit = [n for n, piece in enumerate(pieces) if overlaps(Piece(OUTPUT, *piece), [written])]
    assert zero_copy.take(written) == hit
    assert zero_copy.take(written) == []
    left = {*range(len(pieces)), *range(100, 100 + len(pieces))} - {*hit}
    assert zero_copy.all() == sorted(left)
