"""GPU memory that ranks share: one rank's failure is everyone's error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpicoll import Unavailable
from mpicoll.gpu.ipc import GpuMemory


def test_a_gpu_that_is_full_is_known_to_all() -> None:
    """The rank takes part in every exchange, for which the others wait."""
    exchanged: list[Any] = []

    def exchange(item: Any, kind: Any = Any) -> list[Any]:
        exchanged.append(item)
        return [item, ""]

    def allocate(nbytes: int) -> int:
        raise Unavailable("out of memory")

    host: Any = SimpleNamespace(
        rank=0, intra_node=(0, 1), others=frozenset(), exchange=exchange, before_reuse=[]
    )
    arrays: Any = SimpleNamespace(empty=lambda shape, *_given: np.empty(shape))
    gpu: Any = SimpleNamespace(allocate=allocate, synchronize=lambda: None)
    memory = GpuMemory(host, arrays, gpu, like=np.empty(0))
    with pytest.raises(Unavailable, match="rank 0: out of memory"):
        memory.grow(1024)
    # The last one says that it has unmapped what it had opened.
    assert exchanged == [None, "rank 0: out of memory", None]
    assert memory.allocator.take(64) is None
