"""Show schedules: ``python -m mpicoll.explain allreduce ring``."""

from __future__ import annotations

from pathlib import Path

import click

from mpicoll.algorithms.registry import Algorithm, algorithms, find
from mpicoll.cli.command import Command
from mpicoll.cli.options import RANK, RANKS, SIZE, Whole
from mpicoll.cli.progress import tracked
from mpicoll.cli.tables import console
from mpicoll.errors import ArgumentError
from mpicoll.explain.export import EXPORTS, written
from mpicoll.explain.terminal import show
from mpicoll.explain.trace import RoundTrace, trace_rounds
from mpicoll.notation.contract import Collective, collective
from mpicoll.simulator import contiguous
from mpicoll.text.files import writable, write_whole
from mpicoll.text.printable import printable

_PIPED_WIDTH = 120
_MOST_SHOWN, _MOST_RANKS = 64, 4096


@click.command("explain", cls=Command)
@click.argument("of", metavar="COLLECTIVE")
@click.argument("names", metavar="ALGORITHM...", nargs=-1)
@click.option("-n", "--ranks", type=Whole(1, _MOST_RANKS), default=4, show_default=True)
@click.option("--root", type=RANK, help="Root of a rooted collective.")
@click.option("--nodes", type=RANKS, help="Spread the ranks over so many nodes.")
@click.option(
    "--bytes", "nbytes", type=SIZE, default="1M", show_default=True,
    help="Of the vector, or of all rows, in a .goal or .et file.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path),
    help="A diagram (.svg), a page (.html), or the schedule for other software (.goal, .et, .xml).",
)  # fmt: skip
def main(
    of: str, names: tuple[str, ...], ranks: int, root: int | None, nodes: int | None, nbytes: int,
    output: Path | None,
) -> None:  # fmt: skip
    """Show a schedule round by round, or compare several.

    \b
    python -m mpicoll.explain allreduce ring --ranks 4
    python -m mpicoll.explain allreduce ring recursive_doubling --ranks 8
    python -m mpicoll.explain broadcast 'knomial(radix=3)' --ranks 9 --root 2 -o knomial.svg
    python -m mpicoll.explain allreduce ring recursive_doubling -o allreduce.html
    python -m mpicoll.explain allreduce ring --ranks 64 --bytes 64M -o ring.goal

    -o with .svg draws a space-time diagram with the blocks of every rank; with .html it makes a
    page that plays 2 to 16 ranks and needs no network. With .goal it writes one schedule for
    LogGOPSim and ATLAHS, with .et an execution trace of Chakra for each rank (name.0.et and so on)
    for ASTRA-sim, with .xml an algorithm for MSCCL; all three take up to 4,096 ranks.

    Exit status: 0, or 2 for bad usage and for a schedule that is wrong.
    """  # noqa: D301
    contract = collective(of)
    chosen = _chosen(contract, names)
    at = _root(contract, root, ranks)
    if output and output.name:
        writable(output)
    if output and output.suffix.lower() in EXPORTS:
        click.echo(printable(written(output, chosen, ranks, nbytes, at, nodes)))
        return
    if ranks > _MOST_SHOWN:
        raise ArgumentError(f"{ranks} ranks are too many to show: at most {_MOST_SHOWN}")
    if output is None:
        show(_traces(chosen, ranks, at, nodes), console(_PIPED_WIDTH))
    else:
        click.echo(printable(_written(output, chosen, ranks, at, nodes)))


def _chosen(contract: Collective, names: tuple[str, ...]) -> list[Algorithm]:
    if not names:
        choices = ", ".join(algorithm.name for algorithm in algorithms(contract.name))
        raise ArgumentError(f"name one or more algorithms of {contract.name}: {choices}")
    return [find(contract.name, name) for name in dict.fromkeys(names)]


def _root(contract: Collective, root: int | None, ranks: int) -> int:
    if root is not None and not contract.rooted:
        raise ArgumentError(f"{contract.name} has no root: leave --root out")
    if root is not None and root >= ranks:
        raise ArgumentError(f"root {root} is not one of {ranks} ranks")
    return root or 0


def _traces(chosen: list[Algorithm], ranks: int, root: int, nodes: int | None) -> list[RoundTrace]:
    layout = contiguous(ranks, nodes) if nodes else None
    return [trace_rounds(algorithm, ranks, root, layout) for algorithm in tracked(chosen, str)]


def _written(
    path: Path, chosen: list[Algorithm], ranks: int, root: int, nodes: int | None
) -> str:  # fmt: skip
    suffix = path.suffix.lower()
    if suffix == ".svg":
        from mpicoll.explain.diagram import diagram

        content = diagram(_traces(chosen, ranks, root, nodes))
    elif suffix in (".html", ".htm"):
        from mpicoll.explain.page import page

        content = page(chosen, ranks, root, nodes)
    else:
        formats = ", ".join(EXPORTS)
        raise ArgumentError(
            f"-o {path}: give the name of a diagram (.svg), of a page (.html), or of a schedule "
            f"for other software ({formats})"
        )
    write_whole(path, lambda fresh: fresh.write_text(content, encoding="utf-8"))
    return f"{path}: {len(content) / 1e3:.0f} KB"


if __name__ == "__main__":
    main()
