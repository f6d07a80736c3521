"""Print the libraries' choices for a number of ranks: ``mpicoll.explain allreduce --defaults``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, zip_longest

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from mpicoll.cli.command import Command
from mpicoll.cli.options import RANKS
from mpicoll.cli.tables import print_table
from mpicoll.defaults import NAMES, Call, Choice, choose, function, table
from mpicoll.errors import ArgumentError
from mpicoll.notation.contract import Collective
from mpicoll.notation.contract import collective as collective_named
from mpicoll.notation.elements import itemsize, kind_of
from mpicoll.text.sizes import size_text


def ranges(
    name: str, contract: Collective, call: Call, width: int, *, has_counts: bool
) -> Iterator[tuple[int, Choice]]:
    """Yield a library's choices, each with the bytes (of a vector or one row) that it starts at.

    Args:
        call: all but the sizes.
        width: bytes of an element.
    """
    rows = 1 if contract.unit == "vector" else call.ranks
    starts = {0}
    if contract.unit != "none":
        for group in (2, call.ranks, call.nodes, call.largest):
            starts |= {width * group, width * replace(call, ranks=group).window}
        for measure, limit in table(name).limits(function(contract.name, has_counts=has_counts)):
            # Between nodes go the rows of whole nodes.
            starts |= {
                -(-limit // rows) if measure == "total" else limit,
                -(-limit // call.largest),
            }
    taken = [
        (
            start,
            choose(name, contract.name, _sized(call, start, rows, width), has_counts=has_counts),
        )
        for start in sorted(starts)
    ]
    for choice, run in groupby(taken, key=lambda pair: pair[1]):
        yield next(run)[0], choice


def _sized(call: Call, nbytes: int, rows: int, width: int) -> Call:
    return replace(call, bytes=nbytes, total=nbytes * rows, count=nbytes // width)


@click.command(cls=Command)
@click.argument("collective")
@click.option("--ranks", type=RANKS, required=True, help="Number of ranks.")
@click.option("--nodes", type=RANKS, default=1, help="Spread evenly over so many.")
@click.option("--datatype", "-d", default="float32", help="dtype of the elements.")
@click.option("--counts", "has_counts", is_flag=True, help="Rows with counts, as in allgatherv.")
@click.option("--in-place", is_flag=True, help="Input and output share memory.")
@click.option("--not-commutative", is_flag=True, help="A function of the user's that is not.")
def main(
    collective: str, ranks: int, nodes: int, datatype: str, has_counts: bool, in_place: bool,
    not_commutative: bool,
) -> None:  # fmt: skip
    """Print the choices of MPICH and Open MPI by size, and the schedules that run for them here.

    Sizes are bytes of a vector, or of one row of collectives with a row for each rank.
    """
    contract = collective_named(collective)
    print_choices(
        contract, ranks, nodes, datatype, has_counts=has_counts, in_place=in_place,
        is_commutative=not not_commutative,
    )  # fmt: skip


def print_choices(
    contract: Collective, ranks: int, nodes: int, datatype: str, *, has_counts: bool = False,
    in_place: bool = False, is_commutative: bool = True,
) -> None:  # fmt: skip
    """Print what MPICH and Open MPI choose for each size, and the schedules that run here.

    Raises:
        ArgumentError: the ranks do not spread evenly, or the collective takes no counts.
    """
    kind_of(datatype)
    if ranks % nodes:
        raise ArgumentError(f"{ranks} ranks do not spread evenly over {nodes} nodes")
    if has_counts and contract.unit not in ("rows", "pairs"):
        raise ArgumentError(f"{contract.name} takes no counts: every rank gives a whole vector")
    call = Call(
        ranks, commutative=is_commutative, builtin=is_commutative, in_place=in_place, nodes=nodes,
        largest=ranks // nodes,
    )  # fmt: skip
    _print(contract, call, itemsize(datatype), has_counts)


def _print(contract: Collective, call: Call, width: int, has_counts: bool) -> None:
    shown = Table("library", "bytes", "its choice", "runs here", box=SIMPLE_HEAD)
    notes: dict[str, str] = {}
    for name in NAMES:
        choices = list(ranges(name, contract, call, width, has_counts=has_counts))
        ends = [start for start, _ in choices[1:]]
        for (start, choice), end in zip_longest(choices, ends):
            sizes = "" if contract.unit == "none" else f"{size_text(start)} .."
            sizes += f" {size_text(end - 1)}" if end else ""
            mark = notes.setdefault(choice.note, f" ({len(notes) + 1})") if choice.note else ""
            library = table(name).library if start == 0 else ""
            shown.add_row(library, sizes, choice.name, f"{choice.schedule}{mark}")
    print_table(shown, 160)
    for note, mark in notes.items():
        click.echo(f"{mark.strip()} {note}")
    for name in NAMES:
        for remark in table(name).remarks:
            click.echo(f"{table(name).library}: {remark}")
