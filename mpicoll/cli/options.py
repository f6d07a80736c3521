"""Options of the command line: types with bounds, and options that several commands take.

Every number that a command takes has one of these types, so that nothing runs on nan, without end,
or out of memory: `Whole` and `Real` are numbers from a least to a most, `Parsed` is text that a
function reads, with bounds of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import isnan
from pathlib import Path
from reprlib import repr as short
from typing import Any

import click

from mpicoll.backend import TRANSPORTS
from mpicoll.errors import ArgumentError, UnknownName
from mpicoll.machine.nodes import MOST_RANKS, RANKS_PER_NODE
from mpicoll.machine.variables import THREAD_LEVEL, THREAD_LEVELS
from mpicoll.notation.contract import collective
from mpicoll.text.names import split_names, with_all
from mpicoll.text.numbers import whole
from mpicoll.text.sizes import parse_size, parse_sizes

Decorator = Callable[[Any], Any]
_MAX_COUNT = 1_000_000
_MOST_SECONDS = 10_000_000


# -- types ------------------------------------------------------------------------------------


class _Name(click.Path):
    """The name of a file or of a folder."""

    def __init__(self, *, is_folder: bool = False) -> None:
        super().__init__(dir_okay=is_folder, file_okay=not is_folder, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not str(value):
            self.fail("'' names nothing: is a variable not set?", param, ctx)
        return super().convert(value, param, ctx)


FILE = _Name()
FOLDER = _Name(is_folder=True)
OUTPUT_FILE = _Name()
"""A file that the command writes: it is written even where nobody reads standard output."""
OUTPUT_FOLDER = _Name(is_folder=True)
"""The same of a folder."""


def is_output(kind: Any) -> bool:
    """Whether an option of this type names what the command writes."""
    return kind in (OUTPUT_FILE, OUTPUT_FOLDER) or (
        isinstance(kind, click.Tuple) and any(map(is_output, kind.types))
    )


class Whole(click.IntRange):
    """A whole number from `minimum` to `maximum`."""

    def __init__(self, minimum: int = 1, maximum: int = _MAX_COUNT) -> None:
        super().__init__(minimum, maximum)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            bounds = f"from {self.min:,} to {self.max:,}"
            self.fail(f"{short(value)} is not a whole number {bounds}", param, ctx)


class Real(click.FloatRange):
    """A number from `minimum`, or above it, to `maximum`."""

    def __init__(self, minimum: float, maximum: float, *, above: bool = False) -> None:
        super().__init__(minimum, maximum, min_open=above)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            number = float("nan")
        if isnan(number):
            bounds = f"{'above' if self.min_open else 'from'} {self.min:,} to {self.max:,}"
            self.fail(f"{short(value)} is not a number {bounds}", param, ctx)
        return number


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic from 8.4 on only
    """A value that `parse` reads from text; it raises an `ArgumentError` for text that is none."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value; one that is read already stays as it is."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ArgumentError as error:
            self.fail(str(error), param, ctx)


def _ranks(text: str) -> tuple[str, ...]:
    """Return the ranks in a list of them, or ``all``, as decimal digits without leading zeros."""
    names = tuple(rank.lstrip("0") or "0" for rank in split_names(text))
    if not names:
        raise ArgumentError(f"{text!r} names nothing: leave it out for its default")
    for name in names:
        if name.lower() != "all" and whole(name, MOST_RANKS - 1) is None:
            raise ArgumentError(
                f"{short(name)} is not a rank: give numbers from 0 to {MOST_RANKS - 1:,}, or all"
            )
    return names


SECONDS = Real(0, _MOST_SECONDS, above=True)
SIZE, SIZES = Parsed("size", parse_size), Parsed("sizes", parse_sizes)
RANK, RANKS = Whole(0, MOST_RANKS - 1), Whole(1, MOST_RANKS)
RANK_LIST = Parsed("ranks", _ranks)


# -- options ----------------------------------------------------------------------------------


def option(*names: str, shown: bool = False, **keywords: Any) -> Decorator:
    """Return the decorator of an option; `shown`: the help states its default."""
    return click.option(*names, show_default=shown, **keywords)


def _nonempty(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
    """Return lists of names, unless one is empty, as from a variable that is not set."""
    for text in value if isinstance(value, tuple) else (value,):
        if text is not None and not split_names(text):
            raise click.BadParameter(f"{text!r} names nothing: leave it out for its default")
    return value


class MpiOption(click.Option):
    """An option that is of use only where MPI is one of the backends, which click's `obj` maps.

    The help of a command without MPI omits the option.
    """

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the names and the meaning; None without MPI."""
        has_mpi = ctx.obj is None or "mpi4py" in ctx.obj
        return super().get_help_record(ctx) if has_mpi else None


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


def transport_names(text: str | None) -> tuple[str, ...]:
    """Return the transports in a list of them, ``all`` as every one; none for no list.

    Raises:
        UnknownName: one is no transport.
    """
    names = with_all(split_names(text or ""), TRANSPORTS)
    for name in names:
        if name not in TRANSPORTS:
            raise UnknownName("transport", name, TRANSPORTS)
    return names


def _state_nodes(_context: click.Context, _option: click.Parameter, value: int | None) -> None:
    if value is not None:
        os.environ[RANKS_PER_NODE] = str(value)


def _state_level(_context: click.Context, _option: click.Parameter, value: str | None) -> Any:
    if value is not None:
        os.environ[THREAD_LEVEL] = value
    return value


collectives = click.argument(
    "collectives", nargs=-1, metavar="[COLLECTIVES]...", callback=_nonempty
)
backends = list_option(
    "--backends", "--backend", metavar="A,B", cls=MpiOption,
    help="mpi4py, torch, or both (default).",
)  # fmt: skip
interface = option(
    "--interface", metavar="NAME",
    help="Network interface of torch.distributed (loopback on one host).",
)  # fmt: skip
timeout = option(
    "-T", "--timeout", type=Real(0, _MOST_SECONDS), default=60.0, shown=True,
    help="Seconds after which a step counts as hung; 0 waits for ever.",
)  # fmt: skip
ranks_per_node = option(
    "--ranks-per-node", type=RANKS, metavar="N", expose_value=False, callback=_state_nodes,
    help=f"Count so many ranks in a row as one node ({RANKS_PER_NODE}).",
)  # fmt: skip
threads = option(
    "--threads", type=click.Choice(THREAD_LEVELS), callback=_state_level, cls=MpiOption,
    help=f"MPI's thread level (default: multiple, or ${THREAD_LEVEL}).",
)  # fmt: skip
seed = option(
    "--seed", type=Whole(0, (1 << 63) - 1), default=0, shown=True,
    help="Of the order of measurements.",
)  # fmt: skip
