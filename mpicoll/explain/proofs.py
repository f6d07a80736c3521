"""Prove algorithms, and print their properties: ``mpicoll.explain allreduce --prove 4,7``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from reprlib import repr as short
from typing import Any, NamedTuple

import click
from rich.table import Table

from mpicoll.algorithms.registry import (
    Algorithm,
    Nodes,
    algorithms,
    any_size,
    even,
    find,
    power_of_three,
    power_of_two,
)
from mpicoll.cli import ending
from mpicoll.cli.command import Command
from mpicoll.cli.options import RANK, RANKS, Parsed
from mpicoll.cli.progress import ProgressBar
from mpicoll.cli.tables import print_table
from mpicoll.errors import ArgumentError, ScheduleError, Unsupported
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.contract import collective as collective_named
from mpicoll.notation.sweep import expand
from mpicoll.simulator import MOST_RANKS, Trace, contiguous, prove
from mpicoll.text.numbers import whole
from mpicoll.text.sizes import MOST_SIZES


class Row(NamedTuple):
    """One line of the table: an algorithm with its trace, or the reason why it has none.

    Attributes:
        is_wrong: the proof failed; otherwise an algorithm without a trace serves other sizes.
    """

    algorithm: Algorithm
    size: int
    trace: Trace | None
    reason: str = ""
    is_wrong: bool = False


FIGURES = ("rounds", "sent", "reduced", "messages", "ports", "ordered")


def rows(chosen: Iterable[Algorithm], size: int, root: int, nodes: Nodes | None) -> Iterator[Row]:
    """Prove algorithms one after the other, without the messages: these fill gigabytes."""
    for algorithm in chosen:
        try:
            start = root if algorithm.collective.rooted else 0
            yield Row(algorithm, size, prove(algorithm, size, start, nodes, log=False))
        except Unsupported as reason:
            yield Row(algorithm, size, None, str(reason))
        except ScheduleError as error:
            yield Row(algorithm, size, None, str(error), is_wrong=True)


def _json(row: Row) -> str:
    record: dict[str, Any] = {
        "collective": row.algorithm.collective.name,
        "algorithm": str(row.algorithm),
        "serves": row.algorithm.needs.text,
        "size": row.size,
        **{name: getattr(row.trace, name, None) for name in FIGURES},
    }
    return json.dumps(record)


def _table(lines: Sequence[Row]) -> Table:
    table = Table("collective", "algorithm", title=_TITLE.format(lines[0].size))
    for name in FIGURES:
        table.add_column(name, justify="right")
    table.add_column("ranks")
    for algorithm, _, trace, *_ in lines:
        if trace is not None:
            cells = *_cells(algorithm, trace), _SHORT.get(algorithm.needs, algorithm.needs.text)
            table.add_row(algorithm.collective.name, str(algorithm), *cells)
    return table


_TITLE = "{} ranks; sent and reduced by the busiest rank, in vectors"
_SHORT = {any_size: "any", even: "even", power_of_two: "2^k", power_of_three: "3^k"}


def _cells(algorithm: Algorithm, trace: Trace) -> tuple[str, ...]:
    ordered = ("yes" if trace.ordered else "no") if algorithm.collective.reduces else ""
    return (
        str(trace.rounds), f"{trace.sent:.4g}", f"{trace.reduced:.4g}", str(trace.messages),
        str(trace.ports), ordered,
    )  # fmt: skip


def sizes_in(text: str) -> list[int]:
    """Return the numbers in a list of them and of ranges.

    >>> sizes_in("4,7,16:18")
    [4, 7, 16, 17, 18]

    Raises:
        ArgumentError: it is no such list, a number is above `MOST_RANKS`, or there are more
            than `MOST_SIZES`.
    """
    sizes: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition(":")
        low, high = (whole(bound, MOST_RANKS) for bound in (first, last or first))
        if low is None or high is None:
            raise ArgumentError(
                f"{short(text)} is no list of sizes up to {MOST_RANKS}: give 8, or 4,7,100, or 1:64"
            )
        sizes += range(low, high + 1)
        if len(sizes) > MOST_SIZES:
            raise ArgumentError(
                f"{short(text)} has {len(sizes)} sizes or more: at most {MOST_SIZES}"
            )
    if not sizes or min(sizes) < 1:
        raise ArgumentError(f"{short(text)} has no sizes of one rank and more")
    return sizes


def algorithms_named(of: str | None, texts: Iterable[str]) -> list[Algorithm]:
    """Return the algorithms of a collective, or of all; all without texts.

    Args:
        texts: names, which may have ranges of parameters.
    """
    names = [collective_named(of).name] if of else [*COLLECTIVES]
    if of is not None and texts:
        return [find(of, name) for text in texts for name in expand(text)]
    return [algorithm for name in names for algorithm in algorithms(name)]


def _chosen(of: str | None, text: str | None) -> list[Algorithm]:
    if text is not None and not of:
        raise ArgumentError("--algorithm needs --collective")
    return algorithms_named(of, () if text is None else (text,))


@click.command(cls=Command)
@click.option(
    "--size", "sizes", type=Parsed("sizes", sizes_in), required=True,
    help="Numbers of ranks, as 8 or 4,7,100 or 1:64.",
)  # fmt: skip
@click.option("--collective", help="Only this collective.")
@click.option("--algorithm", help="Only this algorithm, such as 'knomial(radix=2:8)'.")
@click.option("--root", type=RANK, default=0, help="Root of the rooted ones.")
@click.option("--nodes", type=RANKS, help="Spread the ranks over so many nodes.")
@click.option("--format", "style", type=click.Choice(["table", "jsonl"]), default="table")
def main(
    sizes: Sequence[int],
    collective: str | None,
    algorithm: str | None,
    root: int,
    nodes: int | None,
    style: str,
) -> int:
    """Prove algorithms for a number of ranks and print their properties.

    Exit status: 0 success, 1 a proof failed, 2 bad usage.
    """
    return print_proofs(_chosen(collective, algorithm), sizes, root, nodes, style)


def print_proofs(
    chosen: Sequence[Algorithm], sizes: Sequence[int], root: int, nodes: int | None, style: str
) -> int:
    """Print a line for each proof; return the exit status, which is 1 if a proof failed.

    Args:
        style: ``table``, or ``jsonl``.

    Raises:
        ArgumentError: the root is not a rank of the smallest size.
    """
    if root >= min(sizes):
        raise ArgumentError(f"root {root} is not one of {min(sizes)} ranks")
    is_wrong = False
    with ProgressBar(len(sizes) * len(chosen)) as bar:
        for size in sizes:
            layout = contiguous(size, nodes) if nodes else None
            table = []
            for row in rows(_shown(chosen, size, bar), size, root, layout):
                is_wrong |= row.is_wrong
                if style == "table":
                    table.append(row)
                if row.is_wrong or style == "jsonl":
                    bar.hide()
                if row.is_wrong:
                    ending.say(f"Error: {row.reason}")
                if style == "jsonl":
                    click.echo(_json(row))
            if not all(row.is_wrong for row in table):
                bar.hide()
                _print(table)
    return int(is_wrong)


def _shown(chosen: Sequence[Algorithm], size: int, bar: ProgressBar) -> Iterator[Algorithm]:
    for algorithm in chosen:
        bar.step(f"{algorithm.collective.name} {algorithm}, {size} ranks")
        yield algorithm


def _print(lines: Sequence[Row]) -> None:
    print_table(_table(lines), 140)
    for row in lines:
        if row.trace is None and not row.is_wrong:
            click.echo(f"refused: {row.reason}")
