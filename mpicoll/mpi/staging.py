"""CuPy arrays under an MPI that reads host memory only: copies to the host and back.

Its counterpart is `torchcoll.staging`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mpicoll.interfaces import Array
from mpicoll.mpi.arrays import is_cupy


class CupyCopies:
    """`mpicoll.gpu.staging.Copies` for CuPy arrays and NumPy's."""

    def allocate(self, data: Array) -> Any:
        cupy = sys.modules["cupy"]
        memory = cupy.cuda.alloc_pinned_memory(max(1, data.nbytes))
        return np.frombuffer(memory, data.dtype, data.size).reshape(data.shape)

    def copy(self, target: Array, source: Array) -> Any:
        cuda = sys.modules["cupy"].cuda
        runtime, stream = cuda.runtime, cuda.get_current_stream()
        to_host = is_cupy(source)
        kind = runtime.memcpyDeviceToHost if to_host else runtime.memcpyHostToDevice
        if source.nbytes:
            runtime.memcpyAsync(_address(target), _address(source), source.nbytes, kind, stream.ptr)
        return stream.record()


def _address(x: Array) -> int:
    return int(x.data.ptr if is_cupy(x) else x.ctypes.data)
