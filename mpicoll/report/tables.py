"""Every table of a report: names of columns, and rows of plain values."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from mpicoll.records.identity import FIELDS
from mpicoll.records.journal import Line
from mpicoll.report.data import Report
from mpicoll.report.loading import run_id
from mpicoll.report.setups import by_run, kind

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
        """Return it as CSV with a header line."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def tables(found: Report) -> dict[str, ReportTable]:
    """Return all tables by name."""
    made = (
        _notices(found), _runs(found), _machines(found), _variables(found), _cases(found),
        _winners(found), _against(found), _pairs(found), _fits(found),
    )  # fmt: skip
    return {each.name: each for each in made}


def _notices(found: Report) -> ReportTable:
    rows = [
        (each.severity, each.what, each.why, where)
        for each in found.notices for where in each.where or ("",)
    ]  # fmt: skip
    return ReportTable("warnings", ("severity", "what", "why", "where"), rows)


# -- the machine ------------------------------------------------------------------------


def _runs(found: Report) -> ReportTable:
    columns = (
        "run", "setup", "started", "ranks", "hosts", "libraries", "MPI standard", "MPI device",
        "provider", "NCCL", "CUDA", "versions", "commit", "changed", "clock error us",
        "oversubscribed", "load before", "timing", "confidence", "seed", "command",
    )  # fmt: skip
    letters = by_run(found.setups)
    rows = [_run(run, letters) for run in found.records.runs.values()]
    return ReportTable("runs", columns, rows)


def _run(run: Line, letters: Any) -> Row:
    mpi = (run.get("stack") or {}).get("mpi") or {}
    stack, settings = run.get("stack") or {}, run.get("settings") or {}
    git = run.get("git") or {}
    setup = letters.get(str(run.get("id")))
    hosts = run.get("hosts") or ()
    return (
        run.get("id"), setup.name if setup else "pairs", run.get("started"), len(hosts),
        ", ".join(dict.fromkeys(hosts)),
        "; ".join(" ".join(str(each).split()) for each in run.get("libraries", {}).values()),
        mpi.get("standard"), mpi.get("device"), mpi.get("provider"), stack.get("nccl"),
        stack.get("cuda_driver"), _pairs_of(run.get("versions")), git.get("commit"),
        git.get("dirty"), (run.get("clock") or {}).get("sync_error_us"),
        run.get("oversubscribed"), run.get("load"), settings.get("timing"),
        settings.get("confidence"), run.get("seed"),
        " ".join(map(str, run.get("argv") or run.get("command") or ())),
    )  # fmt: skip


def _pairs_of(given: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in (given or {}).items())


def _machines(found: Report) -> ReportTable:
    columns = ("run", "host", "processor", "cores", "kernel", "ranks", "quota", "binding")
    rows = [
        (
            run.get("id"), host.get("host"), host.get("processor"), host.get("cores"),
            host.get("kernel"), host.get("ranks"), run.get("quota"), _binding(run, host),
        )
        for run in found.records.runs.values() for host in run.get("machines") or ()
    ]  # fmt: skip
    return ReportTable("machines", columns, rows)


def _binding(run: Line, host: Line) -> str:
    """Return the cores of a host's ranks, or that they are not bound."""
    ranks = [each for each in run.get("binding") or () if each["host"] == host["host"]]
    if not any(each["bound"] for each in ranks):
        return "not bound" if ranks else ""
    return "; ".join(f"rank {each['rank']}: {each['cores']}" for each in ranks)


def _variables(found: Report) -> ReportTable:
    rows = [
        (run.get("id"), name, value)
        for run in found.records.runs.values()
        for name, value in (run.get("environment") or {}).items()
    ]
    return ReportTable("variables", ("run", "variable", "value"), rows)


# -- cases --------------------------------------------------------------------------------

_TIMES = ("median", "low", "high", "p95", "p99")
_RATIO = ("ratio", "low", "high", "verdict")
_COUNTS = ("samples", "late_share", "preempted", "undisturbed", "sync_error_us")
_LAST = ("algbw_GBps", "busbw_GBps", "correct", "message")


