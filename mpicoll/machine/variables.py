"""Environment variables that tune a library.

Records, reports and the doctor's page are passed on: they name variables of this list alone, and
even those may hold a password.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpicoll.errors import ArgumentError, BadFile
from mpicoll.text.files import content_of
from mpicoll.text.masking import MASK, masked, names_secret

_TUNING = re.compile(
    "UCX_|UCC_|FI_|PSM[23]_|NCCL_|RCCL_|GLOO_|MPIR_CVAR_|MPICH_|I_MPI_|MV2_|MVP_|MPICOLL_"
    "|HCOLL_|SHARP_COLL_|OMP_NUM_THREADS|LD_PRELOAD"
    "|OMPI_MCA_(pml|btl|mtl|osc|coll|smsc|opal|mpi|accelerator|hwloc|io|part|rmaps|threads)(_|$)"
)
_LIBRARY_VARIABLES = re.compile(
    "HYDRA_|TORCH_|TORCHCOLL_|TP_|CUDA_|HIP_|ROCR_|HSA_|OMP_|KMP_|GOMP_|MKL_|OPENBLAS_"
    "|GLIBC_TUNABLES|MALLOC_|PYTHONOPTIMIZE|PYTHONMALLOC"
    "|SLURM_(NNODES|NTASKS|NPROCS|CPUS|CPU_BIND|MEM_BIND|GPUS|GPU_BIND|TASKS_PER_NODE|DISTRIBUTION"
    "|HINT|MPI_TYPE|JOB_ID$|JOB_NUM_NODES|JOB_PARTITION|STEP_NUM_)"
)
_MOST_BYTES = 1 << 20
"""Of a configuration file."""
VARIABLES = frozenset({
    "MPICOLL_ALGORITHM", "MPICOLL_CORES", "MPICOLL_DEADLINE",
    "MPICOLL_FENCES", "MPICOLL_FLIGHT", "MPICOLL_FLIGHT_DIR", "MPICOLL_GPU_AWARE", "MPICOLL_IPC",
    "MPICOLL_IPC_TILE", "MPICOLL_LOAD", "MPICOLL_NCCL_BLOCKING_WAIT", "MPICOLL_RANKS_PER_NODE",
    "MPICOLL_REPRODUCIBLE", "MPICOLL_STREAM_ORDER", "MPICOLL_SYMMETRIC", "MPICOLL_TABLE",
    "TORCHCOLL_ALGORITHM", "TORCHCOLL_BACKEND", "TORCHCOLL_INIT_METHOD",
})  # fmt: skip
"""The variables of mpicoll and torchcoll that a configuration file may set."""
THREAD_LEVEL = "MPI4PY_RC_THREAD_LEVEL"
"""mpi4py's own variable for the level that MPI is asked for, one of `THREAD_LEVELS`."""
THREAD_LEVELS = ("single", "funneled", "serialized", "multiple")


def relevant_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that tune a library or a runtime, sorted, with secrets masked.

    >>> relevant_variables({"UCX_TLS": "tcp", "SLURM_JWT": "eyJh...", "NCCL_API_TOKEN": "x"})
    {'NCCL_API_TOKEN': '***', 'UCX_TLS': 'tcp'}
    """
    return {
        name: MASK if names_secret(name) else masked(variables[name])
        for name in sorted(variables)
        if _TUNING.match(name) or _LIBRARY_VARIABLES.match(name)
    }


def tuning_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that people set to tune a library, without those of a launch.

    >>> tuning_variables({"UCX_TLS": "tcp", "SLURM_JOB_ID": "7", "OMPI_MCA_pml": "ob1"})
    {'UCX_TLS': 'tcp', 'OMPI_MCA_pml': 'ob1'}
    """
    return {name: value for name, value in variables.items() if _TUNING.match(name)}


def thread_level() -> str | None:
    """Return the name of the thread level that MPI has given, None where it has not started."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized():
        return None
    levels = {getattr(mpi, f"THREAD_{name.upper()}"): name for name in THREAD_LEVELS}
    return levels[mpi.Query_thread()]


def configured_values(file: str) -> dict[str, str]:
    """Return the variables of a configuration file; true is ``1``, and false is ``0``.

    Raises:
        BadFile: the file cannot be read, is no TOML, or has an unknown name or a value that no
            variable can have.
    """
    import tomllib
    from difflib import get_close_matches

    try:
        values = tomllib.loads(content_of(Path(file), _MOST_BYTES).decode("utf-8-sig"))
    except ArgumentError as error:
        raise BadFile(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{file} is no TOML: {error}") from None
    for name, value in values.items():
        if name not in VARIABLES:
            close = get_close_matches(name, VARIABLES, 1)
            advice = f"did you mean {close[0]}?" if close else "give a name of the documentation"
            raise BadFile(f"{file}: {name} is no variable of mpicoll: {advice}")
        if not isinstance(value, str | int | float):
            raise BadFile(f"{file}: {name} must be a text, a number, true or false")
    return {name: _as_variable(file, name, value) for name, value in values.items()}


def _as_variable(file: str, name: str, value: str | int | float) -> str:
    """Return a value of a configuration file as the text of a variable."""
    try:
        text = str(int(value) if isinstance(value, bool) else value)
        os.fsencode(text)
    except ValueError as error:  # a number of too many digits, or letters that the locale lacks
        raise BadFile(f"{file}: {name} can be no variable: {error}") from None
    if "\0" in text:
        raise BadFile(f"{file}: {name} can be no variable: it has a null character")
    return text
