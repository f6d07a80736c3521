"""Compare the ranks' calls, and raise on all of them where they differ or one has an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from mpicoll.errors import ArgumentError, CollectiveError, Disagreement, brief

if TYPE_CHECKING:
    from mpicoll.backend import Transport
    from mpicoll.calls.arguments import Arguments

Checked = TypeVar("Checked")


def reconcile(local: Arguments | CollectiveError, everyone: Sequence[Any]) -> Arguments:
    """Return this rank's arguments, completed from the other ranks' where they all match.

    Args:
        everyone: every rank's signature, or the text of its error.

    Raises:
        CollectiveError: this rank's own error.
        Disagreement: another rank's error, or arguments that do not fit together.
    """
    raise_any(local, everyone)
    assert not isinstance(local, CollectiveError)
    agreed_values: dict[str, Any] = {}
    for name in local.signature:
        ranked_values = [
            (rank, signature[name])
            for rank, signature in enumerate(everyone)
            if signature[name] is not None
        ]
        differing = [pair for pair in ranked_values if pair[1] != ranked_values[0][1]]
        if differing:
            (first, value), (rank, other_value) = ranked_values[0], differing[0]
            raise Disagreement(
                f"{name} differs: rank {first} has {value!r}, rank {rank} has {other_value!r}"
            )
        agreed_values[name] = ranked_values[0][1] if ranked_values else None
    if local.collective.unit != "none" and local.dtype is None:
        return replace(
            local,
            dtype=agreed_values["dtype"],
            row=agreed_values["shape"],
            device=agreed_values["device"],
        )
    return local


def raise_any(local: object, everyone: Sequence[Any]) -> None:
    """Raise the error of any rank on every rank.

    Args:
        local: this rank's error; anything else where it has none.
        everyone: for each rank the text of its error; no text where it has none.

    Raises:
        CollectiveError: this rank's own error.
        Disagreement: the error of another rank.
    """
    if isinstance(local, CollectiveError):
        raise local
    for rank, text in enumerate(everyone):
        if isinstance(text, str):
            raise Disagreement(f"rank {rank}: {text}")


def compare(actions: Sequence[str]) -> None:
    """Raise Disagreement where a rank does something else than the first."""
    for rank, action in enumerate(actions):
        if action != actions[0]:
            raise Disagreement(f"rank 0 {actions[0]}, rank {rank} {action}")


def check_on_all(transport: Transport, action: str, check: Callable[[], Checked]) -> Checked:
    """Return the result of a check; raise on every rank where it fails on one. Collective."""
    try:
        checked, error = check(), None
    except Exception as raised:
        error = refusal(raised)
    answers = transport.exchange((action, error and str(error)), tuple[str, str | None])
    raise_any(error, [text for _, text in answers])
    compare([rank_action for rank_action, _ in answers])
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
