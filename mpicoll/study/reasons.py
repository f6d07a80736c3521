"""The reason of a failed launch, quoted from its launcher."""

from __future__ import annotations

from itertools import takewhile

_MAX_LENGTH = 400
"""Largest number of characters of a reason."""
_AS_ROOT = "--allow-run-as-root"
"""The flag that launchers of all Open MPI releases name if they refuse to run as root."""


def reason_of(printed: str) -> str:
    r"""Return the last two errors; without one, the first paragraph and the last line.

    >>> reason_of("it begins\nError: no memory\nit ends")
    'Error: no memory'
    >>> reason_of("A launcher\nexplains.\n\nIt says more.\nIt ends.")
    'A launcher explains. | It ends.'
    """
    if _AS_ROOT in printed:
        return (
            "Open MPI's launcher refuses to run as root: set OMPI_ALLOW_RUN_AS_ROOT=1 and "
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, in this shell or in the environment's variables"
        )
    lines = [line.strip("- \t\0") for line in printed.strip("- \t\n\0").splitlines()]
    reasons = [line for line in lines if "error" in line.lower()][-2:]
    if not reasons:
        paragraph = " ".join(takewhile(bool, lines))
        reasons = [paragraph, lines[-1]] if lines and lines[-1] not in paragraph else [paragraph]
    # The beginning of an error says what is wrong. The rest may be long.
    text = " | ".join(_head(reason, _MAX_LENGTH // len(reasons)) for reason in reasons)
    return text or "it printed nothing"


def _head(text: str, max_length: int) -> str:
    """Return the head of a text, at most `max_length` characters.

    >>> _head("Error: no such name", 12)
    'Error: no...'
    """
    return text if len(text) <= max_length else f"{text[: max_length - 3].rstrip()}..."
