"""Plain data between ranks, as MessagePack: numbers, text, bytes, containers and records of them.

Decoding runs no code of the sender's, as unpickling does.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from mpicoll.errors import ArgumentError, Disagreement

MAX_ITEM_BYTES = 1 << 28
"""Bytes of an item that a rank takes from another."""
_ITEM, _REFUSAL = b"\0", b"\1"
_NAME = 32
"""Bytes of the name of a kind."""
_making = threading.Lock()


@cache
def _encoder() -> Callable[[Any], bytes]:
    from msgspec.msgpack import Encoder  # importing mpicoll is quicker without

    return Encoder(enc_hook=_builtin).encode


@cache
def _make_decoder(kind: Any) -> Callable[[bytes], Any]:
    from msgspec.msgpack import Decoder

    return Decoder(kind).decode


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    # msgspec crashes where two threads make decoders of one type at a time.
    with _making:
        return _make_decoder(kind)


def _builtin(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, complex):
        return str(value)
    raise NotImplementedError(f"ranks exchange plain data, not {type(value).__name__}")


def encode(item: object) -> bytes:
    """Return an item as bytes, or why it has none: `decode` then raises that on every rank."""
    try:
        return _ITEM + _encoder()(item)
    except (NotImplementedError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return _REFUSAL + str(error).encode()[:1000]


@cache
def kind_name(kind: Any, length: int) -> bytes:
    """Return the name of a type, without its modules, in so many bytes.

    >>> kind_name(tuple[Exception, str], 24)
    b'tuple[Exception, str]   '
    """
    text = re.sub(r"<class '(.*)'>", r"\1", repr(kind))
    return re.sub(r"\w+\.", "", text).encode(errors="replace")[:length].ljust(length)


def encode_for(kind: Any, item: object) -> bytes:
    """Return an item as bytes that state its kind, for `decode_alike`."""
    return kind_name(kind, _NAME) + encode(item)


def decode_alike(encoded: Iterable[bytes], kind: Any) -> list[Any]:
    """Return the items that ranks gave, as `encode_for` returned them.

    Raises:
        Disagreement: on all ranks, where one exchanges items of another kind; as `decode` besides.
    """
    every = list(encoded)
    names = [item[:_NAME].decode(errors="replace").strip() for item in every]
    if mismatch := next((rank for rank, name in enumerate(names) if name != names[0]), 0):
        raise Disagreement(
            f"the ranks are in different calls: rank 0 exchanges {names[0]}, rank {mismatch} "
            f"{names[mismatch]}"
        )
    return decode([item[_NAME:] for item in every], kind)


def check_lengths(lengths: Iterable[int]) -> None:
    """Refuse items of which a rank states an impossible number of bytes.

    Raises:
        Disagreement: naming the rank.
    """
    for rank, length in enumerate(lengths):
        if not 0 < length <= MAX_ITEM_BYTES:
            raise Disagreement(f"rank {rank} sends {length} bytes, of 1 to {MAX_ITEM_BYTES}")


def decode(encoded: Iterable[bytes], kind: Any) -> list[Any]:
    """Return the items that ranks gave.

    Args:
        encoded: the item of each rank, as `encode` returned it.
        kind: the type of an item, as msgspec takes it; with `Any`, tuples and sets become lists
            and records dictionaries.

    Raises:
        ArgumentError: a rank's item was no plain data.
        Disagreement: a rank gave something of another type.
    """
    read, items = _decoder(kind), []
    for rank, data in enumerate(encoded):
        if data[:1] == _REFUSAL:
            raise ArgumentError(f"rank {rank}: {data[1:].decode(errors='replace')}")
        try:
            items.append(read(data[1:]))
        except (ValueError, RecursionError) as error:  # msgspec's own, and that of a wrong text
            raise Disagreement(f"rank {rank} sent something unexpected: {error}") from None
    return items
