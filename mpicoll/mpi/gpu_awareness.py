"""Whether the MPI library reads GPU memory itself."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from mpi4py import MPI

OVERRIDE = "MPICOLL_GPU_AWARE"
_OPEN_MPI = "MPIX_Query_cuda_support"
_MPIX_GPU_SUPPORT_CUDA = 0  # mpi.h of MPICH
_SETTINGS = {
    "CRAY MPICH": ("MPICH_GPU_SUPPORT_ENABLED",),
    "MVAPICH": ("MV2_USE_CUDA", "MVP_USE_CUDA"),
    "Intel(R) MPI": ("I_MPI_OFFLOAD",),
}


@dataclass(frozen=True)
class GpuAwareness:
    """Whether the MPI library reads GPU memory itself, and how that is known.

    Attributes:
        is_sure: nothing is left to try (`try_on`) before the first GPU array is handed over.
    """

    aware: bool
    reason: str
    is_sure: bool = True

    @classmethod
    def detect(cls) -> Self:
        """Return the environment's statement, else the library's own answer, else its settings."""
        return cls.ask(ctypes.CDLL(MPI.__file__), MPI.Get_library_version(), os.environ)

    @classmethod
    def ask(cls, library: Any, version: str, variables: Mapping[str, str]) -> Self:
        """Return the GPU-awareness of a library with this version string and these variables."""
        forced = variables.get(OVERRIDE)
        if forced is not None:
            return cls(_is_on(forced), f"{OVERRIDE}={forced}")
        answers = [*_answers(library), *_settings(version, variables)]
        if answers:
            yes, why = next((answer for answer in answers if answer[0]), answers[0])
            return cls(yes, why, is_sure=not (yes and why.startswith(_OPEN_MPI)))
        return cls(False, f"no GPU support reported by the MPI library ({OVERRIDE}=1 overrides)")

    @classmethod
    def agreed(cls, everyone: Sequence[Self]) -> Self:
        """Return the GPU-awareness that all ranks have: two ranks must send in one way."""
        return next((awareness for awareness in everyone if not awareness.aware), everyone[0])

    def try_on(self, gpu: int) -> Self:
        """Return the finding of a child process that hands memory of this GPU to MPI."""
        from mpicoll.mpi.gpu_trial import obstacle  # a program starts quickly without

        why = obstacle(gpu)
        if why:
            return type(self)(False, f"{self.reason}, but a child process that tried: {why}")
        return replace(self, is_sure=True)


def _answers(library: Any) -> Iterator[tuple[bool, str]]:
    """Yield the answers of the library's own extensions: Open MPI's, then MPICH's."""
    query = getattr(library, _OPEN_MPI, None)
    if query is not None:
        yes = bool(query())
        yield yes, f"{_OPEN_MPI}() says {'yes' if yes else 'no'}"
    query = getattr(library, "MPIX_GPU_query_support", None)
    answer = ctypes.c_int(0)
    if query is not None and query(_MPIX_GPU_SUPPORT_CUDA, ctypes.byref(answer)) == 0:
        yield bool(answer.value), f"MPIX_GPU_query_support() says {'yes' if answer.value else 'no'}"


def _settings(version: str, variables: Mapping[str, str]) -> Iterator[tuple[bool, str]]:
    """Yield the settings of GPU support in libraries without such an extension."""
    for vendor, names in _SETTINGS.items():
        for name in names if vendor.lower() in version.lower() else ():
            if name in variables:
                yield _is_on(variables[name]), f"{name}={variables[name]}"


def _is_on(text: str) -> bool:
    return text.lower() in ("1", "yes", "true", "on")
