"""The former names of commands: for one release each still runs its command, after a warning."""

from __future__ import annotations

import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from mpicoll.machine.launchers import is_first_process

_ROOT = Path(__file__).parents[2]
_REFUSED = 2


class _Successor(NamedTuple):
    """The module that runs for a former name, and the command that a user writes instead."""

    module: str
    command: str


_SUCCESSORS = {
    "algorithms": _Successor("mpicoll.explain.catalogue", "mpicoll.explain COLLECTIVE"),
    "defaults": _Successor(
        "mpicoll.explain.library_choices", "mpicoll.explain COLLECTIVE --defaults"
    ),
    "records": _Successor("mpicoll.report.checking", "mpicoll.report FILES"),
    "simulator": _Successor("mpicoll.explain.proofs", "mpicoll.explain COLLECTIVE --prove SIZES"),
    "bench.overhead": _Successor("tests.selftest.recorder", "tests.selftest.recorder"),
    "bench.trust": _Successor("tests.selftest.trust", "tests.selftest.trust"),
    "bench.twins": _Successor("tests.selftest.twins", "tests.selftest.twins"),
    "selftest.chaos": _Successor("tests.selftest.chaos", "tests.selftest.chaos"),
    "selftest.gpubound": _Successor("tests.selftest.gpubound", "tests.selftest.gpubound"),
    "selftest.overhead": _Successor("tests.selftest.overhead", "tests.selftest.overhead"),
    "selftest.soak": _Successor("tests.selftest.soak", "tests.selftest.soak"),
}
FORMER_NAMES = (*_SUCCESSORS,)


def run_former(name: str) -> None:
    """Run the command that a former name meant, and print its new name on standard error.

    What only developers run is in the tests of the repository: an installed package refuses it.
    """
    successor = _SUCCESSORS[name]
    in_repository = successor.module.startswith("tests.")
    if in_repository:
        sys.path.insert(0, str(_ROOT))
    is_there = not in_repository or (_ROOT / "tests" / "selftest").is_dir()
    place = " in a checkout of the repository" if in_repository else ""
    kind = "Warning" if is_there else "Error"
    if is_first_process():
        print(
            f"{kind}: mpicoll.{name} is now python -m {successor.command}{place}; a later release "
            "removes the old name",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    if not is_there:
        raise SystemExit(_REFUSED)
    if in_repository:
        runpy.run_module(successor.module, run_name="__main__", alter_sys=True)
    else:
        import_module(successor.module).main()
