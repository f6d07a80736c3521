"""The heap of shared memory: areas that do not overlap and come back."""

from __future__ import annotations

import random

from mpicoll.memory.allocator import Area, FirstFit


def test_areas_do_not_overlap_and_come_back() -> None:
    heap, choose = FirstFit(), random.Random(1)
    heap.add(64 * 100)
    heap.add(64 * 50)
    held: list[Area] = []
    for _ in range(2000):
        if held and choose.random() < 0.5:
            heap.give(held.pop(choose.randrange(len(held))))
        else:
            area = heap.take(choose.randrange(1, 1000))
            if area is not None:
                assert not any(
                    area.segment == other.segment
                    and area.start < other.start + other.length
                    and other.start < area.start + area.length
                    for other in held
                )
                held.append(area)
    for area in held:
        heap.give(area)
    assert heap.take(64 * 100) == Area(0, 0, 6400)
    assert heap.take(64 * 50) == Area(1, 0, 3200)
    assert heap.take(1) is None