def _cases(found: Report) -> ReportTable:
    columns = (
        "setup", *FIELDS, "executed", "transport", *(f"{name} us" for name in _TIMES),
        *(f"vs native {name}" for name in _RATIO), *_COUNTS, *_LAST, "run",
    )  # fmt: skip
    rows = [
        _case(panel.where.setup, each)
        for panel in found.panels for each in (*panel.records(), *panel.refused)
    ]  # fmt: skip
    return ReportTable("cases", columns, rows)


def _case(setup: str, record: Line) -> Row:
    times, ratio = record["time_us"] or {}, record["speedup_vs_native"] or {}
    return (
        setup, *(record[name] for name in FIELDS), record["executed"], record["transport"],
        *(times.get(name) for name in _TIMES), *(ratio.get(name) for name in _RATIO),
        *(record.get(name) for name in (*_COUNTS, *_LAST)), run_id(record),
    )  # fmt: skip


def _winners(found: Report) -> ReportTable:
    columns = (
        "setup", "collective", "variant", "ranks", "nodes", "bytes_total", "backend", "algorithm",
        "executed", "transport", "median us", "low us", "high us", "tie", "runner-up",
        "runner-up us", "times native",
    )  # fmt: skip
    rows = [
        (each.setup, each.collective, each.variant, *row, size, *_winner(cell))
        for each in found.maps for (row, size), cell in each.cells.items()
    ]  # fmt: skip
    return ReportTable("winners", columns, rows)


def _winner(cell: Any) -> Row:
    first, second = cell.record, cell.runner_up
    return (
        *(first[name] for name in ("backend", "algorithm", "executed", "transport")),
        *(first["time_us"][name] for name in ("median", "low", "high")), cell.ties,
        f"{second['backend']} {second['algorithm']}" if second else None,
        second["time_us"]["median"] if second else None, cell.times_native,
    )  # fmt: skip


def _against(found: Report) -> ReportTable:
    columns = (
        "setup", "collective", "variant", "ranks", "nodes", "bytes_total", "backend", "algorithm",
        "executed", "transport", "links of", "measured us", "model us", "measured / model",
        "bound us", "measured / bound",
    )  # fmt: skip
    names = ("ranks", "nodes", "bytes_total", "backend", "algorithm", "executed", "transport")
    rows = [
        (
            panel.where.setup, panel.collective, panel.where.variant,
            *(each.record[name] for name in names), each.links, each.record["time_us"]["median"],
            each.model, each.over_model, each.bound, each.over_bound,
        )
        for panel, rows in zip(found.panels, found.against, strict=True) for each in rows
    ]  # fmt: skip
    return ReportTable("model", columns, rows)


# -- pairs --------------------------------------------------------------------------------


def _pairs(found: Report) -> ReportTable:
    names = (
        "backend", "transport", "device", "quantity", "source", "target", "source_host",
        "target_host", "link", "bytes", "GBps", "typical", "outlier", "correct", "samples",
    )  # fmt: skip
    times = ("median", "low", "high")
    rows = [
        (
            each.run.id, *(getattr(each, name) for name in names),
            *(getattr(each.time_us, name, None) for name in times), each.message,
        )
        for each in found.records.pairs
    ]  # fmt: skip
    return ReportTable("pairs", ("run", *names, *(f"{name} us" for name in times), "message"), rows)


def _fits(found: Report) -> ReportTable:
    names = (
        "backend", "library", "transport", "device", "link", "ranks", "nodes", "alpha_us",
        "beta_ns_per_byte", "GBps", "error", "worst_error", "points", "pairs",
    )  # fmt: skip
    rows = [
        (run_id(each), kind(found.records.run_of(each)), *(each.get(name) for name in names))
        for each in found.records.fits
    ]
    return ReportTable("fits", ("run", "machine", *names), rows)
