"""Call a function when a program imports a module, which stays as its own loader makes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    # Python needs only the methods of these classes, and their import delays a program.
    Loader = MetaPathFinder = object


def call_after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call a function with a module whenever Python has loaded it.

    Args:
        name: of the module, which is not imported yet.
    """
    sys.meta_path.insert(0, _Finder(name, act))


class _Finder(MetaPathFinder):
    """Finds the module as the other finders do, with a loader that calls the function.

    The finder stays installed: a program may ask for the module's spec before it imports it.
    """

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self.name, self.act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        # Those before this one may ask it, as it would ask them.
        finders = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(fullname, path, target) for finder in finders)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Acting(spec.loader, self.act)
        return spec


class _Acting(Loader):
    """Loads the module by its loader, then calls the function."""

    def __init__(self, loader: Loader, act: Callable[[ModuleType], None]) -> None:
        self.loader, self.act = loader, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # such as `path` and `get_filename`

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.act(module)


def record_messages() -> None:
    """Have the messages and waits of a program recorded if it leaves a trace."""
    folder = os.environ.get("MPICOLL_FLIGHT_DIR")
    if folder is not None:
        from mpicoll.flight.directory import keeps_files  # other programs do not need these

        if keeps_files():
            from mpicoll.run.recording import start

            start(folder, only_messages=True)
