"""List, show, compare and prove algorithms: ``python -m mpicoll.explain allreduce ring``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from mpicoll.algorithms.registry import Algorithm, algorithms, find
from mpicoll.cli.command import Command
from mpicoll.cli.options import RANK, RANKS, SIZE, Parsed, Whole
from mpicoll.cli.progress import tracked
from mpicoll.cli.tables import console
from mpicoll.errors import ArgumentError
from mpicoll.explain.catalogue import print_algorithms
from mpicoll.explain.export import EXPORTS, written
from mpicoll.explain.library_choices import print_choices
from mpicoll.explain.proofs import algorithms_named, print_proofs, sizes_in
from mpicoll.explain.terminal import show
from mpicoll.explain.trace import RoundTrace, trace_rounds
from mpicoll.notation.contract import COLLECTIVES, Collective, collective
from mpicoll.simulator import contiguous
from mpicoll.text.files import writable, write_whole
from mpicoll.text.printable import printable

_PIPED_WIDTH = 120
_MOST_SHOWN, _MOST_RANKS = 64, 4096


@click.command("explain", cls=Command)
@click.argument("of", metavar="[COLLECTIVE]", required=False)
@click.argument("names", metavar="[ALGORITHM]...", nargs=-1)
@click.option("-n", "--ranks", type=Whole(1, _MOST_RANKS), default=4, show_default=True)
@click.option("--root", type=RANK, help="Root of a rooted collective.")
@click.option("--nodes", type=RANKS, help="Spread the ranks over so many nodes.")
@click.option(
    "--bytes", "nbytes", type=SIZE, default="1M", show_default=True,
    help="Of the vector, or of the blocks of all ranks, in a .goal or .et file.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path),
    help="A diagram (.svg), a page (.html), or the schedule for other software (.goal, .et, .xml).",
)  # fmt: skip
@click.option(
    "--prove", "sizes", type=Parsed("sizes", sizes_in),
    help="Prove the algorithms on so many ranks, as 8 or 4,7,100 or 1:64, and print their figures.",
)  # fmt: skip
@click.option(
    "--format", "style", type=click.Choice(["table", "jsonl"]), default="table",
    help="Of the proofs.",
)  # fmt: skip
@click.option("--defaults", is_flag=True, help="Print what MPICH and Open MPI choose by size.")
@click.option("-d", "--datatype", default="float32", help="With --defaults: dtype of the elements.")
@click.option("--counts", is_flag=True, help="With --defaults: counts, as in allgatherv.")
@click.option("--in-place", is_flag=True, help="With --defaults: one array for input and output.")
@click.option("--not-commutative", is_flag=True, help="With --defaults: an operator of the user.")
def main(
    of: str | None, names: tuple[str, ...], ranks: int, root: int | None, nodes: int | None,
    nbytes: int, output: Path | None, sizes: Sequence[int] | None, style: str, defaults: bool,
    datatype: str, counts: bool, in_place: bool, not_commutative: bool,
) -> int:  # fmt: skip
    """List algorithms, show a schedule round by round, compare several, or prove them.

    \b
    python -m mpicoll.explain allreduce
    python -m mpicoll.explain allreduce ring --ranks 4
    python -m mpicoll.explain allreduce ring recursive_doubling --ranks 8
    python -m mpicoll.explain broadcast 'knomial(radix=3)' --ranks 9 --root 2 -o knomial.svg
    python -m mpicoll.explain allreduce ring recursive_doubling -o allreduce.html
    python -m mpicoll.explain allreduce ring --ranks 64 --bytes 64M -o ring.goal
    python -m mpicoll.explain allreduce --prove 8
    python -m mpicoll.explain allreduce --defaults --ranks 8

    Without an algorithm the command lists those of the collective, and without a collective all.

    -o with .svg draws a space-time diagram with the blocks of every rank; with .html it makes a
    page that plays 2 to 16 ranks and needs no network. With .goal it writes one schedule for
    LogGOPSim and ATLAHS, with .et an execution trace of Chakra for each rank (name.0.et and so on)
    for ASTRA-sim, with .xml an algorithm for MSCCL; all three take up to 4,096 ranks.

    Exit status: 0, 1 if a proof fails, or 2 for bad usage and for a schedule that is wrong.
    """  # noqa: D301
    if sizes is not None:
        if defaults or output:
            raise ArgumentError("--prove takes neither --defaults nor -o")
        return print_proofs(algorithms_named(of, names), sizes, root or 0, nodes, style)
    if of is None:
        if defaults or output:
            raise ArgumentError("name a collective, as allreduce")
        for name in COLLECTIVES:
            print_algorithms(name)
        return 0
    contract = collective(of)
    if defaults:
        print_choices(
            contract, ranks, nodes or 1, datatype, has_counts=counts, in_place=in_place,
            is_commutative=not not_commutative,
        )  # fmt: skip
    elif not names and output is None:
        print_algorithms(contract.name)
    else:
        _show(contract, names, ranks, root, nodes, nbytes, output)
    return 0


def _show(
    contract: Collective, names: tuple[str, ...], ranks: int, root: int | None, nodes: int | None,
    nbytes: int, output: Path | None,
) -> None:  # fmt: skip
    """Print the rounds of schedules, or write them to a file."""
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
