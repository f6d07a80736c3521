"""Rows of calls that go on in a request, as the extension writes them."""

from __future__ import annotations

from typing import Any


def issue(log: Any, call: int) -> None:
    """Write such a row into a log; `call` is the place of the call in the table."""
    log.recorded(call, lambda: None, True)()
