"""The versions of mpicoll and of what it runs on."""

from __future__ import annotations

import platform
from importlib import metadata


def versions(version: str) -> list[str]:
    """Return a line each for mpicoll, Python, MPI, torch and the executor; MPI is not started.

    Args:
        version: that of mpicoll.
    """
    return [
        f"mpicoll {version}",
        f"Python {platform.python_version()}, {platform.machine()}",
        f"MPI: {_mpi()}",
        f"torch: {_torch()}",
        f"executor: {_executor()}",
    ]


def _mpi() -> str:
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except ImportError as error:
        return f"none ({error})"
    except RuntimeError as error:
        return f"none (mpi4py finds no MPI library: {str(error).splitlines()[0]})"
    library = MPI.Get_library_version().partition("\n")[0].strip("\0, ")
    return f"{' '.join(library.split())}, by mpi4py {mpi4py.__version__}"


def _torch() -> str:
    try:
        return metadata.version("torch")  # importing torch takes seconds
    except metadata.PackageNotFoundError:
        return "none"


def _executor() -> str:
    try:
        from mpicoll.engine.extension import executor
    except ImportError as error:
        return f"none ({error})"
    return executor()
