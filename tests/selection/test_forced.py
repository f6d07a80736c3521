"""The variable that states algorithms: what it may say, and what its errors name."""

from __future__ import annotations

import pytest

from mpicoll.errors import ArgumentError
from mpicoll.selection.forced import forced


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("allreduce=ring", {"allreduce": "ring"}),
        (
            "AllReduce=two_level(local=binomial,across=ring) , bcast = native",
            {"allreduce": "two_level(local=binomial,across=ring)", "broadcast": "native"},
        ),
        ("allreduce=native:reduce+broadcast", {"allreduce": "native:reduce+broadcast"}),
    ],
)
def test_what_a_variable_names(text: str, found: dict[str, str]) -> None:
    assert forced("V", {"V": text}) == found


def test_an_unset_variable_names_none() -> None:
    assert forced("V", {}) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ring", "'ring' is not collective=algorithm"),
        ("allreduce=", "is not collective=algorithm"),
        ("allreduce=rnig", "did you mean 'ring'"),
        ("allreduce=adaptive", "python -m mpicoll.tune now measures"),
        ("allreduces=ring", "did you mean 'allreduce'"),
        ("allreduce=ring@smoke", "unknown transport 'smoke'"),
        ("allreduce=native:gather", "unknown allreduce composition"),
        ("allreduce=ring,all_reduce=ring", "allreduce is named twice"),
    ],
)
def test_what_it_may_not_say(text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=r"^V: ") as raised:
        forced("V", {"V": text})
    assert said in str(raised.value)
