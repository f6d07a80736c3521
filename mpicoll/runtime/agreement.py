"""Compare the ranks' calls, and raise on all of them where they differ or one has an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from mpicoll.backend import Transport
from mpicoll.errors import ArgumentError, CollectiveError, Disagreement, brief
from mpicoll.runtime.arguments import Arguments

Checked = TypeVar("Checked")


def reconcile(own: Arguments | CollectiveError, everyone: Sequence[Any]) -> Arguments:
    """Return this rank's arguments, completed from the other ranks' where they all match.

    Args:
        everyone: every rank's signature, or the text of its error.

    Raises:
        CollectiveError: this rank's own error.
        Disagreement: another rank's error, or arguments that do not fit together.
    """
    raise_any(own, everyone)
    assert isinstance(own, Arguments)
    known: dict[str, Any] = {}
    for name in own.signature:
        given = [(rank, each[name]) for rank, each in enumerate(everyone) if each[name] is not None]
        differing = [pair for pair in given if pair[1] != given[0][1]]
        if differing:
            (first, value), (rank, other) = given[0], differing[0]
            raise Disagreement(
                f"{name} differs: rank {first} has {value!r}, rank {rank} has {other!r}"
            )
        known[name] = given[0][1] if given else None
    if own.collective.unit != "none" and own.dtype is None:
        return replace(own, dtype=known["dtype"], row=known["shape"], device=known["device"])
    return own


def raise_any(own: object, everyone: Sequence[Any]) -> None:
    """Raise the error of any rank on every rank.

    Args:
        own: this rank's error; anything else where it has none.
        everyone: for each rank the text of its error; no text where it has none.

    Raises:
        CollectiveError: this rank's own error.
        Disagreement: the error of another rank.
    """
    if isinstance(own, CollectiveError):
        raise own
    for rank, text in enumerate(everyone):
        if isinstance(text, str):
            raise Disagreement(f"rank {rank}: {text}")


def compare(said: Sequence[str]) -> None:
    """Raise Disagreement where a rank does something else than the first."""
    for rank, other in enumerate(said):
        if other != said[0]:
            raise Disagreement(f"rank 0 {said[0]}, rank {rank} {other}")


def check_on_all(transport: Transport, what: str, check: Callable[[], Checked]) -> Checked:
    """Return the result of a check; raise on every rank where it fails on one. Collective."""
    try:
        checked, error = check(), None
    except Exception as raised:
        error = refusal(raised)
    found = transport.exchange((what, error and str(error)), tuple[str, str | None])
    raise_any(error, [text for _, text in found])
    compare([said for said, _ in found])
    return checked


def refusal(error: Exception) -> CollectiveError:
    """Return the error for all ranks to raise, also where an argument's own method raised one."""
    if isinstance(error, CollectiveError):
        return error
    refused = ArgumentError(
        f"an argument cannot be checked: {type(error).__name__}: {brief(str(error))}"
    )
    refused.__cause__ = error
    return refused
