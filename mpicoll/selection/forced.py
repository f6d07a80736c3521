"""Algorithms that an environment variable states: ``allreduce=ring,broadcast=knomial(radix=4)``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mpicoll.errors import ArgumentError, CollectiveError, Unavailable, UnknownName, brief

_TILE = "MPICOLL_IPC_TILE"
_SWITCHES = (
    "MPICOLL_FENCES", "MPICOLL_FLIGHT", "MPICOLL_GPU_AWARE", "MPICOLL_IPC",
    "MPICOLL_NCCL_BLOCKING_WAIT", "MPICOLL_REPRODUCIBLE", "MPICOLL_STREAM_ORDER",
    "MPICOLL_SYMMETRIC",
)  # fmt: skip
_SWITCHED = ("", "0", "off", "no", "false", "1", "on", "yes", "true", "always")


def check_variables() -> None:
    """Check the variables that every group of a program reads, and files with algorithms.

    Raises:
        ArgumentError: a variable has another text than its page says, or a file is missing or
            wrong.
    """
    # Only a variable that is set has to be checked: a program starts quickly without these modules.
    if "MPICOLL_DEADLINE" in os.environ:
        from mpicoll.machine.settings import default_deadline

        default_deadline()
    if "MPICOLL_CORES" in os.environ:
        from mpicoll.machine.nodes import stated_cores

        stated_cores()
    if "MPICOLL_RANKS_PER_NODE" in os.environ:
        from mpicoll.machine.nodes import stated_node

        stated_node(0)
    check_switches()
    if os.environ.get("MPICOLL_TRACE"):
        raise ArgumentError("MPICOLL_TRACE is no variable any more: use the option --trace DIR")
    if _TILE in os.environ:
        _check_tile()
    if os.environ.get("MPICOLL_LOAD"):
        from mpicoll.algorithms.registry import algorithms

        algorithms("barrier")  # loads the files


def check_switches(variables: Mapping[str, str] = os.environ) -> None:
    """Check the variables that turn something on or off.

    >>> check_switches({"MPICOLL_FLIGHT": "off", "MPICOLL_IPC": ""})

    Raises:
        ArgumentError: one has another text.
    """
    for name in _SWITCHES:
        text = variables.get(name, "").lower()
        may_keep = name == "MPICOLL_FLIGHT"
        if text not in _SWITCHED and not (may_keep and text == "keep"):
            choices = "1, keep or 0" if may_keep else "1 or 0"
            raise ArgumentError(f"{name} must be {choices}, not {brief(variables[name])}")


def _check_tile() -> None:
    from mpicoll.gpu.ipc import asked_tile  # programs on the host do without

    try:
        asked_tile()
    except Unavailable as error:
        raise ArgumentError(str(error)) from None


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
    choices: dict[str, str] = {}
    if not (text := variables.get(variable, "").strip()):
        return choices
    from mpicoll.notation.contract import collective
    from mpicoll.notation.sweep import outside_brackets

    for item in outside_brackets(text, ","):
        name, sign, algorithm = (part.strip() for part in item.partition("="))
        try:
            if not sign or not algorithm:
                raise ArgumentError(
                    f"{brief(item)} is not collective=algorithm, as allreduce=ring,bcast=binomial"
                )
            collective_name = collective(name).name
            if collective_name in choices:
                raise ArgumentError(f"{collective_name} is named twice")
            _check_algorithm(collective_name, algorithm)
        except CollectiveError as error:
            raise ArgumentError(f"{variable}: {error}") from None
        choices[collective_name] = algorithm
    return choices


def _check_algorithm(collective_name: str, text: str) -> None:
    """Raise UnknownName where a collective has no such algorithm."""
    from mpicoll.calls.natives import COMPOSITIONS
    from mpicoll.selection.tables import check_algorithm

    name = text.partition("@")[0]
    if name.startswith("native:"):
        compositions = [
            f"native:{composition}" for composition in COMPOSITIONS.get(collective_name, ())
        ]
        if name not in compositions:
            raise UnknownName(f"{collective_name} composition", name, compositions)
    check_algorithm(collective_name, text)
