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

EXPORTED = [each for each in CATALOGUE if each.collective.name in COLLECTIVES]
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
        before = enumerate(algorithm.collective.before(at))
        start = "o" if in_place else "i"
        memories.append({(start, index): Counter([(rank, name)]) for index, name in before})
        for block in gpu:
            blocks[rank, int(block.get("id"))] = [rank, block, 0]

    def piece(rank: int, step: xml.Element, side: str) -> Iterable[tuple[str, int]]:
        start = int(step.get(f"{side}off"))
        return [(step.get(f"{side}buf"), start + each) for each in range(int(step.get("cnt")))]

    def current(each: list) -> xml.Element | None:
        rank, block, done = each
        if done == len(block):
            return None
        step, on = block[done], blocks.get((rank, int(block[done].get("depid"))))
        if on and on[2] <= int(step.get("deps")):
            return None
        assert not on or on[1][int(step.get("deps"))].get("hasdep") == "1"
        return step

    def advance(each: list) -> bool:
        rank, block, _ = each
        step, memory = current(each), memories[rank]
        if step is None or step.get("type") in ("r", "rrc"):
            return False
        if step.get("type") == "s":
            other = next(
                (them for them in blocks.values()
                 if them[0] == int(block.get("send")) and them[1].get("recv") == str(rank)), None
            )  # fmt: skip
            taking = current(other)
            if taking is None or taking.get("type") == "nop":
                return False
            values = [memory[chunk] for chunk in piece(rank, step, "src")]
            assert len(values) == int(taking.get("cnt"))
            theirs = memories[other[0]]
            if taking.get("type") == "rrc":
                own = [theirs[chunk] for chunk in piece(other[0], taking, "src")]
                values = [a + b for a, b in zip(values, own, strict=True)]
            theirs |= dict(zip(piece(other[0], taking, "dst"), values, strict=True))
            other[2] += 1
        elif step.get("type") != "nop":
            pairs = zip(piece(rank, step, "src"), piece(rank, step, "dst"), strict=True)
            for source, target in pairs:
                old = memory[target] if step.get("type") == "re" else Counter()
                memory[target] = old + memory[source]
        each[2] += 1
        return True

    while any(list(map(advance, blocks.values()))):
        pass
    assert all(done == len(block) for _, block, done in blocks.values())
    return memories


@pytest.mark.parametrize("algorithm", EXPORTED, ids=label)
def test_the_interpreter_gets_what_the_contract_demands(algorithm: Algorithm) -> None:
    size = next(size for size in (6, 8, 9) if algorithm.needs.holds(size))
    memories = run(msccl(algorithm, size), algorithm, size)
    for rank, memory in enumerate(memories):
        after = algorithm.collective.after(Place(rank, size, 0, algorithm.blocks(size)))
        got = {index: memory.get(("o", index)) for index in range(len(after))}
        assert got == {index: Counter(each) for index, each in enumerate(after.values())}


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
