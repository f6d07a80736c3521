"""Every variable with an impossible value has one clear error, before a program starts."""

from __future__ import annotations

import pytest
from bad_variables import CASES

from mpicoll.algorithms import registry
from mpicoll.errors import ArgumentError
from mpicoll.selection.forced import check_variables
from mpicoll.text.printable import printable


@pytest.mark.parametrize(("name", "value", "text"), CASES)
def test_an_impossible_value_has_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str
) -> None:
    monkeypatch.setenv(name, value)
    for load in (registry._load, registry._load_installed):
        load.cache_clear()  # files are loaded once
    with pytest.raises(ArgumentError, match=text) as caught:
        check_variables()
    message = str(caught.value)
    assert name in message or name == "MPICOLL_LOAD"
    assert "\n" not in message
    assert name == "MPICOLL_LOAD" or printable(message) == message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MPICOLL_DEADLINE", "0.5"), ("MPICOLL_DEADLINE", "inf"), ("MPICOLL_CORES", "0.5"),
        ("MPICOLL_RANKS_PER_NODE", "2"),
        ("MPICOLL_IPC_TILE", "0"), ("MPICOLL_FLIGHT", ""), ("MPICOLL_FLIGHT", "OFF"),
        ("MPICOLL_FENCES", "always"), ("MPICOLL_REPRODUCIBLE", "true"), ("MPICOLL_LOAD", ""),
    ],
)  # fmt: skip
def test_a_possible_value_has_none(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    check_variables()
