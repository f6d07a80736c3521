"""Lists of names, as flags take them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from mpicoll.notation.sweep import expand, outside_brackets


def split_names(text: str) -> tuple[str, ...]:
    """Return the names between the commas that are outside brackets.

    >>> split_names("ring, two_level(local=chain,across=ring),native")
    ('ring', 'two_level(local=chain,across=ring)', 'native')
    """
    return tuple(filter(None, outside_brackets(text, ",")))


def swept_names(text: str) -> tuple[str, ...]:
    """Return the same with each sweep expanded into its members (`mpicoll.notation.sweep`).

    >>> swept_names("ring,knomial(radix=2:3)")
    ('ring', 'knomial(radix=2)', 'knomial(radix=3)')
    """
    return tuple(chain.from_iterable(map(expand, split_names(text))))


def with_all(chosen: Sequence[str], every: Sequence[str]) -> tuple[str, ...]:
    """Return the names with ``all`` expanded into every one; each name once.

    >>> with_all(["b", "all"], ["a", "b"])
    ('b', 'a')
    """
    wide = [
        expanded for name in chosen for expanded in (every if name.lower() == "all" else (name,))
    ]
    return tuple(dict.fromkeys(wide))
