"""Print records in the layouts of nccl-tests, OSU and IMB, as CSV, and as JSON lines.

Programs that parse the output of these suites can read these layouts. One block is the output of
one program of the suite: one collective by one algorithm of one backend. Between blocks there are
only comments in the form of the suite. A comment says that the numbers are mpicoll's samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import TextIO

from mpicoll.bench.render import out_of_bounds, table_title
from mpicoll.measurement.cases import PLAN
from mpicoll.records.flat import write_csv
from mpicoll.records.identity import FIELDS, grouped
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import encoded
from mpicoll.text.numbers import number

Cells = Sequence[object]

_AVERAGES = "# averages are means over samples of the slowest rank's time; see time_us in jsonl"


def jsonl(records: Sequence[CaseRecord], out: TextIO) -> None:
    """Print the records themselves."""
    for record in records:
        print(encoded(record), file=out, flush=True)


def _comments(record: CaseRecord, subject: str) -> tuple[str, str]:
    """Return the comments that describe a block."""
    call = "" if record.call == PLAN else f", {record.call}"
    return f"# mpicoll.bench: {subject}{call}: {record.backend} {record.algorithm}", _AVERAGES


# -- nccl-tests ---------------------------------------------------------------------------

_NCCL_PROGRAMS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reduce_scatter": "reduce_scatter",
}  # fmt: skip
"""Names of nccl-tests' programs, without `_perf`, that differ from those of the collectives."""
_NCCL_TYPES = {"float16": "half", "float32": "float", "float64": "double"}
_HALF_HEAD = "     time   algbw   busbw  #wrong"
_HALF_UNITS = "     (us)  (GB/s)  (GB/s)        "
_NCCL_HEADS = (
    f"#{'out-of-place':>74}{'in-place':>33}",
    f"#       size         count      type   redop    root{2 * _HALF_HEAD}",
    f"#        (B)    (elements)                          {2 * _HALF_UNITS}",
)
_PLACES = (False, True)
"""Out of place and in place, as the halves of a row."""


def nccl(records: Sequence[CaseRecord], out: TextIO) -> None:
    """Print nccl-tests' output; a row has the time out of place, then the one in place."""
    programs = grouped(records, lambda row: (row.collective, row.backend, row.algorithm, row.call))
    for (collective, *_), rows in programs:
        measured = [row for row in rows if row.time_us]
        if measured:
            name = f"{_NCCL_PROGRAMS.get(collective, collective)}_perf"
            print(*_nccl_output(name, rows, measured), sep="\n", file=out)


def _nccl_output(
    name: str, rows: Sequence[CaseRecord], measured: Sequence[CaseRecord]
) -> Iterator[str]:
    first = measured[0]
    yield f"# Collective test starting: {name}"
    yield from _comments(first, f"{first.collective}, {first.ranks} ranks")
    yield "#"
    yield from _NCCL_HEADS
    for _, halves in grouped(rows, _nccl_row):
        if any(row.time_us for row in halves):
            yield _nccl_begin(halves[0]) + "".join(_nccl_halves(halves))
    yield out_of_bounds(rows)
    yield f"# Avg bus bandwidth    : {fmean(row.busbw_GBps or 0 for row in measured):.6g} "
    yield "#"
    yield f"# Collective test concluded: {name}"
    yield ""


def _nccl_row(row: CaseRecord) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in FIELDS if name != "in_place")


def _nccl_begin(row: CaseRecord) -> str:
    kind = _NCCL_TYPES.get(row.dtype or "", row.dtype or "none")
    root = -1 if row.root is None else row.root
    return (
        f"{row.bytes_total:>12}  {row.count:>12}  {kind:>8}  {row.op or 'none':>6}  {root:>6}"
    )  # fmt: skip


def _nccl_halves(rows: Sequence[CaseRecord]) -> Iterator[str]:
    by_place = {row.in_place: row for row in rows}
    for place in _PLACES:
        cells = _nccl_half(by_place.get(place))
        yield "  {:>7} {:>7} {:>7} {:>7}".format(*cells)


