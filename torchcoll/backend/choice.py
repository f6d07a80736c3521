"""Which algorithm serves which collective: from ``TORCHCOLL_ALGORITHM`` or from `pg_options`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpicoll.errors import ArgumentError, brief
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.selection.forced import forced

VARIABLE = "TORCHCOLL_ALGORITHM"
_OPTIONS = "pg_options"


def choose(options: Any = None) -> dict[str, str]:
    """Return the algorithm of every collective, ``auto`` where none is chosen.

    >>> choose({"bcast": "binomial"})["broadcast"], choose("allreduce=ring")["allreduce"]
    ('binomial', 'ring')

    Args:
        options: `pg_options` of the group, which go before the environment variable: a text as in
            the variable, or a dictionary of collectives and algorithms.

    Raises:
        ArgumentError: there is no such collective or algorithm, or the choice has another form.
    """
    chosen = dict.fromkeys(COLLECTIVES, "auto") | forced(VARIABLE)
    if options is None:
        return chosen
    if isinstance(options, Mapping):
        options = ",".join(f"{name}={algorithm}" for name, algorithm in options.items())
    if not isinstance(options, str):
        raise ArgumentError(
            f"{_OPTIONS} is {brief(options)}: give a text or a dictionary of collectives and "
            "algorithms, as in {'allreduce': 'ring'}"
        )
    return chosen | forced(_OPTIONS, {_OPTIONS: options})
