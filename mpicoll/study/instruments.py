"""Compare mpicoll's times of native calls with those of other benchmarks for the same MPI.

``python -m mpicoll.study.instruments --osu DIR --imb FILE -o table.md`` runs in random order OSU's
programs, IMB-MPI1 or both, built for the MPI of this Python, then `mpicoll.bench`, and
`mpicoll.study.single_calls`, which times calls in the way of the instruments. A ratio is mpicoll's
time of the slowest rank, minus the cost of mpi4py's call (one without data on one rank), over the
instrument's mean of the slowest rank. The tables have the medians of the ratios over the launches.

Exit status: 0 success, 1 something failed, 2 bad usage or files.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple

import click

from mpicoll.cli.command import LauncherCommand
from mpicoll.cli.options import OUTPUT_FILE, SIZES, Real, Whole, option
from mpicoll.errors import ArgumentError
from mpicoll.measurement.statistics import ratio_of
from mpicoll.records import reading
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import only
from mpicoll.study.description import Environment
from mpicoll.study.environments import LaunchEnvironment as Place
from mpicoll.study.environments import probe, python_of
from mpicoll.study.launching import run
from mpicoll.study.osu_and_imb import (
    IMB,
    OSU,
    Instrument,
    Times,
    imb_command,
    imb_times,
    osu_commands,
    osu_times,
)
from mpicoll.text.files import write_whole
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text

_AGREES = 1.1
_SIZES = ",".join(str(4**power) for power in range(1, 12))
"""4 B to 4 MiB."""
_LIMIT = 300.0
"""Seconds after which a launch is ended."""


class _Rig:
    """The MPI of this Python, and the commands that run on it."""

    def __init__(self, ranks: int, sizes: Sequence[int], seconds: float, scratch: Path) -> None:
        settings = Environment(name="own", threads=["single"])
        facts = probe(settings)
        self.place = Place("own", settings, "single", facts.vendor, facts.library, False)
        self.ranks, self.sizes, self.seconds, self.scratch = ranks, sizes, seconds, scratch
        self.variables = self.place.variables()
        library = Path(python_of(settings)).parent.parent / "lib"
        paths = [str(library), self.variables.get("LD_LIBRARY_PATH")]
        self.variables["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))

    def output_of(self, command: Sequence[str]) -> str:
        """Return the output of a command.

        Raises:
            ArgumentError: the command failed.
        """
        out = self.scratch / "printed.txt"
        failed = run(command, self.variables, out, _LIMIT + self.seconds, with_output=True)
        if failed is not None:
            raise ArgumentError(f"{' '.join(command[-6:])}: {failed}")
        return out.read_text(errors="replace")

    def osu(self, folder: Path) -> Times:
        """Return the times of OSU's programs."""
        times: Times = {}
        for collective, program in osu_commands(folder, self.sizes):
            text = self.output_of(self.place.starting(self.ranks, program))
            times |= osu_times(text, collective, self.ranks)
        return times

    def imb(self, program: Path) -> Times:
        """Return the times of IMB-MPI1."""
        lengths = self.scratch / "lengths"
        lengths.write_text("".join(f"{size}\n" for size in self.sizes))
        command = self.place.starting(self.ranks, imb_command(program, self.ranks, lengths))
        return imb_times(self.output_of(command), self.ranks)

    def launch(
        self, instrument: Instrument, run_instrument: Callable[[], Times], order: random.Random
    ) -> Launch:
        """Run an instrument and mpicoll in random order, and return their times."""
        calls: dict[str, list[float]] = {}
        steps: dict[str, Callable[[], Times]] = {
            "instrument": run_instrument,
            "bench": partial(self._time_bench, instrument),
            "alike": partial(self._time_alike, instrument, calls),
        }
        times = {name: steps[name]() for name in order.sample([*steps], len(steps))}
        return Launch(**times, calls={name: median(us) for name, us in calls.items()})

    def _arguments(self, instrument: Instrument) -> Iterator[tuple[list[str], list[str]]]:
        """Yield names of collectives, with the flags for their total sizes."""
        for by_row in (False, True):
            names = [e for e in instrument.programs if (e in instrument.by_row) == by_row]
            totals = [size * (self.ranks if by_row else 1) for size in self.sizes]
            yield names, ["--sizes", ",".join(map(str, totals))]

    def _time_bench(self, instrument: Instrument) -> Times:
        """Return mpicoll's medians of the native calls."""
        times: Times = {}
        for names, sizes in self._arguments(instrument):
            records = self.scratch / "records.jsonl"
            records.unlink(missing_ok=True)
            program = [
                "-m", "mpicoll.bench", *names, "--algorithms", "native", "--backends", "mpi4py",
                "--calls", "plans", "--threads", "single", *sizes,
                "--time", f"{self.seconds / 2:.1f}", "--format", "jsonl", "-J", str(records),
            ]  # fmt: skip
            self.output_of(self.place.command(self.ranks, program))
            times |= {
                (record.collective, record.bytes_total): record.time_us.median
                for record in only(CaseRecord, reading.load(records))
                if record.time_us is not None and record.correct is not False
            }
        return times

    def _time_alike(self, instrument: Instrument, calls: dict[str, list[float]]) -> Times:
        """Return mpicoll's means of single calls; add the cost of an empty call to `calls`."""
        times: Times = {}
        for names, sizes in self._arguments(instrument):
            program = ["-m", "mpicoll.study.single_calls", *names, *sizes, "--threads", "single"]
            lines = self.output_of(self.place.command(self.ranks, program)).splitlines()
            for row in (json.loads(line) for line in lines if line.startswith("{")):
                times[row["collective"], row["bytes_total"]] = row["us"]
                calls.setdefault(row["collective"], []).append(row["call_us"])
        return times


