"""Whether the MPI library reads GPU memory itself."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mpi4py import MPI

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
            return next((cls(yes, why) for yes, why in answers if yes), cls(*answers[0]))
        return cls(False, f"no GPU support reported by the MPI library ({OVERRIDE}=1 overrides)")

    @classmethod
    def agreed(cls, everyone: Sequence[Self]) -> Self:
        """Return the GPU-awareness that all ranks have: two ranks must send in one way."""
        return next((each for each in everyone if not each.aware), everyone[0])


def _answers(library: Any) -> Iterator[tuple[bool, str]]:
    """Yield the answers of the library's own extensions: Open MPI's, then MPICH's."""
    query = getattr(library, "MPIX_Query_cuda_support", None)
    if query is not None:
        yes = bool(query())
        yield yes, f"MPIX_Query_cuda_support() says {'yes' if yes else 'no'}"
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
