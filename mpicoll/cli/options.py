"""Options of the command line that several commands take."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mpicoll.machine.nodes import RANKS_PER_NODE
from mpicoll.notation.contract import collective
from mpicoll.text.names import split_names

Decorator = Callable[[Any], Any]
FILE = click.Path(dir_okay=False, path_type=Path)


def option(*names: str, shown: bool = False, **keywords: Any) -> Decorator:
    """Return the decorator of an option; `shown`: the help states its default."""
    return click.option(*names, show_default=shown, **keywords)


def _nonempty(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
    """Return lists of names, unless one is empty, as from a variable that is not set."""
    for text in value if isinstance(value, tuple) else (value,):
        if text is not None and not split_names(text):
            raise click.BadParameter(f"{text!r} names nothing: leave it out for its default")
    return value


def list_option(*names: str, **keywords: Any) -> Decorator:
    """Return the decorator of an option that takes names between commas."""
    return option(*names, callback=_nonempty, **keywords)


def collective_names(*texts: str) -> tuple[str, ...]:
    """Return the names of collectives in lists of them, in our spelling.

    >>> collective_names("bcast,all_reduce", "all")
    ('broadcast', 'allreduce', 'all')

    Raises:
        UnknownName: one is no collective.
    """
    names = (name for text in texts for name in split_names(text))
    return tuple(name if name == "all" else collective(name).name for name in names)


def _state_nodes(_context: click.Context, _option: click.Parameter, value: int | None) -> None:
    if value is not None:
        os.environ[RANKS_PER_NODE] = str(value)


collectives = click.argument(
    "collectives", nargs=-1, metavar="[COLLECTIVES]...", callback=_nonempty
)
backends = list_option(
    "--backends", "--backend", metavar="A,B", help="mpi4py, torch, or both (default)."
)
interface = option(
    "--interface", metavar="NAME",
    help="Network interface of torch.distributed (loopback on one host).",
)  # fmt: skip
timeout = option(
    "-T", "--timeout", type=click.FloatRange(0), default=60.0, shown=True,
    help="Seconds after which a step counts as hung; 0 waits for ever.",
)  # fmt: skip
ranks_per_node = option(
    "--ranks-per-node", type=click.IntRange(1), metavar="N", expose_value=False,
    callback=_state_nodes,
    help=f"So many ranks in a row are a node, whatever MPI reports ({RANKS_PER_NODE}).",
)  # fmt: skip
seed = option("--seed", type=int, default=0, shown=True, help="Of the order of measurements.")
