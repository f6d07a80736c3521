"""Schedules in notebooks: a diagram of an algorithm, and the page that plays it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mpicoll.algorithms.registry import Algorithm, find
from mpicoll.errors import Unsupported
from mpicoll.explain.diagram import diagram
from mpicoll.explain.page import page
from mpicoll.explain.trace import trace_rounds
from mpicoll.text.html import frame

_RANKS = (4, 3, 2)
"""The numbers of ranks that a diagram tries."""


def algorithm_html(algorithm: Algorithm) -> str:
    """Return the name, the idea and the diagram of an algorithm."""
    heading = f"<b>{escape(f'{algorithm.collective.name} {algorithm}')}</b>"
    text = f"<p>{heading}: {escape(algorithm.summary)}</p>"
    for ranks in _RANKS:
        try:
            return text + diagram([trace_rounds(algorithm, ranks)])
        except Unsupported:
            continue
    return text


class Page:
    """The page that plays schedules; a notebook shows it inline."""

    def __init__(self, collective: str, names: Sequence[str], ranks: int, root: int = 0) -> None:
        self.text = page([find(collective, name) for name in names], ranks, root)

    def _repr_html_(self) -> str:
        return frame(self.text)


def play(collective: str, names: Sequence[str], ranks: int, root: int) -> Page:
    """Return the page that plays algorithms of a collective.

    Raises:
        UnknownName: there is no such collective or algorithm.
        ArgumentError: a page does not play so many ranks.
    """
    return Page(collective, names, ranks, root)
