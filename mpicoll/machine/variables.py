"""Environment variables that tune a library, and texts without credentials.

Records, reports and the doctor's page are passed on: they name variables of this list alone, and
even those may hold a password.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

_TUNING = re.compile(
    "UCX_|UCC_|FI_|PSM[23]_|NCCL_|RCCL_|GLOO_|MPIR_CVAR_|MPICH_|I_MPI_|MV2_|MVP_|MPICOLL_"
    "|HCOLL_|SHARP_COLL_|OMP_NUM_THREADS|LD_PRELOAD"
    "|OMPI_MCA_(pml|btl|mtl|osc|coll|smsc|opal|mpi|accelerator|hwloc|io|part|rmaps|threads)(_|$)"
)
_OTHERS = re.compile(
    "HYDRA_|TORCH_|TORCHCOLL_|TP_|CUDA_|HIP_|ROCR_|HSA_|OMP_|KMP_|GOMP_|MKL_|OPENBLAS_"
    "|GLIBC_TUNABLES|MALLOC_|PYTHONOPTIMIZE|PYTHONMALLOC"
    "|SLURM_(NNODES|NTASKS|NPROCS|CPUS|CPU_BIND|MEM_BIND|GPUS|GPU_BIND|TASKS_PER_NODE|DISTRIBUTION"
    "|HINT|MPI_TYPE|JOB_ID$|JOB_NUM_NODES|JOB_PARTITION|STEP_NUM_)"
)
_SECRET = "token|key|secret|pass|credential|jwt|auth|cookie"
_NAMES_SECRET = re.compile(_SECRET, re.IGNORECASE)
_HIDDEN = (
    (re.compile(r"(\w://)[^/\s@]*@"), r"\1***@"),  # https://user:password@host
    (re.compile(r"\beyJ[\w-]{8,}\.[\w.-]+"), "***"),  # a JSON web token
    (
        re.compile(rf"((?:{_SECRET})[\w.-]*[\"']?\s*[=:]\s*)[^\s,;&]+", re.IGNORECASE),
        r"\1***",
    ),  # --api-key=..., token: ..., ?auth=...
)
MASK = "***"
THREAD_LEVEL = "MPI4PY_RC_THREAD_LEVEL"
"""mpi4py's own variable for the level that MPI is asked for, one of `THREAD_LEVELS`."""
THREAD_LEVELS = ("single", "funneled", "serialized", "multiple")


def relevant_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that tune a library or a runtime, sorted, with secrets masked.

    >>> relevant_variables({"UCX_TLS": "tcp", "SLURM_JWT": "eyJh...", "NCCL_API_TOKEN": "x"})
    {'NCCL_API_TOKEN': '***', 'UCX_TLS': 'tcp'}
    """
    return {
        name: MASK if _NAMES_SECRET.search(name) else masked(variables[name])
        for name in sorted(variables)
        if _TUNING.match(name) or _OTHERS.match(name)
    }


def tuning_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that people set to tune a library, without those of a launch.

    >>> tuning_variables({"UCX_TLS": "tcp", "SLURM_JOB_ID": "7", "OMPI_MCA_pml": "ob1"})
    {'UCX_TLS': 'tcp', 'OMPI_MCA_pml': 'ob1'}
    """
    return {name: value for name, value in variables.items() if _TUNING.match(name)}


@lru_cache(maxsize=256)  # each record of a run repeats its command
def masked(text: str) -> str:
    """Return a text without the credentials that it shows.

    >>> masked("https://me:word@host/x --api-key=abc ring,native")
    'https://***@host/x --api-key=*** ring,native'
    """
    for pattern, instead in _HIDDEN:
        text = pattern.sub(instead, text)
    return text


def masked_arguments(arguments: Iterable[str]) -> list[str]:
    """Return a command line without the credentials that it shows.

    >>> masked_arguments(["-J", "x", "--auth-token", "abc", "tcp://me:word@host:1"])
    ['-J', 'x', '--auth-token', '***', 'tcp://***@host:1']
    """
    found: list[str] = []
    hides = False
    for each in arguments:
        found.append(MASK if hides else masked(each))
        hides = each.startswith("-") and "=" not in each and bool(_NAMES_SECRET.search(each))
    return found


def thread_level() -> str | None:
    """Return the name of the thread level that MPI has given, None where it has not started."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized():
        return None
    levels = {getattr(mpi, f"THREAD_{name.upper()}"): name for name in THREAD_LEVELS}
    return levels[mpi.Query_thread()]
