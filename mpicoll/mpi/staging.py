"""GPU buffers under MPI: whether it reads them itself, and copies to the host where it does not.

Its counterpart is `torchcoll.staging`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from mpi4py import MPI

from mpicoll.interfaces import Array
from mpicoll.mpi.arrays import is_cupy

OVERRIDE = "MPICOLL_GPU_AWARE"
_MPIX_GPU_SUPPORT_CUDA = 0  # mpi.h of MPICH
_SETTINGS = {
    "CRAY MPICH": ("MPICH_GPU_SUPPORT_ENABLED",),
    "MVAPICH": ("MV2_USE_CUDA", "MVP_USE_CUDA"),
    "Intel(R) MPI": ("I_MPI_OFFLOAD",),
}


@dataclass(frozen=True)
class GpuAwareness:
    """Whether the MPI library reads GPU memory itself, and how that is known."""

    aware: bool
    reason: str

    @classmethod
    def detect(cls) -> Self:
        """Ask the environment, then the MPI library itself, then its settings."""
        return cls.ask(ctypes.CDLL(MPI.__file__), MPI.Get_library_version(), os.environ)

    @classmethod
    def ask(cls, library: Any, version: str, variables: Mapping[str, str]) -> Self:
        """Return what a library, of which `version` is the version string, can do."""
        forced = variables.get(OVERRIDE)
        if forced is not None:
            return cls(_is_on(forced), f"{OVERRIDE}={forced}")
        answers = [*_answers(library), *_settings(version, variables)]
        if answers:
            return next((cls(yes, why) for yes, why in answers if yes), cls(*answers[0]))
        return cls(False, f"no GPU support reported by the MPI library ({OVERRIDE}=1 overrides)")

    @classmethod
    def agreed(cls, everyone: Sequence[Self]) -> Self:
        """Return what all ranks can rely on: messages of two ranks must go one way."""
        return next((each for each in everyone if not each.aware), everyone[0])


def _answers(library: Any) -> Iterator[tuple[bool, str]]:
    """Yield what the library's own extensions say: Open MPI's, then MPICH's."""
    query = getattr(library, "MPIX_Query_cuda_support", None)
    if query is not None:
        yes = bool(query())
        yield yes, f"MPIX_Query_cuda_support() says {'yes' if yes else 'no'}"
    query = getattr(library, "MPIX_GPU_query_support", None)
    answer = ctypes.c_int(0)
    if query is not None and query(_MPIX_GPU_SUPPORT_CUDA, ctypes.byref(answer)) == 0:
        yield bool(answer.value), f"MPIX_GPU_query_support() says {'yes' if answer.value else 'no'}"


def _settings(version: str, variables: Mapping[str, str]) -> Iterator[tuple[bool, str]]:
    """Yield what turns GPU support on in libraries that cannot be asked."""
    for vendor, names in _SETTINGS.items():
        for name in names if vendor.lower() in version.lower() else ():
            if name in variables:
                yield _is_on(variables[name]), f"{name}={variables[name]}"


def _is_on(text: str) -> bool:
    return text.lower() in ("1", "yes", "true", "on")


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
