"""Print what the simulator proves and derives: ``python -m mpicoll.simulator --size 7``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from mpicoll.algorithms import Algorithm, Nodes, algorithms, find
from mpicoll.contract import COLLECTIVES, Contents
from mpicoll.contract import collective as collective_named
from mpicoll.errors import ArgumentError, CollectiveError, Unsupported
from mpicoll.schedule import Block, Temp
from mpicoll.simulator import Trace, contiguous, prove


class Row(NamedTuple):
    """One line of the table: an algorithm, its trace or the reason why there is none."""

    algorithm: Algorithm
    trace: Trace | None
    reason: str = ""


def rows(chosen: Sequence[Algorithm], size: int, root: int, nodes: Nodes | None) -> Iterator[Row]:
    """Prove algorithms one after the other."""
    for each in chosen:
        try:
            yield Row(each, prove(each, size, root if each.collective.rooted else 0, nodes))
        except Unsupported as reason:
            yield Row(each, None, str(reason))


def _json(row: Row, size: int) -> str:
    names = ("rounds", "sent", "reduced", "ports", "ordered")
    record: dict[str, Any] = {
        "collective": row.algorithm.collective.name,
        "algorithm": str(row.algorithm),
        "size": size,
        **{name: getattr(row.trace, name, None) for name in names},
    }
    return json.dumps(record)


def _table(lines: Sequence[Row], size: int) -> Table:
    table = Table("collective", "algorithm", title=f"{size} ranks; sent and reduced in vectors")
    for name in ("rounds", "sent", "reduced", "ports", "ordered"):
        table.add_column(name, justify="right")
    for algorithm, trace, _ in lines:
        if trace is not None:
            table.add_row(algorithm.collective.name, str(algorithm), *_cells(algorithm, trace))
    return table


def _cells(algorithm: Algorithm, trace: Trace) -> tuple[str, ...]:
    ordered = ("yes" if trace.ordered else "no") if algorithm.collective.reduces else ""
    return (
        str(trace.rounds), f"{trace.sent:.4g}", f"{trace.reduced:.4g}", str(trace.ports), ordered,
    )  # fmt: skip


def steps(trace: Trace) -> Iterator[str]:
    """Yield line by line which messages each round carries and what each rank then holds."""
    for now in range(1, trace.rounds + 1):
        yield f"round {now}"
        for message in sorted(message for message in trace.log if message.round == now):
            blocks = " ".join(map(_name, message.blocks)) or "signal"
            yield f"  {message.source} -> {message.destination}: {blocks}"
        for rank, history in enumerate(trace.history):
            held = next((contents for end, contents in reversed(history) if end <= now), {})
            yield f"  rank {rank} holds {_held(held)}" if held else f"  rank {rank}"


def _name(block: Block) -> str:
    if isinstance(block, Temp):
        return f"{block.name}[{_name(block.block)}]"
    return ">".join(map(str, block)) if isinstance(block, tuple) else str(block)


def _held(contents: Contents) -> str:
    return ", ".join(
        f"{_name(block)}={'+'.join(str(rank) for rank, _ in value)}"
        for block, value in sorted(contents.items(), key=lambda item: str(item[0]))
    )


def _chosen(of: str | None, text: str | None) -> list[Algorithm]:
    names = [collective_named(of).name] if of else [*COLLECTIVES]
    if text is None:
        return [each for name in names for each in algorithms(name)]
    if not of:
        raise ArgumentError("--algorithm needs --collective")
    return [find(of, text)]


@click.command()
@click.option("--size", type=click.IntRange(1), required=True, help="Number of ranks.")
@click.option("--collective", help="Only this collective.")
@click.option("--algorithm", help="Only this algorithm, such as 'knomial(radix=8)'.")
@click.option("--root", type=click.IntRange(0), default=0, help="Root of the rooted ones.")
@click.option("--nodes", type=click.IntRange(1), help="Spread the ranks over so many nodes.")
@click.option("--format", "style", type=click.Choice(["table", "jsonl"]), default="table")
@click.option("--steps", "stepwise", is_flag=True, help="Show every round of one algorithm.")
def main(
    size: int,
    collective: str | None,
    algorithm: str | None,
    root: int,
    nodes: int | None,
    style: str,
    stepwise: bool,
) -> None:
    """Prove algorithms for a number of ranks and print their properties."""
    try:
        if root >= size:
            raise ArgumentError(f"root {root} is not one of {size} ranks")
        if stepwise and not (collective and algorithm):
            raise ArgumentError("--steps needs --collective and --algorithm")
        layout = contiguous(size, nodes) if nodes else None
        chosen = _chosen(collective, algorithm)
        lines = list(rows(chosen, size, root, layout))
        if style == "jsonl":
            for row in lines:
                click.echo(_json(row, size))
            return
        _print(lines, size, root, layout, stepwise=bool(algorithm))
    except CollectiveError as error:
        raise click.ClickException(str(error)) from error


def _print(
    lines: Sequence[Row], size: int, root: int, nodes: Nodes | None, *, stepwise: bool
) -> None:
    if stepwise and lines[0].trace is not None:
        for line in steps(prove(lines[0].algorithm, size, root, nodes, history=True)):
            click.echo(line)
    width = None if sys.stdout.isatty() else 120
    Console(width=width).print(_table(lines, size))
    for row in lines:
        if row.trace is None:
            click.echo(f"refused: {row.reason}")


if __name__ == "__main__":
    main()
