"""GPU buffers under an MPI that cannot read them: pinned host memory in between."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from mpi4py import MPI

from mpicoll.backend import Array, Thunk

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


def staged(data: Array, before: list[Thunk] | None, after: list[Thunk] | None) -> Any:
    """Return pinned host memory for a GPU array, copied from it `before` or to it `after`."""
    host = _pinned(data)
    if before is not None:
        before.append(partial(data.get, out=host))
    if after is not None:
        after.append(partial(_upload, data, host))
    return host


def _pinned(data: Array) -> Any:
    cupy = sys.modules["cupy"]
    memory = cupy.cuda.alloc_pinned_memory(max(1, data.nbytes))
    return np.frombuffer(memory, data.dtype, data.size).reshape(data.shape)


def _upload(data: Array, host: Any) -> None:
    data.set(host)
    sys.modules["cupy"].cuda.get_current_stream().synchronize()
