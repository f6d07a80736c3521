"""Compare native calls, as measured here, with the same MPI's as other benchmarks measure them.

``python -m mpicoll.study.instruments --osu DIR --imb FILE -o table.md`` runs, in random order,
OSU's programs, IMB-MPI1 or both, built for the MPI of this Python; `mpicoll.bench`; and
`mpicoll.study.single_calls`, which times our calls as theirs are. Ours is the time of the slowest
rank, less what mpi4py's call takes (one of no bytes on one rank), over their mean of the slowest.
The tables have the medians of the ratio over the launches.

Exit status: 0, 1 something failed, or 2 for bad usage or files.
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

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, SIZES, Real, Whole, option
from mpicoll.errors import ArgumentError
from mpicoll.measurement.statistics import ratio_of
from mpicoll.records import reading
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import only
from mpicoll.study.description import Environment
from mpicoll.study.environments import Found as Place
from mpicoll.study.environments import probe, python_of
from mpicoll.study.launching import run
from mpicoll.study.osu_and_imb import (
    IMB,
    OSU,
    Found,
    Instrument,
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
        given = Environment(name="own", threads=["single"])
        facts = probe(given)
        self.place = Place("own", given, "single", facts.vendor, facts.library, False)
        self.ranks, self.sizes, self.seconds, self.scratch = ranks, sizes, seconds, scratch
        self.variables = self.place.variables()
        library = Path(python_of(given)).parent.parent / "lib"
        paths = [str(library), self.variables.get("LD_LIBRARY_PATH")]
        self.variables["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))

    def printed(self, command: Sequence[str]) -> str:
        """Return the output of a command.

        Raises:
            ArgumentError: it failed.
        """
        out = self.scratch / "printed.txt"
        failed = run(command, self.variables, out, _LIMIT + self.seconds, both=True)
        if failed is not None:
            raise ArgumentError(f"{' '.join(command[-6:])}: {failed}")
        return out.read_text(errors="replace")

    def osu(self, folder: Path) -> Found:
        """Return the times of OSU's programs."""
        found: Found = {}
        for collective, program in osu_commands(folder, self.sizes):
            text = self.printed(self.place.starting(self.ranks, program))
            found |= osu_times(text, collective, self.ranks)
        return found

    def imb(self, program: Path) -> Found:
        """Return the times of IMB-MPI1."""
        lengths = self.scratch / "lengths"
        lengths.write_text("".join(f"{each}\n" for each in self.sizes))
        command = self.place.starting(self.ranks, imb_command(program, self.ranks, lengths))
        return imb_times(self.printed(command), self.ranks)

    def launch(
        self, instrument: Instrument, theirs: Callable[[], Found], order: random.Random
    ) -> Launch:
        """Return the times of a launch of theirs and of ours, in random order."""
        calls: dict[str, list[float]] = {}
        steps: dict[str, Callable[[], Found]] = {
            "theirs": theirs,
            "ours": partial(self._ours, instrument),
            "alike": partial(self._alike, instrument, calls),
        }
        found = {name: steps[name]() for name in order.sample([*steps], len(steps))}
        return Launch(**found, calls={name: median(us) for name, us in calls.items()})

    def _asked(self, instrument: Instrument) -> Iterator[tuple[list[str], list[str]]]:
        """Yield names of collectives and their sizes in total, as arguments."""
        for by_row in (False, True):
            names = [e for e in instrument.programs if (e in instrument.by_row) == by_row]
            totals = [each * (self.ranks if by_row else 1) for each in self.sizes]
            yield names, ["--sizes", ",".join(map(str, totals))]

    def _ours(self, instrument: Instrument) -> Found:
        """Return our medians of the native calls."""
        found: Found = {}
        for names, sizes in self._asked(instrument):
            records = self.scratch / "records.jsonl"
            records.unlink(missing_ok=True)
            program = [
                "-m", "mpicoll.bench", *names, "--algorithms", "native", "--backends", "mpi4py",
                "--calls", "plans", "--threads", "single", *sizes,
                "--time", f"{self.seconds / 2:.1f}", "--format", "jsonl", "-J", str(records),
            ]  # fmt: skip
            self.printed(self.place.command(self.ranks, program))
            found |= {
                (each.collective, each.bytes_total): each.time_us.median
                for each in only(CaseRecord, reading.load(records))
                if each.time_us is not None and each.correct is not False
            }
        return found

    def _alike(self, instrument: Instrument, calls: dict[str, list[float]]) -> Found:
        """Return our means of single calls; into `calls` goes what a call of no bytes takes."""
        found: Found = {}
        for names, sizes in self._asked(instrument):
            program = ["-m", "mpicoll.study.single_calls", *names, *sizes, "--threads", "single"]
            lines = self.printed(self.place.command(self.ranks, program)).splitlines()
            for each in (json.loads(line) for line in lines if line.startswith("{")):
                found[each["collective"], each["bytes_total"]] = each["us"]
                calls.setdefault(each["collective"], []).append(each["call_us"])
        return found


class Launch(NamedTuple):
    """The results of a launch of each.

    Attributes:
        ours: medians of the benchmark; `alike`: means of calls that are timed as theirs are.
        calls: what mpi4py's call takes, us.
    """

    theirs: Found
    ours: Found
    alike: Found
    calls: Mapping[str, float]


class Cell(NamedTuple):
    """A collective at one size of the instrument.

    Attributes:
        theirs, ours, alike, call: medians over the launches, us.
        ratios: (ours - call) / theirs of each launch; `alikes`: (alike - call) / theirs.
    """

    collective: str
    size: int
    theirs: float
    ours: float
    alike: float
    call: float
    ratios: list[float]
    alikes: list[float]