def _nccl_half(row: CaseRecord | None) -> Cells:
    """Return time, both bandwidths and the number of wrong elements; N/A for a refused case."""
    if row is None or row.time_us is None:
        return ["N/A"] * 4
    bandwidths = [f"{bandwidth or 0:.2f}" for bandwidth in (row.algbw_GBps, row.busbw_GBps)]
    wrong = "N/A" if row.correct is None else row.wrong
    return [number(row.time_us.mean, 4), *bandwidths, wrong]


# -- OSU and IMB --------------------------------------------------------------------------

_OSU_VERSION = "v7.5"
_OSU_TITLES = {"broadcast": "Broadcast", "alltoall": "All-to-All Personalized Exchange",
               "reduce_scatter": "Reduce_scatter_block"}  # fmt: skip
"""Titles of OSU's programs that differ from the names of the collectives."""
_OSU_TYPES = {
    "float32": "MPI_FLOAT", "float64": "MPI_DOUBLE", "int32": "MPI_INT", "int8": "MPI_CHAR",
}  # fmt: skip
_IMB_TITLES = {"broadcast": "Bcast", "reduce_scatter": "Reduce_scatter_block"}
_IMB_RULE = f"#{'-' * 64}"


def osu(records: Sequence[CaseRecord], out: TextIO) -> None:
    """Print the output of OSU's programs with ``-f``; sizes are as OSU counts them."""
    heads = ("Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations")
    for rows in _blocks(records):
        first = rows[0]
        print(*_osu_heads(first), sep="\n", file=out)
        size = "# Size    " if first.count else "#"
        print(size + _osu_cells(heads), file=out)
        for row in rows:
            begin = f"{_osu_size(row):<10}" if row.count else " "
            print(
                begin + _osu_cells([*_averages(row, "mean", "min", "max"), _calls(row)]), file=out
            )


def _osu_heads(first: CaseRecord) -> Iterator[str]:
    """Yield the lines above the heads of the columns; the title is the first comment."""
    name = _OSU_TITLES.get(first.collective, first.collective.capitalize())
    yield f"\n# OSU MPI {name} Latency Test {_OSU_VERSION}"
    if first.dtype and first.count:
        yield f"# Datatype: {_OSU_TYPES.get(first.dtype, first.dtype)}."
    yield from _comments(first, table_title(first))


def _osu_cells(cells: Cells) -> str:
    return "{:>18}{:>18}{:>18}{:>12}".format(*cells)


def _osu_size(row: CaseRecord) -> int:
    """Return the size as OSU counts it: of a rank's row, or of reduce_scatter's whole vector."""
    return row.bytes_total if row.collective == "reduce_scatter" else row.bytes_per_rank


def imb(records: Sequence[CaseRecord], out: TextIO) -> None:
    """Print IMB's blocks; sizes are bytes per rank."""
    heads = ("#bytes", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]")
    for rows in _blocks(records):
        first = rows[0]
        name = _IMB_TITLES.get(first.collective, first.collective.capitalize())
        print(*_comments(first, table_title(first)), _IMB_RULE, sep="\n", file=out)
        print(f"# Benchmarking {name} \n# #processes = {first.ranks} \n{_IMB_RULE}", file=out)
        begin = 0 if first.count else 1  # a barrier has no column of sizes
        for cells in (heads, *map(_imb_cells, rows)):
            print("".join(f"{cell:>13}" for cell in cells[begin:]), file=out)
        print(file=out)


def _imb_cells(row: CaseRecord) -> Cells:
    return row.bytes_per_rank, _calls(row), *_averages(row, "min", "max", "mean")


def _blocks(records: Sequence[CaseRecord]) -> Iterator[list[CaseRecord]]:
    """Yield the measured rows of every variant of a collective, backend, algorithm and call."""

    def block(row: CaseRecord) -> tuple[str, str, str, str]:
        return table_title(row), row.backend, row.algorithm, row.call

    for _, rows in grouped([record for record in records if record.time_us], block):
        yield rows


def _averages(row: CaseRecord, *names: str) -> list[str]:
    return [f"{getattr(row.time_us, name) or 0:.2f}" for name in names]


def _calls(row: CaseRecord) -> int:
    return row.samples * row.calls_per_sample


LAYOUTS: dict[str, Callable[[Sequence[CaseRecord], TextIO], None]] = {
    "nccl": nccl, "osu": osu, "imb": imb, "csv": write_csv, "jsonl": jsonl,
}  # fmt: skip
