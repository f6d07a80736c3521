"""Tell environments apart that have one name: those of several libraries or machines.

The benchmark's own records have no environment, and two studies may have one of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mpicoll.records.description import FullRun
from mpicoll.records.lines import CaseRecord, LaunchRecord, Record
from mpicoll.records.reading import only, runs


def environments_of(records: Sequence[Record]) -> dict[str, str]:
    """Return the environment of each run by its id.

    It is what the records say, or "". Where the library of a backend, the thread level or the
    processors differ under one name, that name gets them, too.
    """
    described = runs(records)
    names = dict.fromkeys(described, "")
    names |= {each.run.id: each.environment or "" for each in only(CaseRecord, records)}
    names |= {each.run: each.environment for each in only(LaunchRecord, records) if each.run}
    groups: dict[str, dict[str, Sequence[str]]] = {}
    for run, full in described.items():
        groups.setdefault(names[run], {})[run] = _marks(full)
    for name, marks in groups.items():
        differ = [len({*each} - {""}) > 1 for each in zip(*marks.values(), strict=True)]
        for run, own in marks.items():
            *more, machine = (mark if told else "" for mark, told in zip(own, differ, strict=True))
            names[run] = _joined(" on ", _joined(" ", name, *more), machine)
    return names


def _joined(between: str, *parts: str) -> str:
    return between.join(filter(None, parts))


def _marks(run: FullRun) -> Sequence[str]:
    """Return the libraries, thread level and processors of a run, "" for each that it lacks."""
    libraries = (run.libraries.get(backend, "") for backend in ("mpi4py", "torch"))
    processors = sorted({each.processor or "" for each in run.machines} - {""})
    return *map(short_name, libraries), run.threads or "", " and ".join(processors)


def short_name(library: str) -> str:
    r"""Return a library and its version.

    >>> short_name("MPICH Version:      5.0.2\nMPICH Release date: ...")
    'MPICH 5.0.2'
    >>> short_name("Intel(R) MPI Library 2021.15 for Linux* OS")
    'Intel(R) MPI Library 2021.15'
    """
    return " ".join(re.split(r",| for |\n", library.replace("Version:", ""))[0].split())


def tell_apart(records: Sequence[Record], names: Mapping[str, str]) -> None:
    """Give the records of runs the environments that `environments_of` found."""
    for each in records:
        if isinstance(each, CaseRecord):
            each.environment = names.get(each.run.id, each.environment) or None
        elif isinstance(each, LaunchRecord) and each.run:
            each.environment = names.get(each.run, each.environment)
