"""Give runs of different libraries or machines different names of environments.

Records of the benchmark have no environment, and two studies may use the same name for different
ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mpicoll.records.description import FullRun
from mpicoll.records.lines import CaseRecord, LaunchRecord, Record
from mpicoll.records.reading import only, runs


def environments_of(records: Sequence[Record]) -> dict[str, str]:
    """Return the environment of each run by its id.

    It is the name in the records, or "". If the library of a backend, the thread level or the
    processors differ under one name, they are added to the name.
    """
    described = runs(records)
    names = dict.fromkeys(described, "")
    names |= {record.run.id: record.environment or "" for record in only(CaseRecord, records)}
    names |= {
        record.run: record.environment for record in only(LaunchRecord, records) if record.run
    }
    groups: dict[str, dict[str, Sequence[str]]] = {}
    for run, full in described.items():
        groups.setdefault(names[run], {})[run] = _marks(full)
    for name, marks in groups.items():
        differ = [len({*values} - {""}) > 1 for values in zip(*marks.values(), strict=True)]
        for run, run_marks in marks.items():
            *more, machine = (
                mark if is_shown else "" for mark, is_shown in zip(run_marks, differ, strict=True)
            )
            names[run] = _join(" on ", _join(" ", name, *more), machine)
    return names


def _join(between: str, *parts: str) -> str:
    return between.join(filter(None, parts))


def _marks(run: FullRun) -> Sequence[str]:
    """Return the libraries, thread level and processors of a run, "" for each that it lacks."""
    libraries = (run.libraries.get(backend, "") for backend in ("mpi4py", "torch"))
    processors = sorted({machine.processor or "" for machine in run.machines} - {""})
    return *map(short_name, libraries), run.threads or "", " and ".join(processors)


def short_name(library: str) -> str:
    r"""Return a library and its version.

    >>> short_name("MPICH Version:      5.0.2\nMPICH Release date: ...")
    'MPICH 5.0.2'
    >>> short_name("Intel(R) MPI Library 2021.15 for Linux* OS")
    'Intel(R) MPI Library 2021.15'
    """
    return " ".join(re.split(r",| for |\n", library.replace("Version:", ""))[0].split())


def set_environments(records: Sequence[Record], names: Mapping[str, str]) -> None:
    """Set the environments of records to the names that `environments_of` returned."""
    for record in records:
        if isinstance(record, CaseRecord):
            record.environment = names.get(record.run.id, record.environment) or None
        elif isinstance(record, LaunchRecord) and record.run:
            record.environment = names.get(record.run, record.environment)
