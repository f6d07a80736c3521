"""A schedule as Chakra execution traces, which ASTRA-sim reads (Sridharan and others 2023).

A trace is a file for each rank: a message of protobuf for its metadata, then one for each node,
each behind its length. Nodes are sends, receives and folds; a node depends on all of the round
before, by way of an empty node where both rounds have several.

The encoding is protobuf's own: https://protobuf.dev/programming-guides/encoding; the numbers of
fields are those of `et_def.proto`, https://github.com/mlcommons/chakra.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpicoll.algorithms.registry import Algorithm
from mpicoll.backend import Nodes
from mpicoll.exports.sized import SizedMessage, sized_rounds

_VERSION = "0.0.4"
_COMPUTE, _SEND, _RECEIVE = 4, 5, 6
_BOOL, _INT32, _INT64, _UINT64 = 27, 7, 9, 13
"""The fields of an attribute's value, by type."""
_NUMBER, _BYTES = 0, 2
"""Protobuf's types of fields on the wire."""


def trace(
    algorithm: Algorithm, rank: int, size: int, nbytes: int, root: int = 0,
    nodes: Nodes | None = None,
) -> bytes:  # fmt: skip
    """Return the execution trace of one rank.

    Args:
        nbytes: as in `sized_rounds`. Folds are given as operations, one for each byte.
    """
    parts = [_delimited(_text(1, _VERSION))]
    number, dependencies = 0, range(0)
    for messages, folded in sized_rounds(algorithm, rank, size, nbytes, root, nodes):
        if len(dependencies) > 1 and len(messages) > 1:
            parts.append(_compute(number, "round", dependencies, 0))
            dependencies, number = range(number, number + 1), number + 1
        first = number
        for message in messages:
            parts.append(_communicate(number, rank, message, dependencies))
            number += 1
        if messages:
            dependencies = range(first, number)
        if folded:
            parts.append(_compute(number, "fold", dependencies, folded))
            dependencies, number = range(number, number + 1), number + 1
    return b"".join(parts)


def _communicate(number: int, rank: int, message: SizedMessage, dependencies: range) -> bytes:
    """Return a node that sends or receives."""
    source, target = (rank, message.peer) if message.is_send else (message.peer, rank)
    name = f"{'send' if message.is_send else 'recv'}_{source}_{target}_{message.tag}"
    return _node(number, name, _SEND if message.is_send else _RECEIVE, dependencies, [
        _attribute("is_cpu_op", _BOOL, 0),
        _attribute("comm_size", _INT64, message.nbytes),
        _attribute("comm_src", _INT32, source),
        _attribute("comm_dst", _INT32, target),
        _attribute("comm_tag", _INT32, message.tag),
    ])  # fmt: skip


def _compute(number: int, name: str, dependencies: range, nbytes: int) -> bytes:
    """Return a node that folds so many bytes."""
    return _node(number, name, _COMPUTE, dependencies, [
        _attribute("is_cpu_op", _BOOL, 0),
        _attribute("num_ops", _INT64, nbytes),
        _attribute("tensor_size", _UINT64, nbytes),
    ])  # fmt: skip


def _node(
    number: int, name: str, kind: int, dependencies: range, attributes: Iterable[bytes]
) -> bytes:
    depends = _field(5, b"".join(map(_varint, dependencies))) if dependencies else b""
    return _delimited(b"".join([
        _key(1, _NUMBER), _varint(number), _text(2, name), _key(3, _NUMBER), _varint(kind),
        depends, *(_field(10, attribute) for attribute in attributes),
    ]))  # fmt: skip


def _attribute(name: str, kind: int, value: int) -> bytes:
    return _text(1, name) + _key(kind, _NUMBER) + _varint(value)


def _varint(value: int) -> bytes:
    """Return a number seven bits at a time, the lowest first; the eighth says that more follow.

    >>> _varint(300).hex()
    'ac02'
    """
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _field(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _delimited(content)


def _text(field: int, text: str) -> bytes:
    return _field(field, text.encode())


def _delimited(content: bytes) -> bytes:
    return _varint(len(content)) + content