class Launch(NamedTuple):
    """The times of one launch of an instrument and of mpicoll.

    Attributes:
        instrument: what the instrument printed.
        bench: the medians of `mpicoll.bench`.
        alike: means of mpicoll's calls, timed in the way of the instrument.
        calls: the cost of an mpi4py call by collective, us.
    """

    instrument: Times
    bench: Times
    alike: Times
    calls: Mapping[str, float]


class Cell(NamedTuple):
    """A collective at one size of the instrument.

    Attributes:
        instrument, bench, alike, call: medians over the launches, us.
        ratios: (bench - call) / instrument of each launch.
        alikes: (alike - call) / instrument of each launch.
    """

    collective: str
    size: int
    instrument: float
    bench: float
    alike: float
    call: float
    ratios: list[float]
    alikes: list[float]


def cells(
    instrument: Instrument, launches: Sequence[Launch], sizes: Sequence[int], ranks: int
) -> Iterator[Cell]:
    """Yield the cells that the instrument and mpicoll measured, over the launches."""
    for collective in instrument.programs:
        for size in instrument.sizes(collective, sizes):
            place = collective, instrument.total(collective, size, ranks)
            rows = [
                (
                    launch.instrument[place],
                    launch.bench[place],
                    launch.alike[place],
                    launch.calls[collective],
                )
                for launch in launches
                if launch.instrument.get(place) and place in launch.bench and place in launch.alike
            ]
            if rows:
                ratios = [(measured - call) / reference for reference, measured, _, call in rows]
                alikes = [(measured - call) / reference for reference, _, measured, call in rows]
                instrument_us, bench_us, alike, call = map(median, zip(*rows, strict=True))
                yield Cell(collective, size, instrument_us, bench_us, alike, call, ratios, alikes)


def _agrees(ratios: Sequence[float]) -> bool:
    return 1 / _AGREES <= median(ratios) <= _AGREES


def table(instrument: Instrument, results: Sequence[Cell], library: str, ranks: int) -> str:
    """Return the ratios as Markdown, and the times of the cells that differ."""
    count = max(len(cell.ratios) for cell in results)
    good = [
        sum(_agrees(getattr(cell, which)) for cell in results) for which in ("ratios", "alikes")
    ]
    lines = [
        f"{instrument.name}, {' '.join(library.split())[:60]}, {ranks} ranks, {count} launches of "
        f"each: {good[0]} of {len(results)} within 10 %, "
        f"and {good[1]} of our calls timed as theirs.",
        "",
        *_grid(instrument, results, "ratios"),
        "",
        "Timed as theirs:",
        "",
        *_grid(instrument, results, "alikes"),
    ]
    differing = [cell for cell in results if not (_agrees(cell.ratios) and _agrees(cell.alikes))]
    if differing:
        lines += [
            "", "| beyond 10 %, us | theirs | ours | as theirs | call | ratio | 95 % interval "
            "| as theirs | 95 % interval |", f"| --- |{' ---: |' * 8}",
        ]  # fmt: skip
    for cell in differing:
        size = f" {bytes_text(cell.size)}" if cell.size else ""
        times = map(number, (cell.instrument, cell.bench, cell.alike, cell.call))
        lines.append(
            f"| {cell.collective}{size} | {' | '.join(times)} | {_interval(cell.ratios)} | "
            f"{_interval(cell.alikes)} |"
        )
    return "\n".join(lines) + "\n"


