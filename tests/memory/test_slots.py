"""How many slots a publication has, which decides how much memory a plan holds."""

from __future__ import annotations

import numpy as np
import pytest

from mpicoll.collectives import Collectives
from mpicoll.memory import slots
from mpicoll.threads import threads

KIB = 1024


def held(c: Collectives, nbytes: int, name: str = "allgather") -> int:
    """Return the bytes that a plan takes of this rank's shared memory."""
    memory = c.transport.shared
    assert memory is not None
    before = memory.allocator.used
    algorithm = "direct" if name == "allgather" else "naive"
    plan = c.plan(name, np.zeros(nbytes, np.uint8), algorithm=f"{algorithm}@symmetric")
    plan.run()
    return memory.allocator.used - before


@pytest.mark.parametrize("name", ["allgather", "broadcast"])
@pytest.mark.parametrize(
    ("nbytes", "many"), [(8 * KIB, 258), (32 * KIB, 64), (128 * KIB, 16), (512 * KIB, 4)]
)
def test_slots_leave_the_cache_before_their_turn_comes_again(
    nbytes: int, many: int, name: str
) -> None:
    found = threads(2)(held, nbytes, name)
    assert [each // nbytes for each in found] == [many, many if name == "allgather" else 0]


@pytest.mark.parametrize(("nbytes", "many"), [(2 * KIB, 4), (4 * KIB, 520)])
def test_messages_of_less_than_4_kib_have_four_slots(nbytes: int, many: int) -> None:
    assert [each // nbytes for each in threads(2)(held, nbytes)] == [many, many]


@pytest.mark.parametrize("nbytes", [32 * KIB, 128 * KIB])
def test_where_a_node_holds_much_two_slots_do(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_ROOM", 0)
    monkeypatch.setattr(slots, "_SHARE", 0)
    assert [each // nbytes for each in threads(2)(held, nbytes)] == [2, 2]
