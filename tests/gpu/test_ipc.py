"""GPU memory that ranks share: one rank's failure is everyone's error."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpicoll import Unavailable
from mpicoll.backend import Exported
from mpicoll.gpu.ipc import GpuMemory
from mpicoll.lowering.messages import INPUT, OUTPUT, SCRATCH, Buffer
from mpicoll.memory.numpy_arrays import NumpyArrays


@pytest.mark.parametrize(
    ("pooled", "readable"),
    [((), {INPUT, OUTPUT, SCRATCH}), ((OUTPUT,), {INPUT}), ((INPUT, OUTPUT), set())],
)
def test_others_read_in_place_what_has_a_handle(
    pooled: tuple[Buffer, ...], readable: set[Buffer]
) -> None:
    """Scratch memory is a framework's too, and is tried where all else has one."""
    buffers: dict[Buffer, Any] = {name: np.empty(4) for name in (INPUT, OUTPUT)}
    without = {buffers[name].ctypes.data for name in pooled}

    def export(address: int) -> Exported:
        if address in without:
            raise Unavailable("no handle")
        return Exported(b"", 0)

    host: Any = SimpleNamespace(rank=0, intra_node=(0,), others=frozenset(), before_reuse=[])
    gpu: Any = SimpleNamespace(export=export, synchronize=lambda: None)
    memory = GpuMemory(host, NumpyArrays(), gpu, like=np.empty(0))
    assert memory.reach(buffers, "float64").readable == readable
    assert not memory.reach(buffers, "float64", private=False).readable


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
    arrays: Any = SimpleNamespace(empty=lambda shape, *_given: np.empty(shape), synchronize=len)
    gpu: Any = SimpleNamespace(allocate=allocate, synchronize=lambda: None)
    memory = GpuMemory(host, arrays, gpu, like=np.empty(0))
    with pytest.raises(Unavailable, match="rank 0: out of memory"):
        memory.grow(1024)
    # The last one says that it has unmapped what it had opened.
    assert exchanged == [None, "rank 0: out of memory", None]
    assert memory.allocator.take(64) is None


def test_memory_of_a_group_that_goes_is_unregistered_before_it_is_unmapped() -> None:
    """Also where the group is not freed, and after the work of the last GPU that reaches it."""
    done: list[object] = []
    mapping = np.zeros(8)

    def gpu(number: int) -> Any:
        return SimpleNamespace(
            register=lambda address, nbytes: address + nbytes,
            synchronize=partial(done.append, number),
            unregister=lambda address: done.append((number, address)),
        )

    host: Any = SimpleNamespace(
        rank=0, intra_node=(0,), others=frozenset(), before_reuse=[], words={0: [mapping]},
        address=lambda rank, segment: (4096, mapping),
    )  # fmt: skip
    first, second = (
        GpuMemory(host, NumpyArrays(), gpu(number), like=np.empty(0)) for number in (0, 1)
    )
    for _ in range(2):
        assert first.word(0, 0, 8) == second.word(0, 0, 8) == 4096 + 64 + 8
    del first
    assert not done
    del second
    assert done == [0, 1, (0, 4096), (1, 4096)]