def cells(
    instrument: Instrument, launches: Sequence[Launch], sizes: Sequence[int], ranks: int
) -> Iterator[Cell]:
    """Yield the cells that all of them measured, over the launches."""
    for collective in instrument.programs:
        for size in instrument.sizes(collective, sizes):
            place = collective, instrument.total(collective, size, ranks)
            rows = [
                (each.theirs[place], each.ours[place], each.alike[place], each.calls[collective])
                for each in launches
                if each.theirs.get(place) and place in each.ours and place in each.alike
            ]
            if rows:
                ratios = [(own - call) / other for other, own, _, call in rows]
                alikes = [(own - call) / other for other, _, own, call in rows]
                theirs, ours, alike, call = map(median, zip(*rows, strict=True))
                yield Cell(collective, size, theirs, ours, alike, call, ratios, alikes)


def _agrees(ratios: Sequence[float]) -> bool:
    return 1 / _AGREES <= median(ratios) <= _AGREES


def table(instrument: Instrument, found: Sequence[Cell], library: str, ranks: int) -> str:
    """Return the ratios as Markdown, and the times where they do not agree."""
    count = max(len(each.ratios) for each in found)
    good = [sum(_agrees(getattr(each, which)) for each in found) for which in ("ratios", "alikes")]
    lines = [
        f"{instrument.name}, {' '.join(library.split())[:60]}, {ranks} ranks, {count} launches of "
        f"each: {good[0]} of {len(found)} within 10 %, and {good[1]} of our calls timed as theirs.",
        "",
        *_grid(instrument, found, "ratios"),
        "",
        "Timed as theirs:",
        "",
        *_grid(instrument, found, "alikes"),
    ]
    apart = [each for each in found if not (_agrees(each.ratios) and _agrees(each.alikes))]
    if apart:
        lines += [
            "", "| beyond 10 %, us | theirs | ours | as theirs | call | ratio | 95 % interval "
            "| as theirs | 95 % interval |", f"| --- |{' ---: |' * 8}",
        ]  # fmt: skip
    for each in apart:
        size = f" {bytes_text(each.size)}" if each.size else ""
        times = map(number, (each.theirs, each.ours, each.alike, each.call))
        lines.append(
            f"| {each.collective}{size} | {' | '.join(times)} | {_interval(each.ratios)} | "
            f"{_interval(each.alikes)} |"
        )
    return "\n".join(lines) + "\n"


def _grid(instrument: Instrument, found: Sequence[Cell], which: str) -> Iterator[str]:
    sizes = sorted({each.size for each in found if each.collective != "barrier"})
    yield f"| | {' | '.join(map(bytes_text, sizes))} |"
    yield f"| --- |{' ---: |' * len(sizes)}"
    for collective in instrument.programs:
        own = {each.size: each for each in found if each.collective == collective}
        if collective == "barrier":
            own = {sizes[0]: own[0]} if own else {}
        row = [_ratio(getattr(own[size], which)) if size in own else "" for size in sizes]
        yield f"| {collective} | {' | '.join(row)} |"


def _ratio(ratios: Sequence[float]) -> str:
    text = f"{median(ratios):.2f}"
    return text if _agrees(ratios) else f"**{text}**"


def _interval(ratios: Sequence[float]) -> str:
    found = ratio_of(ratios)
    assert found is not None
    return f"{number(found.ratio)} | {number(found.low)} .. {number(found.high)}"


@click.command(cls=Command, help=__doc__)
@option("--osu", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
        help="The folder with osu_allreduce and so on.")  # fmt: skip
@option("--imb", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
        help="IMB-MPI1.")  # fmt: skip
@option("--launches", type=Whole(1, 1000), default=10, shown=True, help="Of theirs and of ours.")
@option("--ranks", type=Whole(2, 4096), default=2, shown=True)
@option(
    "--sizes",
    type=SIZES,
    default=_SIZES,
    metavar="4,1K,1M",
    help="Bytes, as theirs count them (default: 4 to 4M, times 4).",
)
@option("--time", "seconds", type=Real(1, 3600), default=8.0, shown=True,
        help="Seconds that a launch of ours measures.")  # fmt: skip
@option("--minutes", type=Real(0, 10_000, above=True),
        help="For each instrument: no launch begins after so many.")  # fmt: skip
@option("--seed", type=Whole(0), default=0, shown=True, help="Of the order of the launches.")
@option("-o", "--output", type=FILE, metavar="FILE", help="Write the table there too.")
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
        for instrument, path, theirs in ((OSU, osu, rig.osu), (IMB, imb, rig.imb)):
            if path is None:
                continue
            until = monotonic() + 60 * (minutes or inf)
            done: list[Launch] = []
            for index in range(launches):
                if done and monotonic() > until:
                    break
                print(f"{instrument.name}, launch {index + 1} of {launches}", file=sys.stderr)
                done.append(rig.launch(instrument, partial(theirs, path.absolute()), shuffled))
            found = list(cells(instrument, done, sizes, ranks))
            if not found:
                raise ArgumentError(f"{path}: nothing that it printed can be compared")
            texts.append(table(instrument, found, rig.place.library, ranks))
            print(texts[-1], flush=True)
    if output is not None:
        whole = "\n".join(texts)
        write_whole(output, lambda fresh: fresh.write_text(whole, encoding="utf-8"))
    return 0


if __name__ == "__main__":
    main()
