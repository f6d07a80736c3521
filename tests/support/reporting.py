"""Records whose report is known, made without running anything."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from mpicoll.records.lines import CaseRecord
from mpicoll.report.data import Report, report
from mpicoll.report.loading import load

Record = dict[str, Any]

ALPHA_US, BETA_NS = 2.0, 0.5
MPICH = "MPICH Version: 5.0.2"


def run(name: str = "r1", ranks: int = 4, host: str = "h", **more: Any) -> Record:
    """Return the description of a run on one host."""
    return {
        "id": name, "started": "2026-01-01T00:00:00+0000", "command": ["-J", "x"], "seed": 0,
        "versions": {"python": "3.11.7"}, "libraries": {"mpi4py": MPICH}, "transports": {},
        "hosts": [host] * ranks, "cores": [[rank] for rank in range(ranks)], "quota": None,
        "load": 0.0, "oversubscribed": False, "argv": ["python", "-m", "mpicoll.bench"],
        "git": {"commit": "c" * 40, "dirty": False}, "settings": {"timing": "together"},
        "stack": {"mpi": {"library": MPICH, "standard": "5.0", "provider": "ofi"}},
        "machines": [{"host": host, "ranks": ranks, "processor": "P", "kernel": "K", "cores": 8}],
        "binding": [{"rank": r, "host": host, "cores": str(r), "bound": True}
                    for r in range(ranks)],
        "clock": {"sync_error_us": 0.1}, "environment": {"UCX_TLS": "tcp"}, **more,
    }  # fmt: skip


def case(
    algorithm: str = "native", us: float | None = 10.0, size: int = 1024, **more: Any
) -> Record:
    """Return the record of an allreduce; its interval is 1 % to either side."""
    backend = more.get("backend", "mpi4py")
    native = algorithm.startswith("native")
    times = us and {"median": us, "low": 0.99 * us, "high": 1.01 * us, "p95": 1.1 * us}
    found = {
        "schema": 1, "kind": "case", "run": run(), "collective": "allreduce",
        "algorithm": algorithm, "executed": algorithm, "backend": backend, "library": MPICH,
        "transport": "native" if native else "point-to-point", "device": "cpu",
        "dtype": "float32", "op": "sum", "root": None, "in_place": False, "allocated": False,
        "ranks": 4, "nodes": 1, "bytes_total": size, "samples": 100,
        "samples_us": [us] * 100 if us else [],
        "undisturbed": True, "late_share": 0.0, "preempted": 0, "sync_error_us": 0.0,
        "time_us": times, "algbw_GBps": us and size / us / 1000,
        "busbw_GBps": us and 1.5 * size / us / 1000, "speedup_vs_native": None, "correct": True,
        "wrong": 0, "message": None,
    }  # fmt: skip
    return found | more


def typed(record: Record) -> CaseRecord:
    """Return the record of a case as readers get it."""
    return msgspec.convert(record, CaseRecord)


def ratio(value: float, verdict: str = "faster") -> Record:
    """Return a ratio to native with an interval of 10 %."""
    return {"ratio": value, "low": 0.9 * value, "high": 1.1 * value, "verdict": verdict}


def fit(transport: str = "point-to-point", **more: Any) -> Record:
    """Return a line of `ALPHA_US` and `BETA_NS`."""
    found = {
        "schema": 1, "kind": "fit", "run": run("pairs"), "backend": "mpi4py", "library": MPICH,
        "transport": transport, "device": "cpu", "ranks": 4, "nodes": 1, "link": "same socket",
        "alpha_us": ALPHA_US, "beta_ns_per_byte": BETA_NS, "GBps": 2.0, "error": 0.1,
        "worst_error": 0.2, "points": 9, "pairs": 12,
    }  # fmt: skip
    return found | more


def pair(source: int, target: int, us: float = 1.0, **more: Any) -> Record:
    """Return the latency of a pair."""
    found = {
        "schema": 1, "kind": "pair", "run": run("pairs"), "backend": "mpi4py", "library": MPICH,
        "transport": "point-to-point", "device": "cpu", "ranks": 4, "nodes": 1,
        "quantity": "latency", "source": source, "target": target, "source_host": "h",
        "target_host": "h", "source_gpu": None, "target_gpu": None, "link": "same socket",
        "link_detail": None, "bytes": 8, "samples": 6, "GBps": None, "typical": 1.0,
        "time_us": {"median": us, "low": us, "high": us}, "outlier": us > 2, "correct": True,
        "message": None,
    }  # fmt: skip
    return found | more


def write(path: Path, records: Iterable[Record]) -> Path:
    """Write records as a run does: its own line before them, and only the short part in each."""
    lines: list[Record] = []
    seen: set[str] = set()
    for each in records:
        if each["run"]["id"] not in seen:
            seen.add(each["run"]["id"])
            lines.append({"schema": 1, "kind": "run", "run": each["run"]})
        lines.append(each)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def reported(place: Path, *records: Record) -> Report:
    """Return the report of records, by way of a file in a folder."""
    return report(load([write(place / "records.jsonl", records)]))


def story(host: str = "h") -> list[Record]:
    """Return two backends, seven algorithms, two numbers of ranks and pairs, all on one host."""
    names = {"native": 20.0, "auto": 9.0, "ring": 10.0, "rabenseifner": 11.0, "one_shot": 12.0,
             "two_shot": 13.0, "naive": 40.0}  # fmt: skip
    found = []
    for ranks in (2, 4):
        own = run(f"r{ranks}", ranks, host, libraries={"mpi4py": MPICH, "torch": "gloo"})
        for backend, factor in (("mpi4py", 1.0), ("torch", 3.0)):
            for name, us in names.items():
                found += [
                    case(
                        name, factor * us * (1 + size / 2000), size, run=own, ranks=ranks,
                        backend=backend, library=own["libraries"][backend],
                        executed="ring" if name == "auto" else name,
                        speedup_vs_native=None if name == "native" else ratio(20 / us),
                    )
                    for size in (64, 1024, 16384)
                ]  # fmt: skip
        found.append(
            case("native", 5.0, 0, run=own, ranks=ranks, collective="barrier", dtype=None, op=None,
                 algbw_GBps=None, busbw_GBps=None)
        )  # fmt: skip
    pairs = run("pairs", 4, host)
    ends = [(source, target) for source in range(4) for target in range(source + 1, 4)]
    found += [
        pair(*each, 9.0 if each == (1, 2) else 1.0, run=pairs, visits_us=[1.0], source_host=host)
        for each in ends
    ]
    return found + [fit(run=pairs), fit("symmetric", run=pairs)]
