"""The bytes of entries of flight files, as the recorder writes them."""

from __future__ import annotations

import struct

import numpy as np

from mpicoll.flight.entries import Link, Row, Sample, check_of, checks_of
from mpicoll.flight.layout import ROW


def packed(row: Row) -> bytes:
    """Return a row's bytes."""
    return ROW.pack(*row, check_of(row))


def packed_words(kind: struct.Struct, entry: Sample | Link) -> bytes:
    """Return the bytes of a sample or a link, with their check."""
    words = np.frombuffer(kind.pack(*entry, 0), "<u8")[:-1]
    return words.tobytes() + checks_of(words[None]).tobytes()
