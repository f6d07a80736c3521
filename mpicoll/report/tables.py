"""All tables of a report: names of columns, and rows of plain values."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from mpicoll.records.description import FullRun, Machine
from mpicoll.records.identity import FIELDS
from mpicoll.records.lines import CaseRecord
from mpicoll.report.curves import Panel, median_of
from mpicoll.report.data import Report
from mpicoll.report.notices import Place
from mpicoll.report.setups import Setup, by_run, machine_kind, one_line
from mpicoll.report.winners import Winner

Row = Sequence[Any]


@dataclass(frozen=True)
class ReportTable:
    """A table that can be downloaded.

    Attributes:
        name: of its file, without ``.csv``.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Row]

    def csv(self) -> str:
        """Return the table as CSV with a header line."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def tables(report: Report) -> dict[str, ReportTable]:
    """Return all tables by name."""
    all_tables = (
        _notices(report), _runs(report), _machines(report), _variables(report), _cases(report),
        _winners(report), _model(report), _pairs(report), _fits(report),
    )  # fmt: skip
    return {table.name: table for table in all_tables}


def _notices(report: Report) -> ReportTable:
    rows = [
        (notice.severity, notice.heading, notice.why, place.text)
        for notice in report.notices for place in notice.places or (Place(""),)
    ]  # fmt: skip
    return ReportTable("warnings", ("severity", "what", "why", "where"), rows)


# -- the machine ------------------------------------------------------------------------


def _runs(report: Report) -> ReportTable:
    columns = (
        "run", "setup", "started", "ranks", "hosts", "libraries", "MPI standard", "MPI device",
        "provider", "NCCL", "CUDA", "versions", "commit", "changed", "clock error us",
        "oversubscribed", "load before", "timing", "confidence", "seed", "command",
    )  # fmt: skip
    setup_of = by_run(report.setups)
    rows = [_run(run, setup_of.get(run.id)) for run in report.records.runs.values()]
    return ReportTable("runs", columns, rows)


def _run(run: FullRun, setup: Setup | None) -> Row:
    mpi, stack = run.stack.mpi, run.stack
    return (
        run.id, setup.name if setup else "pairs", run.started, len(run.hosts),
        ", ".join(dict.fromkeys(run.hosts)), "; ".join(map(one_line, run.libraries.values())),
        mpi and mpi.standard, mpi and mpi.device, mpi and mpi.provider, stack.nccl,
        stack.cuda_driver, _named(run.versions), run.git and run.git.commit,
        run.git and run.git.dirty, run.clock.sync_error_us, run.oversubscribed, run.load,
        run.settings.timing or None, run.settings.confidence or None, run.seed,
        " ".join(run.argv or run.command),
    )  # fmt: skip


def _named(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _machines(report: Report) -> ReportTable:
    columns = ("run", "host", "processor", "cores", "kernel", "ranks", "quota", "binding")
    rows = [
        (run.id, host.host, host.processor, host.cores, host.kernel, host.ranks, run.quota,
         _binding(run, host))
        for run in report.records.runs.values() for host in run.machines
    ]  # fmt: skip
    return ReportTable("machines", columns, rows)


def _binding(run: FullRun, machine: Machine) -> str:
    """Return the cores of a host's ranks, or "not bound"."""
    ranks = [binding for binding in run.binding if binding.host == machine.host]
    if not any(rank.bound for rank in ranks):
        return "not bound" if ranks else ""
    return "; ".join(f"rank {rank.rank}: {rank.cores}" for rank in ranks)


def _variables(report: Report) -> ReportTable:
    rows = [
        (run.id, name, value)
        for run in report.records.runs.values() for name, value in run.environment.items()
    ]  # fmt: skip
    return ReportTable("variables", ("run", "variable", "value"), rows)


# -- cases --------------------------------------------------------------------------------

_TIMES = ("median", "low", "high", "p95", "p99")
_RATIO = ("ratio", "low", "high")
_COUNTS = ("samples", "late_share", "preempted", "undisturbed", "sync_error_us")
_LAST = ("algbw_GBps", "busbw_GBps", "correct", "message")


