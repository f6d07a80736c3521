"""Print, write and draw the results of a run over pairs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from mpicoll.cli.ending import say
from mpicoll.errors import ArgumentError
from mpicoll.machine.launchers import place
from mpicoll.machine.links import LinkClass
from mpicoll.measurement.ping_pong import PairSettings
from mpicoll.p2p import heatmap
from mpicoll.p2p.matrix import print_pairs
from mpicoll.p2p.options import Options
from mpicoll.p2p.outliers import class_lines, outlier_lines, rank_lines
from mpicoll.p2p.record import Context
from mpicoll.records.flat import write_csv
from mpicoll.records.lines import FanOutRecord, FitRecord, PairRecord, RunRecord
from mpicoll.records.reading import encoded
from mpicoll.text.files import write_whole
from mpicoll.text.printable import printable
from mpicoll.text.sizes import bytes_text

_MOST_LINES = 24


@dataclass
class Results:
    """The records of a run."""

    run: RunRecord
    pairs: list[PairRecord]
    fits: list[FitRecord]
    copies: list[FanOutRecord]

    def lines(self) -> str:
        """Return all records as JSON lines."""
        records = [self.run, *self.pairs, *self.fits, *self.copies]
        return "".join(f"{encoded(record)}\n" for record in records)


def title(context: Context) -> str:
    """Return the title of a run, for people and plots."""
    first = next(iter(context.worlds.values()))
    libraries = ", ".join(" ".join(world.library.split()) for world in context.worlds.values())
    nodes = len(first.nodes)
    memory = "GPU" if context.device == "cuda" else "host"
    places = f"{nodes} nodes" if nodes > 1 else context.hosts[0]
    return f"{first.size} ranks on {places}, {memory} buffers, {libraries}"


def announcement(context: Context, settings: PairSettings) -> list[str]:
    """Return the links between the ranks, and the planned measurements."""
    classes: dict[LinkClass, list[str]] = {}
    for (low, high), link in sorted(context.links.items()):
        classes.setdefault(link, []).append(f"{low}-{high}")
    return [
        title(context),
        *(f"{link.name}: {' '.join(pairs)}" + (f" ({link.detail})" if link.detail else "")
          for link, pairs in classes.items()),
        f"over {', '.join(settings.transports)}; latency of {bytes_text(settings.sizes[0])}, "
        f"bandwidth of {', '.join(map(bytes_text, settings.large))}; about {settings.budget:g} s",
    ]  # fmt: skip


def publish(options: Options, context: Context, results: Results, remarks: Sequence[str]) -> bool:
    """Print the results in the requested format, then the findings; write and draw the files.

    If the records cannot be written they are printed, and the reason goes to standard error. Return
    whether all files are written.
    """
    if options.layout == "table":
        print_pairs(results.pairs, results.fits, sys.stdout)
    elif options.layout == "csv":
        write_csv(results.pairs, sys.stdout)
    else:
        sys.stdout.write(results.lines())
    # Programs read standard output, so remarks for people go elsewhere.
    stream = sys.stdout if options.layout == "table" else sys.stderr
    for text in [*_findings(results.pairs), *_refusals(results.pairs), *remarks]:
        print(f"# {printable(text)}", file=stream)
    complaints = []
    try:
        if options.output:
            write_whole(options.output, lambda fresh: fresh.write_text(results.lines()))
    except ArgumentError as error:
        complaints.append(str(error))
        if options.layout != "jsonl":
            print(
                f"# the records of {printable(str(options.output))}:\n{results.lines()}",
                file=stream,
            )
    try:
        if options.plot:
            nodes = next(iter(context.worlds.values())).nodes
            heading = f"{title(context)}\n{time.strftime('%Y-%m-%d')}, medians"
            heatmap.draw(results.pairs, nodes, heading, options.plot)
    except ArgumentError as error:
        complaints.append(str(error))
    stream.flush()
    for text in complaints:
        say(f"Error: {place()}{text}")
    return not complaints


def _findings(pairs: Sequence[PairRecord]) -> list[str]:
    """Return the outliers, in sentences."""
    names = outlier_lines(pairs)
    more = [f"and {len(names) - _MOST_LINES} more: see --output"] * (len(names) > _MOST_LINES)
    sentences = [*class_lines(pairs), *rank_lines(pairs), *names[:_MOST_LINES], *more]
    return sentences or ["no pair stands out from its class, and no class from the others"]


def _refusals(pairs: Sequence[PairRecord]) -> list[str]:
    reasons: dict[tuple[str, str, str], set[frozenset[int]]] = {}
    for record in pairs:
        if record.message and not record.time_us:
            key = record.backend, record.transport, record.message
            reasons.setdefault(key, set()).add(frozenset((record.source, record.target)))
    return [
        f"refused, {len(ends)} pairs ({backend}, {transport}): {message}"
        for (backend, transport, message), ends in reasons.items()
    ]
