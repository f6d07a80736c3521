"""Replace ``MPI.COMM_WORLD`` and ``MPI.COMM_SELF`` when a program imports mpi4py.

Only then: the program may set ``mpi4py.rc`` before, and importing ``mpi4py.MPI`` starts MPI.
"""

from __future__ import annotations

import copyreg
import sys
from ctypes import memmove
from types import ModuleType

from mpicoll.machine.launchers import find_launch
from mpicoll.machine.marks import set_mark
from mpicoll.run.imports import call_after_import

_MODULE = "mpi4py.MPI"


def replace_communicators() -> None:
    """Make `mpi4py.MPI` name communicators of ours, now or when it is imported."""
    if _MODULE in sys.modules:
        module = sys.modules[_MODULE]
        set_mark(is_late=module.Is_initialized())
        _replace(module)
    else:
        set_mark()
        call_after_import(_MODULE, _replace_and_prepare)


def _replace(module: ModuleType) -> None:
    from mpicoll.mpi.communicator.classes import Comm, reduced

    for name in ("COMM_WORLD", "COMM_SELF"):
        plain = getattr(module, name)
        if isinstance(plain, Comm):
            continue  # the module was loaded again
        if module.Is_initialized():
            comm = Comm(plain)
        else:
            # The constructor asks MPI about a handle; nobody may before the program starts it.
            comm = Comm()
            memmove(module._addressof(comm), module._addressof(plain), module._sizeof(plain))
        setattr(module, name, comm)
    launch = find_launch()
    if launch is not None and launch.size > 1:
        # These serve the calls. A program of several ranks times its calls, and not its imports.
        from mpicoll.mpi.communicator import objects, state  # noqa: F401
    # mpi4py pickles these two by name, and finds other objects there now.
    copyreg.pickle(module.Intracomm, lambda comm: reduced(comm) or comm.__reduce__())


def _replace_and_prepare(module: ModuleType) -> None:
    _replace(module)
    launch = find_launch()
    if launch is not None and launch.size > 1 and module.Is_initialized():
        module.COMM_WORLD._settled()  # its first call would do so otherwise