def _grid(instrument: Instrument, results: Sequence[Cell], which: str) -> Iterator[str]:
    sizes = sorted({cell.size for cell in results if cell.collective != "barrier"})
    yield f"| | {' | '.join(map(bytes_text, sizes))} |"
    yield f"| --- |{' ---: |' * len(sizes)}"
    for collective in instrument.programs:
        by_size = {cell.size: cell for cell in results if cell.collective == collective}
        if collective == "barrier":
            by_size = {sizes[0]: by_size[0]} if by_size else {}
        row = [_ratio(getattr(by_size[size], which)) if size in by_size else "" for size in sizes]
        yield f"| {collective} | {' | '.join(row)} |"


def _ratio(ratios: Sequence[float]) -> str:
    text = f"{median(ratios):.2f}"
    return text if _agrees(ratios) else f"**{text}**"


def _interval(ratios: Sequence[float]) -> str:
    ratio = ratio_of(ratios)
    assert ratio is not None
    return f"{number(ratio.ratio)} | {number(ratio.low)} .. {number(ratio.high)}"


@click.command(cls=LauncherCommand, help=__doc__)
@option("--osu", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
        help="The folder of OSU's programs (osu_allreduce, ...).")  # fmt: skip
@option("--imb", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
        help="IMB-MPI1.")  # fmt: skip
@option("--launches", type=Whole(1, 1000), default=10, shown=True, help="Launches of each program.")
@option("--ranks", type=Whole(2, 4096), default=2, shown=True)
@option(
    "--sizes",
    type=SIZES,
    default=_SIZES,
    metavar="4,1K,1M",
    help="Bytes, as the instrument counts them (default: 4 to 4M, times 4).",
)
@option("--time", "seconds", type=Real(1, 3600), default=8.0, shown=True,
        help="Measuring time of a launch of mpicoll, in seconds.")  # fmt: skip
@option("--minutes", type=Real(0, 10_000, above=True),
        help="Minutes of each instrument after which no launch begins.")  # fmt: skip
@option("--seed", type=Whole(0), default=0, shown=True, help="Seed of the order of the launches.")
@option(
    "-o", "--output", type=OUTPUT_FILE, metavar="FILE", help="Also write the tables to this file."
)
def main(
    osu: Path | None, imb: Path | None, launches: int, ranks: int, sizes: Sequence[int],
    seconds: float, minutes: float | None, seed: int, output: Path | None,
) -> int:  # fmt: skip
    """Run everything in turns and print the tables; return the exit status."""
    if osu is None and imb is None:
        raise click.UsageError("give --osu DIR, --imb FILE or both")
    texts = []
    with TemporaryDirectory() as folder:
        rig = _Rig(ranks, sizes, seconds, Path(folder))
        shuffled = random.Random(seed)
        for instrument, path, run_instrument in ((OSU, osu, rig.osu), (IMB, imb, rig.imb)):
            if path is None:
                continue
            until = monotonic() + 60 * (minutes or inf)
            results: list[Launch] = []
            for index in range(launches):
                if results and monotonic() > until:
                    break
                print(f"{instrument.name}, launch {index + 1} of {launches}", file=sys.stderr)
                results.append(
                    rig.launch(instrument, partial(run_instrument, path.absolute()), shuffled)
                )
            table_cells = list(cells(instrument, results, sizes, ranks))
            if not table_cells:
                raise ArgumentError(f"{path}: nothing that it printed can be compared")
            texts.append(table(instrument, table_cells, rig.place.library, ranks))
            print(texts[-1], flush=True)
    if output is not None:
        whole = "\n".join(texts)
        write_whole(output, lambda fresh: fresh.write_text(whole, encoding="utf-8"))
    return 0


if __name__ == "__main__":
    main()
