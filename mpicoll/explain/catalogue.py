"""Print the algorithms: ``python -m mpicoll.explain allreduce``."""

from __future__ import annotations

import click
from rich.table import Table

from mpicoll.algorithms import table
from mpicoll.cli.command import Command
from mpicoll.cli.tables import print_table
from mpicoll.notation.contract import COLLECTIVES, collective

_PIPED_WIDTH = 160


@click.command(cls=Command)
@click.argument("collectives", nargs=-1)
@click.option("--markdown", is_flag=True, help="Print Markdown.")
def main(collectives: tuple[str, ...], markdown: bool) -> None:
    """Print the algorithms of COLLECTIVES, by default of all."""
    names = tuple(collective(name).name for name in collectives) or tuple(COLLECTIVES)
    if markdown:
        click.echo(table.markdown(names))
    else:
        for name in names:
            print_algorithms(name)


def print_algorithms(name: str) -> None:
    """Print the table of the algorithms of a collective."""
    shown = Table(*(field.replace("order", "keeps order") for field in table.Row._fields))
    shown.title = name
    for row in table.rows(name):
        shown.add_row(*row)
    print_table(shown, _PIPED_WIDTH)
