"""Algorithms that an environment variable states: ``allreduce=ring,broadcast=knomial(radix=4)``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mpicoll import defaults
from mpicoll.algorithms.registry import find
from mpicoll.backend import TRANSPORTS
from mpicoll.errors import ArgumentError, CollectiveError, UnknownName, brief
from mpicoll.notation.contract import collective
from mpicoll.notation.sweep import outside_brackets
from mpicoll.runtime.natives import COMPOSITIONS
from mpicoll.selection.tables import OPEN

_OTHERS = (*OPEN, *defaults.NAMES, "native", "native_persistent")


def forced(variable: str, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the algorithm of each collective that a variable names, under our name of it.

    >>> forced("X", {"X": "bcast=knomial(radix=4)@symmetric, all_reduce=ring"})
    {'broadcast': 'knomial(radix=4)@symmetric', 'allreduce': 'ring'}

    Args:
        variable: unset or empty, it names none.

    Raises:
        ArgumentError: it has another form, or names a collective, an algorithm or a transport that
            does not exist, or a collective twice.
    """
    text = variables.get(variable, "").strip()
    found: dict[str, str] = {}
    for each in outside_brackets(text, ",") if text else ():
        name, sign, algorithm = (part.strip() for part in each.partition("="))
        try:
            if not sign or not algorithm:
                raise ArgumentError(
                    f"{brief(each)} is not collective=algorithm, as allreduce=ring,bcast=binomial"
                )
            what = collective(name).name
            if what in found:
                raise ArgumentError(f"{what} is named twice")
            _check(what, algorithm)
        except CollectiveError as error:
            raise ArgumentError(f"{variable}: {error}") from None
        found[what] = algorithm
    return found


def _check(what: str, text: str) -> None:
    """Raise UnknownName where a collective has no such algorithm."""
    name, sign, route = text.partition("@")
    if sign and route not in TRANSPORTS:
        raise UnknownName("transport", route, TRANSPORTS)
    if name.startswith("native:"):
        known = [f"native:{each}" for each in COMPOSITIONS.get(what, ())]
        if name not in known:
            raise UnknownName(f"{what} composition", name, known)
    elif name not in _OTHERS:
        find(what, name)
