"""The versions of Python and of the packages that measurements depend on."""

from __future__ import annotations

import platform
from importlib import metadata

_PACKAGES = (
    "mpicoll", "numpy", "mpi4py", "torch", "cupy", "cupy-cuda12x", "cupy-cuda13x",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
