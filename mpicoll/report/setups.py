"""Setups: the runs of the same machines, libraries and settings, which share pictures.

The number of ranks is no condition here, because pictures have an axis or a selector for it. Of the
hosts only the kind counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from mpicoll.records.conditions import differences
from mpicoll.records.description import FullRun


@dataclass
class Setup:
    """Runs under the same conditions.

    Attributes:
        name: A, B, ...
        differences: from the first setup, in words; empty for the first one.
    """

    name: str
    runs: list[FullRun] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The name, the kind of machine and the libraries."""
        libraries = {name: text for run in self.runs for name, text in run.libraries.items()}
        kinds = dict.fromkeys(machine_kind(run) for run in self.runs)
        return f"{self.name}: {', '.join([*kinds, *map(one_line, libraries.values())])}"

    def facts(self) -> Iterator[tuple[str, str | None]]:
        """Yield the name and the value of each fact that the runs share."""
        first = self.runs[0]
        mpi = first.stack.mpi
        yield "hosts", ", ".join(dict.fromkeys(host for run in self.runs for host in run.hosts))
        yield "ranks", ", ".join(str(len(run.hosts)) for run in self.runs)
        yield "MPI", f"{mpi.library} {mpi.device or ''}".strip() if mpi else None
        yield "provider", mpi.provider if mpi else None
        yield "NCCL", first.stack.nccl
        yield "versions", ", ".join(f"{name} {version}" for name, version in first.versions.items())
        yield "command", " ".join(first.argv or first.command)


def setups(runs: Iterable[FullRun]) -> list[Setup]:
    """Return the runs in groups of the same conditions."""
    groups: list[Setup] = []
    for run in runs:
        for setup in groups:
            if not unlike(setup.runs[0], run):
                setup.runs.append(run)
                break
        else:
            from_first = unlike(groups[0].runs[0], run) if groups else []
            groups.append(Setup(_name(len(groups)), [run], from_first))
    return groups


def by_run(groups: Sequence[Setup]) -> dict[str, Setup]:
    """Return the setup of each run, by the run's id."""
    return {run.id: setup for setup in groups for run in setup.runs}


def unlike(first: FullRun, second: FullRun) -> list[str]:
    """Return the differences of two runs in words, without the number of ranks."""
    return differences(_of_any_size(first), _of_any_size(second))


def machine_kind(run: FullRun) -> str:
    """Return the kind of hosts of a run; their names if the kind is unknown.

    >>> from mpicoll.records.description import Machine
    >>> machine_kind(FullRun(machines=[Machine("a", processor="P", cores=8)] * 2))
    'P, 8 cores'
    """
    kinds = sorted({f"{machine.processor}, {machine.cores} cores" for machine in run.machines})
    return "; ".join(kinds or sorted(set(run.hosts)))


def _of_any_size(run: FullRun) -> FullRun:
    return replace(run, hosts=[machine_kind(run)], cores=[])


def one_line(text: str) -> str:
    """Return a text on one line; versions of libraries have line breaks."""
    return " ".join(text.split())


def _name(index: int) -> str:
    """Return A, B, ... Z, AA, ...

    >>> _name(0), _name(25), _name(26)
    ('A', 'Z', 'AA')
    """
    more, letter = divmod(index, 26)
    return (_name(more - 1) if more else "") + chr(ord("A") + letter)
