"""Rows of calls that go on in a request, as the extension writes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mpicoll.execution import _compiled


def issue(log: Any, call: int) -> None:
    """Write such a row into a log; `call` is the place of the call in the table."""
    method = _compiled.issued("log", lambda: call, lambda request: None)
    method(SimpleNamespace(log=log))
