"""GPU memory that ranks share: one rank's failure is everyone's error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpicoll import Unavailable
from mpicoll.gpu.ipc import GpuMemory


class OutOfMemory(RuntimeError):
    """As torch raises it; CuPy's is a MemoryError."""


@pytest.mark.parametrize("error", [OutOfMemory, MemoryError])
def test_a_gpu_that_is_full_is_known_to_all(error: type[Exception]) -> None:
    """The rank takes part in every exchange, for which the others wait."""
    exchanged: list[Any] = []

    def exchange(item: Any, kind: Any = Any) -> list[Any]:
        exchanged.append(item)
        return [item, ""]

    def empty(*_given: object) -> np.ndarray[Any, Any]:
        raise error("out of memory")

    host: Any = SimpleNamespace(
        rank=0, intra_node=(0, 1), others=frozenset(), exchange=exchange
    )  # fmt: skip
    arrays: Any = SimpleNamespace(empty=empty)
    memory = GpuMemory(host, arrays, gpu=SimpleNamespace(), like=np.empty(0))  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="rank 0: out of memory"):
        memory.grow(1024)
    assert exchanged == [None, "rank 0: out of memory"]
    assert memory.allocator.take(64) is None
