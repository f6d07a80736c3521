"""The ranks that tests share (`tests/support/kept.py`): one group until a test fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kept import KeptRanks

import mpicoll
from mpicoll import Collectives


@pytest.fixture
def kept() -> Iterator[KeptRanks]:
    ranks = KeptRanks(mpicoll.threads(2, deadline=20))
    yield ranks
    ranks.end()


def group(kept: KeptRanks) -> set[object]:
    """Return the group of all ranks."""
    found = set[object]()
    kept(lambda c: found.add(c.transport.group))  # type: ignore[attr-defined]
    return found


def test_tests_share_a_group(kept: KeptRanks) -> None:
    assert len(group(kept) | group(kept)) == 1


@pytest.mark.parametrize("failing", [{1}, {0, 1}], ids=["one rank", "both"])
def test_a_test_that_fails_is_the_last_of_its_group(kept: KeptRanks, failing: set[int]) -> None:
    def fail(c: Collectives) -> None:
        if c.rank in failing:
            raise ZeroDivisionError("planted")
        c.barrier()

    before = group(kept)
    with pytest.raises(ZeroDivisionError, match="planted"):
        kept(fail)
    assert not before & group(kept)


def test_a_test_that_all_skip_keeps_the_group(kept: KeptRanks) -> None:
    before = group(kept)
    with pytest.raises(pytest.skip.Exception, match="not here"):
        kept(lambda c: pytest.skip("not here"))
    assert group(kept) == before
