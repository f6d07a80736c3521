"""Records of a study of a library's algorithms, and choices among these."""

from __future__ import annotations

from collections.abc import Sequence

from mpicoll.records.description import Run
from mpicoll.records.lines import CaseRecord, Forced, LaunchRecord, Record, Times
from mpicoll.tune.exports.choices import Choice, Range, Takes, choices, measurements


def table_of(
    records: Sequence[Record], library: str, takes: Takes, environment: str | None = None,
    says_own: bool = True,
) -> list[Choice]:  # fmt: skip
    return choices(measurements(records, library, takes, environment), says_own=says_own)


LIBRARY_CHOICE = Range(1000, None, {})
BASE = {
    "collective=allreduce": {"comm_type=intra": {"algorithm=MPIR_Allreduce_intra_smp": {}}},
    "collective=alltoall": {"comm_type=intra": {"algorithm=MPIR_Alltoall_intra_brucks": {}}},
}


def case(run: str, algorithm: str, nbytes: int, us: float, **more: object) -> CaseRecord:
    library_fields: dict[str, object] = {
        "library": "MPICH Version: 5.0.2",
        "environment": "mpich",
    } | more
    return CaseRecord(
        run=Run(id=run), collective="allreduce", algorithm=algorithm, backend="mpi4py",
        dtype="float32", op="sum", root=None, in_place=False, ranks=4, bytes_total=nbytes,
        time_us=Times(us, us, us), correct=True, **library_fields,
    )  # fmt: skip


def launch(run: str, algorithm: str, **more: object) -> LaunchRecord:
    forced = {"allreduce": Forced(algorithm, None, {"I_MPI_ADJUST_ALLREDUCE": "8"}, **more)}
    return LaunchRecord(
        configuration="c", launch=0, run=run, environment="mpich", ranks=4, forced=forced
    )


def study() -> list[Record]:
    """Return launches in which ring wins 10 times as slow a native from 4 KiB on."""
    records: list[Record] = []
    for number, factor in enumerate((1.0, 1.1, 0.9, 1.05)):
        native_run, forced = f"own{number}", f"ring{number}"
        records.append(launch(forced, "ring"))
        for nbytes, native, ring in ((64, 2.0, 1.99), (4096, 100.0, 10.0), (65536, 200.0, 20.0)):
            records.append(case(native_run, "native", nbytes, native * factor))
            records.append(case(forced, "native(algorithm=ring)", nbytes, ring * factor))
    return records


def make_choices(algorithm: str, of: str = "allreduce", **variables: str) -> list[Choice]:
    return [Choice(of, 4, 1, [LIBRARY_CHOICE, Range(None, algorithm, variables)])]
