"""MSCCL's XML, run by an interpreter of its own: what it computes, and what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from xml.etree import ElementTree as xml

import pytest
from catalogue import CATALOGUE, label

from mpicoll.algorithms.registry import Algorithm, find
from mpicoll.errors import Unsupported
from mpicoll.exports.msccl import COLLECTIVES, msccl
from mpicoll.notation.contract import Place

EXPORTED = [algorithm for algorithm in CATALOGUE if algorithm.collective.name in COLLECTIVES]
Memory = dict[tuple[str, int], Counter[object]]


def run(text: str, algorithm: Algorithm, size: int) -> list[Memory]:
    """Return every rank's memory after the steps of all thread blocks, in an order that they allow.

    A value counts how often each contribution is in it. Messages are rendezvous.
    """
    root = xml.fromstring(text)
    in_place = root.get("inplace") == "1"
    memories, blocks = [], {}
    for rank, gpu in enumerate(root):
        at = Place(rank, size, 0, algorithm.blocks(size))
        initial_names = enumerate(algorithm.collective.input_blocks(at))
        start = "o" if in_place else "i"
        memories.append({(start, index): Counter([(rank, name)]) for index, name in initial_names})
        for block in gpu:
            blocks[rank, int(block.get("id"))] = [rank, block, 0]

    def piece(rank: int, step: xml.Element, side: str) -> Iterable[tuple[str, int]]:
        start = int(step.get(f"{side}off"))
        return [(step.get(f"{side}buf"), start + offset) for offset in range(int(step.get("cnt")))]

    def current(block_state: list) -> xml.Element | None:
        rank, block, position = block_state
        if position == len(block):
            return None
        step, on = block[position], blocks.get((rank, int(block[position].get("depid"))))
        if on and on[2] <= int(step.get("deps")):
            return None
        assert not on or on[1][int(step.get("deps"))].get("hasdep") == "1"
        return step

    def advance(block_state: list) -> bool:
        rank, block, _ = block_state
        step, memory = current(block_state), memories[rank]
        if step is None or step.get("type") in ("r", "rrc"):
            return False
        if step.get("type") == "s":
            peer = next(
                (them for them in blocks.values()
                 if them[0] == int(block.get("send")) and them[1].get("recv") == str(rank)), None
            )  # fmt: skip
            taking = current(peer)
            if taking is None or taking.get("type") == "nop":
                return False
            values = [memory[chunk] for chunk in piece(rank, step, "src")]
            assert len(values) == int(taking.get("cnt"))
            peer_memory = memories[peer[0]]
            if taking.get("type") == "rrc":
                arriving = [peer_memory[chunk] for chunk in piece(peer[0], taking, "src")]
                values = [a + b for a, b in zip(values, arriving, strict=True)]
            peer_memory |= dict(zip(piece(peer[0], taking, "dst"), values, strict=True))
            peer[2] += 1
        elif step.get("type") != "nop":
            pairs = zip(piece(rank, step, "src"), piece(rank, step, "dst"), strict=True)
            for source, target in pairs:
                old = memory[target] if step.get("type") == "re" else Counter()
                memory[target] = old + memory[source]
        block_state[2] += 1
        return True

    while any(list(map(advance, blocks.values()))):
        pass
    assert all(position == len(block) for _, block, position in blocks.values())
    return memories


@pytest.mark.parametrize("algorithm", EXPORTED, ids=label)
def test_the_interpreter_gets_what_the_contract_demands(algorithm: Algorithm) -> None:
    size = next(size for size in (6, 8, 9) if algorithm.needs.holds(size))
    memories = run(msccl(algorithm, size), algorithm, size)
    for rank, memory in enumerate(memories):
        expected = algorithm.collective.output_contents(
            Place(rank, size, 0, algorithm.blocks(size))
        )
        got = {index: memory.get(("o", index)) for index in range(len(expected))}
        assert got == {
            index: Counter(contributions) for index, contributions in enumerate(expected.values())
        }


@pytest.mark.parametrize(
    ("of", "name", "size", "reason"),
    [
        ("broadcast", "binomial", 4, "MSCCL has no broadcast"),
        ("allreduce", "two_shot", 40, "32 peers of a rank one way"),
        ("allreduce", "recursive_doubling", 2048, "1024 ranks"),
        ("allreduce", "ring", 512, "256 steps of a thread block"),
    ],
)
def test_what_it_cannot_say_is_refused(of: str, name: str, size: int, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        msccl(find(of, name), size)
