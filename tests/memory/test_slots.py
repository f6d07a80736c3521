"""How many slots a publication has, which decides how much memory a plan holds."""

from __future__ import annotations

import numpy as np
import pytest

from mpicoll.collectives import Collectives
from mpicoll.execution import extension
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


@pytest.mark.skipif(bool(extension.MISSING), reason="it was not built")
@pytest.mark.parametrize(
    ("nbytes", "many"),
    [(4 * KIB, 2), (8 * KIB, 32), (32 * KIB, 32), (128 * KIB, 8), (512 * KIB, 2)],
)
def test_slots_leave_the_cache_before_their_turn_comes_again(nbytes: int, many: int) -> None:
    found = threads(2)(held, nbytes)
    assert [each // nbytes for each in found] == [many, many]


@pytest.mark.skipif(bool(extension.MISSING), reason="it was not built")
@pytest.mark.parametrize(
    ("nbytes", "many"), [(8 * KIB, 258), (32 * KIB, 64), (128 * KIB, 16), (512 * KIB, 4)]
)
def test_who_only_writes_has_more_slots_to_run_ahead(nbytes: int, many: int) -> None:
    assert [each // nbytes for each in threads(2)(held, nbytes, "broadcast")] == [many, 0]


@pytest.mark.parametrize("nbytes", [32 * KIB, 128 * KIB])
def test_where_a_node_holds_much_two_slots_do(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_ROOM", 0)
    monkeypatch.setattr(slots, "_SHARE", 0)
    assert [each // nbytes for each in threads(2)(held, nbytes)] == [2, 2]
