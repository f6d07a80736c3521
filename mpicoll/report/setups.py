"""Which runs may stand in one picture: those of the same machines, libraries and settings.

The number of ranks is no condition here, as pictures have an axis or a selector for it: of the
hosts counts what kind they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpicoll.records.conditions import differences
from mpicoll.records.journal import Line

Run = Mapping[str, Any]


@dataclass
class Setup:
    """Runs under the same conditions.

    Attributes:
        name: a letter.
        differences: in words, from the first setup; none in that.
    """

    name: str
    runs: list[Line] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The letter, and what kind of machine and which libraries that is."""
        libraries = {name: text for run in self.runs for name, text in _libraries(run).items()}
        kinds = dict.fromkeys(kind(run) for run in self.runs)
        return f"{self.name}: {', '.join([*kinds, *libraries.values()])}"

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the value of each fact that the runs share."""
        first = self.runs[0]
        stack = first.get("stack") or {}
        mpi = stack.get("mpi") or {}
        yield "hosts", ", ".join(dict.fromkeys(host for run in self.runs for host in run["hosts"]))
        yield "ranks", ", ".join(str(len(run["hosts"])) for run in self.runs)
        yield "MPI", " ".join(str(mpi.get(name) or "") for name in ("library", "device")).strip()
        yield "provider", mpi.get("provider")
        yield "NCCL", stack.get("nccl")
        yield "versions", ", ".join(f"{name} {each}" for name, each in first["versions"].items())
        yield "command", " ".join(map(str, first.get("argv") or first.get("command") or ()))


def setups(runs: Iterable[Line]) -> list[Setup]:
    """Return the runs, each with those of the same conditions."""
    found: list[Setup] = []
    for run in runs:
        for setup in found:
            if not unlike(setup.runs[0], run):
                setup.runs.append(run)
                break
        else:
            told = unlike(found[0].runs[0], run) if found else []
            found.append(Setup(_letters(len(found)), [run], told))
    return found


def by_run(found: Sequence[Setup]) -> dict[str, Setup]:
    """Return the setup of each run, by the run's id."""
    return {str(run.get("id")): setup for setup in found for run in setup.runs}


def unlike(first: Run, second: Run) -> list[str]:
    """Say how the conditions of two runs differ beyond their numbers of ranks."""
    return differences(_of_any_size(first), _of_any_size(second))


def kind(run: Run) -> str:
    """Return what kind of hosts a run had; names where nothing more is known of them.

    >>> kind({"machines": [{"processor": "P", "cores": 8}] * 2})
    'P, 8 cores'
    """
    machines = run.get("machines") or []
    told = sorted({f"{each.get('processor')}, {each.get('cores')} cores" for each in machines})
    return "; ".join(told or sorted(set(run.get("hosts") or ())))


def _of_any_size(run: Run) -> Line:
    return {**run, "hosts": [kind(run)], "cores": None}


def _libraries(run: Run) -> dict[str, str]:
    return {name: " ".join(str(text).split()) for name, text in run.get("libraries", {}).items()}


def _letters(index: int) -> str:
    """Return A, B, ... Z, AA, ...

    >>> _letters(0), _letters(25), _letters(26)
    ('A', 'Z', 'AA')
    """
    more, own = divmod(index, 26)
    return (_letters(more - 1) if more else "") + chr(ord("A") + own)
