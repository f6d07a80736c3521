"""The environment variables that change how ranks start, communicate and compute."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_RELEVANT = (
    "MPI", "OMPI_", "PMI", "PRTE_", "I_MPI_", "MV2_", "HYDRA_", "UCX_", "FI_", "NCCL_", "GLOO_",
    "SLURM_", "CUDA_", "OMP_", "KMP_", "GOMP_", "MKL_NUM", "OPENBLAS_NUM", "TORCH_", "TP_",
    "LD_PRELOAD", "PYTHONOPTIMIZE", "PYTHONMALLOC",
)  # fmt: skip
_SECRET = re.compile("TOKEN|KEY|SECRET|PASS", re.IGNORECASE)
_TUNING = re.compile(
    "UCX_|FI_|NCCL_|GLOO_|MPIR_CVAR_|MPICH_|I_MPI_|MV2_|MPICOLL_|OMP_NUM_THREADS|LD_PRELOAD"
    "|OMPI_MCA_(pml|btl|mtl|osc|coll|smsc|opal|mpi)_?"
)
MASK = "***"


def relevant_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that matter, sorted by name, with possible secrets masked.

    >>> relevant_variables({"UCX_TLS": "tcp", "HOME": "/root", "SLURM_AUTH_TOKEN": "x"})
    {'SLURM_AUTH_TOKEN': '***', 'UCX_TLS': 'tcp'}
    """
    return {
        name: MASK if _SECRET.search(name) else variables[name]
        for name in sorted(variables)
        if name.startswith(_RELEVANT)
    }


def tuning_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that people set to tune a library, without those of a launch.

    >>> tuning_variables({"UCX_TLS": "tcp", "SLURM_JOB_ID": "7", "OMPI_MCA_pml": "ob1"})
    {'UCX_TLS': 'tcp', 'OMPI_MCA_pml': 'ob1'}
    """
    return {name: value for name, value in variables.items() if _TUNING.match(name)}
