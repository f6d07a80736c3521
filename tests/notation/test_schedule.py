"""The notation and its combinators."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicoll.algorithms.registry import algorithms
from mpicoll.notation.schedule import (
    Temp,
    around,
    copy,
    fold,
    folded,
    lenders,
    merge_rounds,
    on,
    recv,
    reduce,
    reverse,
    rounds,
    send,
    side_of,
    then,
)


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (send(1, 2, 3), "send(1, 2, 3)"),
        (send(1), "send(1)"),
        (recv(0, (1, 2)), "recv(0, (1, 2))"),
        (reduce(4, 0), "reduce_left(4, 0)"),
        (reduce(4, 0, side="right"), "reduce_right(4, 0)"),
        (copy(0, 1), "copy(0, 1)"),
        (fold(0, 1, "right"), "fold_right(0, 1)"),
    ],
)
def test_operations_print_as_they_are_written(op, text: str) -> None:
    assert str(op) == text


def test_rounds_wraps_lone_operations_and_drops_empty_rounds() -> None:
    assert rounds([send(1), (), (recv(1), send(2))]) == [(send(1),), (recv(1), send(2))]


def test_then_runs_one_after_the_other() -> None:
    assert rounds(then([send(1)], [recv(1)])) == [(send(1),), (recv(1),)]


def test_together_merges_round_by_round() -> None:
    merged = list(merge_rounds([send(1, 0), send(1, 1)], [recv(2, 5)]))
    assert merged == [(send(1, 0), recv(2, 5)), (send(1, 1),)]


def test_reverse_turns_time_and_direction() -> None:
    schedule = [recv(0, 1), (send(3, 1), send(4, 1))]
    assert rounds(reverse(schedule, 2, folds=False)) == [
        (recv(3, 1), recv(4, 1)),
        (send(0, 1),),
    ]


def test_reverse_folds_each_peer_on_its_side() -> None:
    folds = rounds(reverse([(send(0, 1), send(4, 1))], 2, folds=True))
    assert folds == [(reduce(0, 1, side="left"), reduce(4, 1, side="right"))]


@pytest.mark.parametrize("op", [reduce(1, 0), copy(0, 1), fold(0, 1)])
def test_reverse_refuses_what_has_no_reverse(op) -> None:
    with pytest.raises(TypeError, match="has no reverse"):
        rounds(reverse([op], 0, folds=True))


@pytest.mark.parametrize(
    "algorithm",
    [algorithm for name in ("broadcast", "scatter", "allgather") for algorithm in algorithms(name)],
    ids=str,
)
def test_a_distribution_reversed_twice_is_itself(algorithm) -> None:
    schedule = algorithm.rounds(1, 4)
    back = reverse(reverse(schedule, 1, folds=False), 1, folds=False)
    assert rounds(back) == schedule


def test_on_moves_ranks_and_renames_blocks_even_in_temporaries() -> None:
    moved = on([7, 9], [(send(1, 0), recv(1, Temp("in", 0))), fold(0, Temp("in", 0))], str)
    assert rounds(moved) == [
        (send(9, "0"), recv(9, Temp("in", "0"))),
        (fold("0", Temp("in", "0")),),
    ]


def test_on_refuses_to_leave_the_group() -> None:
    with pytest.raises(ValueError, match="leaves the group of 2"):
        rounds(on([7, 9], [send(2)]))


def test_around_turns_the_ranks() -> None:
    assert rounds(around(3, 5, [send(1), recv(4)])) == [(send(4),), (recv(2),)]


@given(st.integers(0, 100), st.integers(0, 100))
def test_side_of_keeps_rank_order(peer: int, rank: int) -> None:
    assert side_of(peer, rank) == ("left" if peer < rank else "right")


@given(st.integers(1, 300))
def test_lenders_leave_a_power_of_two_of_ranks_in_order(size: int) -> None:
    groups = lenders(size)
    assert len(groups) == 1 << (size.bit_length() - 1)
    assert [*chain.from_iterable(groups)] == [*range(size)]
    assert {*map(len, groups)} <= {1, 2}


@given(st.integers(1, 300), st.integers(2, 9))
def test_lenders_leave_a_power_of_the_radix(size: int, radix: int) -> None:
    groups = lenders(size, radix)
    assert radix**20 % len(groups) == 0
    assert len(groups) * radix > size
    assert max(map(len, groups)) <= radix


@given(st.integers(1, 60))
def test_folded_lends_once_and_returns_once(size: int) -> None:
    schedules = [rounds(folded(rank, size, lambda me, power: iter(()), 0)) for rank in range(size)]
    surplus = size - (1 << (size.bit_length() - 1))
    assert [len(schedule) for schedule in schedules] == [2] * (2 * surplus) + [0] * (
        size - 2 * surplus
    )
