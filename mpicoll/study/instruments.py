"""Compare native calls, as measured here, with what other benchmarks measure of the same MPI.

``python -m mpicoll.study.instruments --osu DIR --imb FILE -o table.md`` runs OSU's programs,
IMB-MPI1 or both, built for the MPI of this Python, and `mpicoll.bench`, in turns and in random
order. Ours is the median of the slowest rank's time, less what a call takes on one rank alone (that
of mpi4py, and little else), over their mean of the slowest rank. The table has the medians of the
ratio over the launches.

Exit status: 0, 1 something failed, or 2 for bad usage or files.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        self.place = Place("own", given, "single", facts["vendor"], facts["library"], False)
        self.ranks, self.sizes, self.seconds, self.scratch = ranks, sizes, seconds, scratch
        self.variables = self.place.variables()
        library = Path(python_of(given)).parent.parent / "lib"
        paths = [str(library), self.variables.get("LD_LIBRARY_PATH")]
        self.variables["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))

    def printed(self, command: Sequence[str]) -> str:
        """Return what a command printed.

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

    def ours(self, instrument: Instrument) -> Found:
        """Return our medians of the native calls, at the same sizes."""
        found: Found = {}
        for by_row in (False, True):
            names = [e for e in instrument.programs if (e in instrument.by_row) == by_row]
            totals = [each * (self.ranks if by_row else 1) for each in self.sizes]
            found |= self._measured(names, totals, self.ranks, self.seconds / 2)
        return found

    def both(
        self, instrument: Instrument, path: Path, theirs: Callable[[Path], Found], ours_first: bool
    ) -> tuple[Found, Found]:
        """Return the times of a launch of theirs and of one of ours."""
        own = self.ours(instrument) if ours_first else {}
        found = theirs(path)
        return found, own or self.ours(instrument)

    def calls(self, instrument: Instrument) -> dict[str, float]:
        """Return what mpi4py's call of each collective takes, and little else: on one rank.

        It is that of the cheapest with as many buffers: some copy more than others on one rank.
        """
        found = self._measured(list(instrument.programs), [4], 1, self.seconds / 2)
        own = {collective: us for (collective, _), us in found.items()}
        alone = {each: own[each] for each in ("barrier", "broadcast") if each in own}
        least = min((us for name, us in own.items() if name not in alone), default=0.0)
        return dict.fromkeys(instrument.programs, least) | alone

    def _measured(
        self, names: Sequence[str], sizes: Sequence[int], ranks: int, seconds: float
    ) -> Found:
        records = self.scratch / "records.jsonl"
        records.unlink(missing_ok=True)
        program = [
            "-m", "mpicoll.bench", *names, "--algorithms", "native", "--backends", "mpi4py",
            "--calls", "plans", "--threads", "single", "--sizes", ",".join(map(str, sizes)),
            "--time", f"{seconds:.1f}", "--format", "jsonl", "-J", str(records),
        ]  # fmt: skip
        self.printed(self.place.command(ranks, program))
        return {
            (each.collective, each.bytes_total): each.time_us.median
            for each in only(CaseRecord, reading.load(records))
            if each.time_us is not None and each.correct is not False
        }


class Cell(NamedTuple):
    """A collective at one size of the instrument.

    Attributes:
        theirs, ours, call: medians over the launches, us.
        ratios: (ours - call) / theirs of each launch.
    """

    collective: str
    size: int
    theirs: float
    ours: float
    call: float
    ratios: list[float]

    @property
    def ratio(self) -> float:
        """The median over the launches."""
        return median(self.ratios)

    @property
    def agrees(self) -> bool:
        """Whether it is within 10 %."""
        return 1 / _AGREES <= self.ratio <= _AGREES


def cells(
    instrument: Instrument, launches: Sequence[tuple[Found, Found]], calls: Mapping[str, float],
    sizes: Sequence[int], ranks: int,
) -> Iterator[Cell]:  # fmt: skip
    """Yield what both measured, over the launches: of each, theirs and ours."""
    for collective in instrument.programs:
        call = calls.get(collective, 0.0)
        for size in instrument.sizes(collective, sizes):
            place = collective, instrument.total(collective, size, ranks)
            both = [(a[place], b[place]) for a, b in launches if place in a and place in b]
            if both:
                theirs, ours = zip(*both, strict=True)
                ratios = [(own - call) / other for other, own in both if other]
                yield Cell(collective, size, median(theirs), median(ours), call, ratios)


def table(instrument: Instrument, found: Sequence[Cell], library: str, ranks: int) -> str:
    """Return the ratios as Markdown, and the times where they do not agree."""
    sizes = sorted({each.size for each in found if each.collective != "barrier"})
    good = sum(each.agrees for each in found)
    count = max(len(each.ratios) for each in found)
    lines = [
        f"{instrument.name}, {' '.join(library.split())[:60]}, {ranks} ranks, {count} launches of "
        f"each: {good} of {len(found)} within 10 %.",
        "",
        f"| | {' | '.join(map(bytes_text, sizes))} |",
        f"| --- |{' ---: |' * len(sizes)}",
    ]
    for collective in instrument.programs:
        own = {each.size: each for each in found if each.collective == collective}
        if collective == "barrier":
            own = {sizes[0]: own[0]} if own else {}
        row = [_ratio(own[size]) if size in own else "" for size in sizes]
        lines.append(f"| {collective} | {' | '.join(row)} |")
    apart = [each for each in found if not each.agrees]
    if apart:
        lines += ["", "| beyond 10 % | theirs, us | ours, us | call, us | ratio | 95 % interval |",
                  "| --- | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for each in apart:
        interval = ratio_of(each.ratios)
        assert interval is not None
        size = f" {bytes_text(each.size)}" if each.size else ""
        lines.append(
            f"| {each.collective}{size} | {number(each.theirs)} | {number(each.ours)} | "
            f"{number(each.call)} | {number(each.ratio)} | {number(interval.low)} .. "
            f"{number(interval.high)} |"
        )
    return "\n".join(lines) + "\n"


def _ratio(each: Cell) -> str:
    text = f"{each.ratio:.2f}"
    return text if each.agrees else f"**{text}**"


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
            calls, done = rig.calls(instrument), list[tuple[Found, Found]]()
            for index in range(launches):
                if done and monotonic() > until:
                    break
                print(f"{instrument.name}, launch {index + 1} of {launches}", file=sys.stderr)
                done.append(rig.both(instrument, path.absolute(), theirs, shuffled.random() < 0.5))
            found = list(cells(instrument, done, calls, sizes, ranks))
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
