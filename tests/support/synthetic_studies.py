"""Records of launches whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from mpicoll.records.description import Run
from mpicoll.records.lines import (
    CaseRecord,
    Forced,
    LaunchRecord,
    Record,
    Speedup,
    SpeedupVsOther,
    Times,
)
from mpicoll.study.crossovers import Crossings
from mpicoll.study.findings import findings
from mpicoll.study.launching import native_name
from mpicoll.study.reading import study_of
from mpicoll.study.run_environments import environments_of

SIZES = (64, 4096, 65536, 1048576)
FORCED = native_name("ring")
Truth = Callable[[str, int, int], float]
"""The microseconds of an algorithm at a size in a launch."""


def case(
    algorithm: str, size: int, us: float, run: str, launch: int, environment: str = "mpich",
    native: float | None = None, **more: object,
) -> CaseRecord:  # fmt: skip
    ratio = Speedup(native / us, 0.9 * native / us, 1.1 * native / us, "tie") if native else None
    fields = {
        "run": Run(id=run), "environment": environment, "launch": launch,
        "collective": "allreduce", "algorithm": algorithm, "executed": algorithm,
        "backend": "mpi4py", "library": "MPI", "transport": "symmetric", "dtype": "float32",
        "op": "sum", "root": None, "in_place": False, "ranks": 4, "bytes_total": size,
        "correct": True, "samples": 3, "samples_us": [0.99 * us, us, 1.01 * us],
        "time_us": Times(us, 0.99 * us, 1.01 * us), "speedup_vs_native": ratio,
    }  # fmt: skip
    return CaseRecord(**{**fields, **more})  # type: ignore[arg-type]


def make_launches(
    truth: Truth, algorithms: Iterable[str], environment: str = "mpich", count: int = 10,
    forced: str = "", seed: int = 0,
) -> list[Record]:  # fmt: skip
    """Return the records of launches that differ by 2 %, in all algorithms alike."""
    random, records = Random(f"{environment} {forced} {seed}"), list[Record]()
    native = native_name(forced) if forced else "native"
    how = {"allreduce": Forced(forced, "ring", {}, True)} if forced else {}
    for launch in range(count):
        run, drift = f"{environment}-{forced}-{launch}-{seed}", random.gauss(1, 0.02)
        records.append(
            LaunchRecord(
                configuration=f"{environment}{forced}",
                launch=launch,
                run=run,
                environment=environment,
                ranks=4,
                forced=how,
            )
        )
        for size in SIZES:
            native_us = truth(native, size, launch) * drift
            records.append(case(native, size, native_us, run, launch, environment))
            for algorithm in algorithms:
                us = truth(algorithm, size, launch) * drift * random.gauss(1, 0.004)
                records.append(
                    _side_by_side(algorithm, size, us, native_us, run, launch, environment, forced)
                )
    return records


def _side_by_side(
    algorithm: str, size: int, us: float, native: float, run: str, launch: int, environment: str,
    forced: str,
) -> CaseRecord:  # fmt: skip
    record = case(algorithm, size, us, run, launch, environment, native)
    if forced and record.speedup_vs_native:
        ratio = record.speedup_vs_native
        record.speedup_vs_native = None
        record.speedup_vs_other = SpeedupVsOther(
            ratio.ratio, ratio.low, ratio.high, "tie", against=f"mpi4py {native_name(forced)}"
        )
    return record


def section_text(records: list[Record], section: str) -> str:
    results = findings(study_of(records), Crossings(records, environments_of(records)))
    return "\n".join(finding.text for finding in results if finding.section == section)


def constant(**us: float) -> Truth:
    return lambda algorithm, size, launch: us[algorithm.split("(")[0]] * (1 + size / 65536)
