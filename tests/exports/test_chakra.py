"""Chakra's execution traces, decoded: every message on both sides, and what waits for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from catalogue import CATALOGUE, label

from mpicoll.algorithms.registry import Algorithm, find
from mpicoll.exports.chakra import trace

FIELDS = {1: "id", 2: "name", 3: "type", 5: "data_deps", 10: "attr"}
COMPUTE, SEND, RECEIVE = 4, 5, 6


def varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not content[at - 1] & 0x80:
            return value, at


def fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: numbers, and contents in bytes."""
    at = 0
    while at < len(content):
        key, at = varint(content, at)
        value, at = varint(content, at)
        if key & 7 == 2:
            value, at = content[at : at + value], at + value  # type: ignore[assignment]
        else:
            assert key & 7 == 0
        yield key >> 3, value


def nodes(content: bytes) -> list[dict[str, Any]]:
    """Return the nodes of a trace."""
    records, at = [], 0
    while at < len(content):
        length, at = varint(content, at)
        node: dict[str, Any] = {"id": 0, "data_deps": []}
        for number, value in fields(content[at : at + length]):
            if number == 10:
                name, data = (part for _, part in fields(value))
                node[name.decode()] = data
            elif number == 5:
                node["data_deps"] = packed(value)
            else:
                node[FIELDS[number]] = value
        records.append(node)
        at += length
    assert records[0]["id"] == b"0.0.4"
    return records[1:]


def packed(content: bytes) -> list[int]:
    values, at = [], 0
    while at < len(content):
        value, at = varint(content, at)
        values.append(value)
    return values


@pytest.mark.parametrize("algorithm", CATALOGUE, ids=label)
def test_what_is_sent_is_received_and_nodes_wait_for_earlier_ones(algorithm: Algorithm) -> None:
    size = next(size for size in (6, 8, 9) if algorithm.needs.holds(size))
    sent, received = Counter[object](), Counter[object]()
    for rank in range(size):
        for number, node in enumerate(nodes(trace(algorithm, rank, size, 10_000))):
            assert node["id"] == number
            assert all(0 <= dependency < number for dependency in node["data_deps"])
            if node["type"] == COMPUTE:
                continue
            ways = {SEND: (sent, "comm_src"), RECEIVE: (received, "comm_dst")}
            way, end = ways[node["type"]]
            assert node[end] == rank
            way[
                tuple(node[f"comm_{attribute}"] for attribute in ("src", "dst", "tag", "size"))
            ] += 1
    assert sent == received
    assert not sent or set(sent.values()) == {1}


def test_a_round_waits_for_all_of_the_one_before() -> None:
    graph = nodes(trace(find("allreduce", "ring"), 0, 3, 300))
    shown = [(node["type"], node["data_deps"]) for node in graph]
    assert shown[:5] == [(SEND, []), (RECEIVE, []), (COMPUTE, [0, 1]), (SEND, [2]), (RECEIVE, [2])]
    assert graph[2]["num_ops"] == 100


def test_empty_nodes_stand_between_rounds_of_many_messages() -> None:
    graph = nodes(trace(find("allgather", "ring"), 0, 3, 300))
    assert [node["data_deps"] for node in graph] == [[], [], [0, 1], [2], [2]]
    assert graph[2]["num_ops"] == 0
