"""When a rank that waits takes another to be in another call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from mpicoll.peers.calls import CallPosition, Calls, CallState, OtherCall

OWN = CallPosition(epoch=5, number=3, is_complete=False, plan=7, earlier_plans=(6, 5))


def in_own_call(ask: Callable[[Sequence[int]], Mapping[int, CallState | None]]) -> Calls:
    calls = Calls(lambda: OWN.epoch, ask)
    for plan in reversed(OWN.earlier_plans):
        calls.begin(plan)
        calls.end()
    calls.begin(OWN.plan)
    assert calls.position == OWN
    return calls


@pytest.mark.parametrize(
    ("other", "exchanges", "differs"),
    [
        pytest.param(CallPosition(5, 3, False, 7), 5, False, id="in the same call"),
        pytest.param(CallPosition(5, 3, False, 8), 5, True, id="in another call"),
        pytest.param(CallPosition(5, 3, False, 7), 6, True, id="left the call for an exchange"),
        pytest.param(CallPosition(5, 2, True, 6), 5, False, id="has not come yet"),
        pytest.param(CallPosition(5, 2, False, 6), 5, False, id="in the call before"),
        pytest.param(CallPosition(5, 2, False, 9), 5, True, id="in another call before"),
        pytest.param(CallPosition(5, 2, True, 6), 6, True, id="in an exchange instead"),
        pytest.param(CallPosition(5, 3, True, 7), 6, False, id="exchanges after the call"),
        pytest.param(CallPosition(5, 4, False, 8), 5, False, id="in the call after"),
        pytest.param(CallPosition(5, 4, False, 8, (7,)), 5, False, id="made the same call before"),
        pytest.param(CallPosition(5, 4, False, 8, (9,)), 5, True, id="made another call before"),
        pytest.param(
            CallPosition(5, 4, False, 8), 6, False, id="in an exchange after the call after"
        ),
        pytest.param(CallPosition(4, 3, False, 8), 5, False, id="comes from an exchange in a call"),
        pytest.param(CallPosition(4, 9, True, 8), 6, True, id="no call since the exchange before"),
    ],
)
def test_what_another_rank_says(other: CallPosition, exchanges: int, differs: bool) -> None:
    def ask(ranks: Sequence[int]) -> dict[int, CallState | None]:
        return {1: None, 2: CallState(other, exchanges)}

    calls = in_own_call(ask)
    if differs:
        with pytest.raises(OtherCall):
            calls.check([1, 2])
    else:
        calls.check([1, 2])
    assert calls.left == (OWN.plan if differs else 0)


@pytest.mark.parametrize(
    ("other", "exchanges", "is_behind"),
    [
        pytest.param(CallPosition(5, 2, True, 6), 5, True, id="has not come yet"),
        pytest.param(CallPosition(4, 3, False, 8), 5, True, id="comes from an exchange in a call"),
        pytest.param(CallPosition(5, 3, False, 8), 5, True, id="in another call"),
        pytest.param(OWN, 6, True, id="has left the call for an exchange"),
        pytest.param(OWN, 5, False, id="in the same call"),
        pytest.param(CallPosition(5, 4, False, 7), 5, False, id="in the call after"),
        pytest.param(CallPosition(6, 1, False, 7), 6, False, id="in a call after an exchange"),
    ],
)
def test_which_ranks_a_call_of_the_library_waits_for(
    other: CallPosition, exchanges: int, is_behind: bool
) -> None:
    calls = in_own_call(lambda ranks: {})
    assert calls.is_behind(CallState(other, exchanges)) == is_behind
    assert not calls.is_behind(None)


def test_a_rank_that_is_in_no_call_asks_nobody() -> None:
    asked: list[int] = []
    exchanges = [2]

    def ask(ranks: Sequence[int]) -> dict[int, CallState | None]:
        asked.extend(ranks)
        return {}

    calls = Calls(lambda: exchanges[0], ask)
    calls.check([1])
    calls.begin(4)
    calls.check([2])
    exchanges[0] += 1  # it has left the call, and waits in an exchange
    calls.check([3])
    assert calls.position == CallPosition(2, 1, False, 4)
    calls.hear([4, 4])
    assert calls.position == CallPosition(3, 0, True, 4)
    calls.begin(5)
    assert calls.position == CallPosition(3, 1, False, 5)
    calls.end()
    calls.check([5])
    assert asked == [2]


def test_plans_that_any_rank_has_left_are_dropped() -> None:
    dropped: list[set[int]] = []
    calls = Calls(lambda: 0, lambda ranks: {})
    calls.drop = dropped.append
    calls.hear([0, 0])
    calls.left = 3
    calls.hear([3, 0, 2])
    assert dropped == [{2, 3}]
    assert calls.left == 0


def test_a_rank_remembers_the_plans_of_its_last_calls() -> None:
    calls = Calls(lambda: 0, lambda ranks: {})
    for plan in range(1, 41):
        calls.begin(plan)
    position = calls.position
    assert (position.number, position.plan) == (40, 40)
    assert position.earlier_plans == tuple(range(39, 25, -1))
    assert [position.plan_of(number) for number in (40, 26, 25, 41)] == [40, 26, None, None]
