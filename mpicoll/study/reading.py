"""Read a study from its records: the cells, and what was left out of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from mpicoll.measurement.judgement import are_disturbed, contradict
from mpicoll.measurement.statistics import spread
from mpicoll.records.description import FullRun
from mpicoll.records.lines import CaseRecord, Forced, LaunchRecord, Record, RunRecord
from mpicoll.records.reading import only
from mpicoll.study.cells import Cell, Contestant, Name, Panel
from mpicoll.text.html import facts_table
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text


@dataclass
class Study:
    """All that the records of a study say.

    Attributes:
        launches: the records of launches; empty for records of the benchmark.
        forced: how an algorithm was forced, by environment, collective and algorithm.
        libraries: by environment and backend.
        runs: the descriptions of the launches.
        measured: ids of the launches that tried a contestant, by panel and contestant.
        left_out: records with a wrong result or without a time, by panel and contestant.
        contradictions: native calls whose plan and method exclude each other, in words, by panel.
    """

    cells: dict[tuple[Panel, int], Cell]
    launches: list[LaunchRecord]
    forced: dict[tuple[str, str, str], list[Forced]]
    libraries: dict[str, str]
    runs: list[FullRun]
    measured: dict[tuple[Panel, Name], set[str]]
    left_out: dict[tuple[Panel, Name], list[CaseRecord]]
    contradictions: list[tuple[Panel, str]] = field(default_factory=list)

    def _repr_html_(self) -> str:
        facts = {
            "environments": ", ".join(self.environments()),
            "libraries": ", ".join(dict.fromkeys(self.libraries.values())),
            "launches": len(self.launches), "runs": len(self.runs), "panels": len(self.panels()),
            "cells": len(self.cells), "cells without a result": len(self.left_out),
        }  # fmt: skip
        return facts_table("study", facts)

    def panels(self) -> list[Panel]:
        """Return every panel once, in the order of the records."""
        return list(dict.fromkeys(panel for panel, _ in self.cells))

    def of(self, panel: Panel) -> list[Cell]:
        """Return the cells of a panel by size."""
        return sorted(
            (cell for (cell_panel, _), cell in self.cells.items() if cell_panel == panel),
            key=lambda cell: cell.size,
        )

    def environments(self) -> list[str]:
        """Return the names of the environments."""
        names = (name.environment for cell in self.cells.values() for name in cell.contestants)
        return list(dict.fromkeys(names))

    def configurations(self) -> dict[str, list[LaunchRecord]]:
        """Return the launches of each configuration by its name."""
        by_name: dict[str, list[LaunchRecord]] = {}
        for launch in self.launches:
            by_name.setdefault(launch.configuration, []).append(launch)
        return by_name


def study_of(records: Iterable[Record]) -> Study:
    """Return the cells of records, without wrong results and refused cases."""
    all_records = list(records)
    launches = only(LaunchRecord, all_records)
    cells: dict[tuple[Panel, int], Cell] = {}
    libraries: dict[str, str] = {}
    groups: dict[tuple[Panel, int, Name], list[CaseRecord]] = {}
    measured: dict[tuple[Panel, Name], set[str]] = {}
    left_out: dict[tuple[Panel, Name], list[CaseRecord]] = {}
    for record in only(CaseRecord, all_records):
        panel, name = panel_of(record), name_of(record)
        measured.setdefault((panel, name), set()).add(record.run.id)
        if record.time_us is not None and record.correct is not False:
            groups.setdefault((panel, record.bytes_total, name), []).append(record)
        else:
            left_out.setdefault((panel, name), []).append(record)
    for (panel, size, name), group in groups.items():
        cell = cells.setdefault((panel, size), Cell(panel, size))
        contestant = cell.contestants.setdefault(name, Contestant(name))
        contestant.is_disturbed = are_disturbed(group)
        for record in group:
            _add(contestant, record)
        libraries.setdefault(f"{name.environment} {name.backend}".strip(), group[0].library)
    for cell in cells.values():
        cell.missing = list(_missing(cell, left_out, groups))
    runs = [record.run for record in only(RunRecord, all_records)]
    found = list(_contradictions(cells.values()))
    _add_other_ways(cells.values())
    return Study(
        cells, launches, _group_forced(launches), libraries, runs, measured, left_out, found
    )


def _by_case(cells: Iterable[Cell]) -> Iterable[list[Cell]]:
    """Return the cells in groups that only the kind of call distinguishes."""
    groups: dict[tuple[Panel, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((replace(cell.panel, call=""), cell.size), []).append(cell)
    return groups.values()


def _contradictions(cells: Iterable[Cell]) -> Iterator[tuple[Panel, str]]:
    """Yield the native calls that take another time as a plan than as a method; mark both."""
    for alike in _by_case(cells):
        sides = [cell for cell in alike if cell.panel.call in ("plan", "method")]
        for slow_cell, fast_cell in permutations(sides, 2):
            for slow in slow_cell.natives():
                fast = fast_cell.contestants.get(slow.name)
                is_method = slow_cell.panel.call == "method"
                if fast is None or not contradict(
                    slow.interval[0], fast.interval[1], is_method=is_method
                ):
                    continue
                slow.is_contradicted = fast.is_contradicted = True
                size = f", {bytes_text(slow_cell.size)}" if slow_cell.size else ""
                yield (
                    fast_cell.panel,
                    f"{replace(fast_cell.panel, call='plan')}{size}: {slow.label} takes "
                    f"{number(slow.us)} us as a {slow_cell.panel.call} and {number(fast.us)} us "
                    f"as a {fast_cell.panel.call}. One of the times is wrong, so there is no "
                    "winner.",
                )


def _add_other_ways(cells: Iterable[Cell]) -> None:
    """Add the native calls of a case to its cells of other kinds of call."""
    for alike in _by_case(cells):
        for cell in alike:
            cell.other_ways = [
                replace(native, way=other.panel.call)
                for other in alike if other is not cell for native in other.natives()
            ]  # fmt: skip


def _missing(
    cell: Cell, left_out: Mapping[tuple[Panel, Name], Sequence[CaseRecord]],
    timed: Iterable[tuple[Panel, int, Name]],
) -> Iterator[Name]:  # fmt: skip
    """Yield the native calls that a cell lacks, although the libraries have the call.

    A library that refuses the call at every size in every launch does not have it.
    """
    has_times = {(panel, name) for panel, _, name in timed}
    for environment, backend in dict.fromkeys((n.environment, n.backend) for n in cell.contestants):
        name = Name(environment, backend, "native")
        refused = left_out.get((cell.panel, name), [])
        is_absent = bool(refused) and all(record.correct is not False for record in refused)
        is_call = (cell.panel, name) in has_times or not is_absent
        if name not in cell.contestants and is_call:
            yield name


def panel_of(record: CaseRecord) -> Panel:
    """Return the panel of a record."""
    return Panel(
        record.collective, record.ranks, record.nodes, record.dtype or "", record.op or "",
        record.root, record.call, record.device,
        record.in_place and record.collective != "broadcast", record.allocated,
    )  # fmt: skip


def name_of(record: CaseRecord) -> Name:
    """Return the contestant that a record is of."""
    return Name(record.environment or "", record.backend, record.algorithm)


def _add(contestant: Contestant, record: CaseRecord) -> None:
    assert record.time_us is not None
    run = record.run.id
    contestant.times[run] = record.time_us.median
    contestant.counts[run] = record.samples
    contestant.bounds[run] = record.time_us.low, record.time_us.high
    contestant.within[run] = spread(record.samples_us)
    contestant.samples[run] = record.samples_us
    executed = record.executed or record.algorithm
    is_native = record.transport in (None, "native")
    contestant.library = record.library
    contestant.ran[run] = executed if is_native else f"{executed}@{record.transport}"
    if record.speedup_vs_native is not None:
        contestant.to_native[run] = record.speedup_vs_native.ratio
    speedup = record.speedup_vs_other
    if speedup is not None:
        backend, _, algorithm = speedup.against.partition(" ")
        place = contestant.to_forced if backend == record.backend else contestant.to_other
        key = algorithm if backend == record.backend else speedup.against
        place.setdefault(key, {})[run] = speedup.ratio


def _group_forced(launches: Sequence[LaunchRecord]) -> dict[tuple[str, str, str], list[Forced]]:
    forced: dict[tuple[str, str, str], list[Forced]] = {}
    for launch in launches:
        for collective, how in launch.forced.items():
            forced.setdefault((launch.environment, collective, how.algorithm), []).append(how)
    return forced


def counterpart(
    forced: Mapping[tuple[str, str, str], Sequence[Forced]], name: Name, collective: str
) -> str | None:
    """Return mpicoll's name of a library's own algorithm, None without a counterpart."""
    algorithm = name.algorithm.removeprefix("native(algorithm=").removesuffix(")")
    hows = forced.get((name.environment, collective, algorithm))
    return hows[0].ours if hows else None
