"""Replace ``MPI.COMM_WORLD`` and ``MPI.COMM_SELF`` when a program imports mpi4py.

Only then: the program may set ``mpi4py.rc`` before, and importing ``mpi4py.MPI`` starts MPI.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Sequence
from ctypes import memmove
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mpicoll.machine.launchers import find_launch
from mpicoll.machine.marks import set_mark

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    # Python needs only the methods of these classes, and their import delays a program.
    Loader = MetaPathFinder = object

_MODULE = "mpi4py.MPI"


def replace_communicators() -> None:
    """Make `mpi4py.MPI` name communicators of ours, now or when it is imported."""
    if _MODULE in sys.modules:
        module = sys.modules[_MODULE]
        set_mark(is_late=module.Is_initialized())
        _replace(module)
    else:
        set_mark()
        sys.meta_path.insert(0, _Finder())


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


class _Finder(MetaPathFinder):
    """Finds the module as the other finders do, with a loader that replaces its communicators.

    The finder stays installed: a program may ask for the module's spec before it imports it.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        # Those before this one may ask it, as it would ask them.
        finders = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(fullname, path, target) for finder in finders)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Replacing(spec.loader)
        return spec


class _Replacing(Loader):
    """Loads the module by mpi4py's loader, then replaces the communicators."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # such as `path` and `get_filename`

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        _replace(module)
