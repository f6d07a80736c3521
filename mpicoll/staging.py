"""GPU buffers under MPI: whether it reads them itself, and copies to the host where it does not."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from mpi4py import MPI

from mpicoll.arrays import is_cupy
from mpicoll.backend import Array

OVERRIDE = "MPICOLL_GPU_AWARE"
_MPIX_GPU_SUPPORT_CUDA = 0  # mpi.h of MPICH


@dataclass(frozen=True)
class GpuAwareness:
    """Whether the MPI library reads GPU memory itself, and how that is known."""

    aware: bool
    reason: str

    @classmethod
    def detect(cls) -> Self:
        """Ask the environment, then the MPI library (Open MPI's and MPICH's extensions)."""
        forced = os.environ.get(OVERRIDE)
        if forced is not None:
            return cls(forced.lower() in ("1", "yes", "true", "on"), f"{OVERRIDE}={forced}")
        library = ctypes.CDLL(MPI.__file__)
        for name in ("MPIX_Query_cuda_support", "MPIX_Query_hip_support"):
            query = getattr(library, name, None)
            if query is not None and query():
                return cls(True, f"{name}() says yes")
        query = getattr(library, "MPIX_GPU_query_support", None)
        answer = ctypes.c_int(0)
        if query is not None and query(_MPIX_GPU_SUPPORT_CUDA, ctypes.byref(answer)) == 0:
            says = "yes" if answer.value else "no"
            return cls(bool(answer.value), f"MPIX_GPU_query_support() says {says}")
        return cls(False, f"no GPU support reported by the MPI library ({OVERRIDE}=1 overrides)")

    @classmethod
    def agreed(cls, everyone: Sequence[Self]) -> Self:
        """Return what all ranks can rely on: messages of two ranks must go one way."""
        return next((each for each in everyone if not each.aware), everyone[0])


class CupyCopies:
    """`mpicoll.pinned.Copies` for CuPy arrays and NumPy's."""

    def pinned(self, data: Array) -> Any:
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
