"""The table of algorithms, read from their docstrings: name, idea, rounds, bytes, order, source.

A docstring has the idea as its first line, with the source in brackets there or below, and ends
with a paragraph ``Rounds ...; bytes sent ...``, before its doctest.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

from mpicoll.algorithms.registry import Algorithm, algorithms, aliases
from mpicoll.notation.contract import COLLECTIVES

UNORDERED = "Commutative operators only."
"""Stands in the docstring of a schedule that does not keep rank order."""
_SOURCE = re.compile(r" ?\(([^()]*(?:\d{4}|MPI|gloo|UCC|NCCL)[^()]*)\)")


class Row(NamedTuple):
    """One algorithm of the table; `order` says whether a reduction keeps rank order."""

    name: str
    idea: str
    rounds: str
    bytes: str
    order: str
    source: str


def row(algorithm: Algorithm) -> Row:
    """Return an algorithm's row.

    >>> from mpicoll.algorithms import find
    >>> row(find("allreduce", "ring"))  # doctest: +NORMALIZE_WHITESPACE
    Row(name='ring', idea='Reduce-scatter around the ring, then allgather around it',
        rounds='2(p-1)', bytes='sent 2(p-1)/p m; reduced (p-1)/p m', order='no',
        source='Patarasuk and Yuan 2009')
    """
    text, _, _ = (inspect.getdoc(algorithm.generator) or "").partition(">>>")
    *idea, figures = (" ".join(part.split()) for part in text.strip().split("\n\n"))
    if not figures.startswith("Rounds"):  # a user's own may state nothing
        idea, figures = [*idea, figures], ""
    figures = figures.replace(UNORDERED, "").strip().removesuffix(".")
    rounds, _, volume = figures.removeprefix("Rounds").lstrip(": ").partition("; ")
    sources = dict.fromkeys(source for part in idea for source in _SOURCE.findall(part))
    return Row(
        name=_name(algorithm),
        idea=_idea(algorithm.summary),
        rounds=rounds,
        bytes=volume.removeprefix("bytes "),
        order=_order(algorithm),
        source="; ".join(sources),
    )


def _idea(summary: str) -> str:
    """Return a first line without its source and its full stop."""
    ends_open = summary.endswith(" ...")
    return _SOURCE.sub("", summary if ends_open else summary.removesuffix("."))


def _order(algorithm: Algorithm) -> str:
    if not algorithm.collective.reduces:
        return ""
    return "no" if UNORDERED in " ".join((algorithm.generator.__doc__ or "").split()) else "yes"


def _name(algorithm: Algorithm) -> str:
    """Return the name with its parameters, and in brackets the aliases that fix none of them."""
    spellings = aliases(algorithm.collective.name)
    alias_names = ", ".join(
        alias for alias, target in spellings.items() if target == algorithm.name
    )
    return f"{algorithm} ({alias_names})" if alias_names else str(algorithm)


def rows(collective: str) -> Iterator[Row]:
    """Yield the rows of a collective's algorithms."""
    return map(row, algorithms(collective))


def markdown(collectives: tuple[str, ...] = tuple(COLLECTIVES)) -> str:
    """Return the table as Markdown, with a heading for each collective."""
    return "\n".join(line for name in collectives for line in _section(name))


def _section(collective: str) -> Iterator[str]:
    yield from (f"### {collective}", "")
    yield "| algorithm | idea | rounds | bytes | keeps rank order | source |"
    yield "| --- | --- | --- | --- | --- | --- |"
    yield from map(line, rows(collective))
    yield ""


def line(entry: Row) -> str:
    """Return a row as Markdown."""
    name, *cells = entry
    return f"| `{name}` | {' | '.join(cells)} |"