def _cases(report: Report) -> ReportTable:
    columns = (
        "setup", *FIELDS, "executed", "transport", *(f"{name} us" for name in _TIMES),
        *(f"vs native {name}" for name in (*_RATIO, "verdict")), *_COUNTS, *_LAST, "run",
    )  # fmt: skip
    rows = [
        _case(panel, record)
        for panel in report.panels for record in (*panel.records(), *panel.refused)
    ]  # fmt: skip
    return ReportTable("cases", columns, rows)


def _case(panel: Panel, record: CaseRecord) -> Row:
    return (
        panel.scope.setup, *_values(record, FIELDS), record.executed, record.transport,
        *_values(record.time_us, _TIMES), *_values(record.speedup_vs_native, _RATIO),
        panel.against_native(record), *_values(record, (*_COUNTS, *_LAST)), record.run.id,
    )  # fmt: skip


def _values(record: object, names: Sequence[str]) -> list[Any]:
    """Return the values of these fields, all None without a record."""
    return [getattr(record, name) if record else None for name in names]


def _winners(report: Report) -> ReportTable:
    columns = (
        "setup", "collective", "variant", "ranks", "nodes", "bytes_total", "backend", "algorithm",
        "executed", "transport", "median us", "low us", "high us", "lead", "runner-up",
        "runner-up us", "times native",
    )  # fmt: skip
    rows = [
        (winner_map.setup, winner_map.collective, winner_map.variant, *row, size, *_winner(cell))
        for winner_map in report.maps for (row, size), cell in winner_map.cells.items()
    ]  # fmt: skip
    return ReportTable("winners", columns, rows)


def _winner(cell: Winner) -> Row:
    first, second = cell.record, cell.runner_up
    return (
        *_values(first, ("backend", "algorithm", "executed", "transport")),
        *_values(first.time_us, ("median", "low", "high")), cell.decision,
        f"{second.backend} {second.algorithm}" if second else None,
        median_of(second) if second else None, cell.times_native,
    )  # fmt: skip


def _model(report: Report) -> ReportTable:
    columns = (
        "setup", "collective", "variant", "ranks", "nodes", "bytes_total", "backend", "algorithm",
        "executed", "transport", "links of", "measured us", "model us", "measured / model",
        "bound us", "measured / bound",
    )  # fmt: skip
    names = ("ranks", "nodes", "bytes_total", "backend", "algorithm", "executed", "transport")
    rows = [
        (
            panel.scope.setup, panel.collective, panel.scope.variant,
            *_values(comparison.record, names), comparison.links, median_of(comparison.record),
            comparison.model, comparison.over_model, comparison.bound, comparison.over_bound,
        )
        for panel, rows in zip(report.panels, report.comparisons, strict=True)
        for comparison in rows
    ]  # fmt: skip
    return ReportTable("model", columns, rows)


# -- pairs --------------------------------------------------------------------------------


def _pairs(report: Report) -> ReportTable:
    names = (
        "backend", "transport", "device", "quantity", "source", "target", "source_host",
        "target_host", "link", "bytes", "GBps", "typical", "outlier", "correct", "samples",
    )  # fmt: skip
    times = ("median", "low", "high")
    rows = [
        (record.run.id, *_values(record, names), *_values(record.time_us, times), record.message)
        for record in report.records.pairs
    ]
    return ReportTable("pairs", ("run", *names, *(f"{name} us" for name in times), "message"), rows)


def _fits(report: Report) -> ReportTable:
    names = (
        "backend", "library", "transport", "device", "link", "ranks", "nodes", "alpha_us",
        "beta_ns_per_byte", "GBps", "error", "worst_error", "points", "pairs",
    )  # fmt: skip
    rows = [
        (fit.run.id, machine_kind(report.records.run_of(fit)), *_values(fit, names))
        for fit in report.records.fits
    ]
    return ReportTable("fits", ("run", "machine", *names), rows)
