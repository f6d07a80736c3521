"""The notation, its combinators, and the registry of algorithms."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicoll.algorithms.registry import algorithm, algorithms, aliases, find, parse
from mpicoll.errors import ArgumentError, Unsupported
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.schedule import (
    Temp,
    around,
    copy,
    fold,
    folded,
    lenders,
    on,
    recv,
    reduce,
    reverse,
    rounds,
    send,
    side_of,
    then,
    together,
)

CATALOGUE = [each for name in COLLECTIVES for each in algorithms(name)]
ALIASES = [(name, alias, target) for name in COLLECTIVES for alias, target in aliases(name).items()]


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
    merged = list(together([send(1, 0), send(1, 1)], [recv(2, 5)]))
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
    "each",
    [each for name in ("broadcast", "scatter", "allgather") for each in algorithms(name)],
    ids=str,
)
def test_a_distribution_reversed_twice_is_itself(each) -> None:
    schedule = each.rounds(1, 4)
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


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("ring", "ring", {}),
        ("knomial(radix=8)", "knomial", {"radix": 8}),
        ("reduce+broadcast(over=tree)", "reduce+broadcast", {"over": "tree"}),
        (
            "reduce+broadcast(over=chain(segments=4))",
            "reduce+broadcast",
            {"over": "chain(segments=4)"},
        ),
        ("two_level(across='ring')", "two_level", {"across": "ring"}),
    ],
)
def test_parse(text: str, name: str, parameters: dict) -> None:
    assert parse(text) == (name, parameters)


@pytest.mark.parametrize("text", ["chain(", "chain(4)", "chain(segments=)", "chain)(x=1)"])
def test_malformed_names_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError):
        find("broadcast", text)


@pytest.mark.parametrize("each", CATALOGUE, ids=lambda a: f"{a.collective.name}-{a}")
def test_every_algorithm_is_found_by_its_own_text(each) -> None:
    assert find(each.collective.name, str(each)) == each
    assert each.summary.endswith(".")


@pytest.mark.parametrize(("name", "alias", "target"), ALIASES)
def test_every_alias_leads_to_an_algorithm(name: str, alias: str, target: str) -> None:
    assert find(name, alias) == find(name, target)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("knomail", "did you mean 'knomial'"),
        ("knomial(radix=1)", "at least 2"),
        ("knomial(radix=two)", "must be a whole number"),
        ("knomial(radix=2.5)", "must be a whole number"),
        ("knomial(radix=2,radix=3)", "each key once"),
        ("knomial(radix=2)(radix=3)", "not of the form"),
        ("knomial(radix=2).x(radix=3)", "not of the form"),
        ("knomial(**{'radix': 3})", "not of the form"),
        ("knomial(fanout=2)", "it takes radix"),
        ("chain(segments=0)", "at least 1"),
    ],
)
def test_wrong_parameters_say_what_would_do(text: str, reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        find("broadcast", text)


@pytest.mark.parametrize("over", ["nonsense", "scatter_ring", "rabenseifner"])
def test_reduce_and_broadcast_take_what_both_have(over: str) -> None:
    with pytest.raises(ArgumentError, match=over):
        find("allreduce", f"reduce+broadcast(over={over})").blocks(4)


@pytest.mark.parametrize(
    ("of", "text", "said"),
    [
        ("broadcast", "two_level(across='chain(segments=32)')", ""),
        ("allgather", "lanes(across='pipelined_circulant(segments=9)')", ""),
        ("allreduce", "two_level(local=rabenseifner,back=chain)", ""),
        ("allreduce", "two_level(local=rabenseifner)", "name one by back="),
        ("allgather", "lanes(across='bruck(radix=2)')", ""),
        ("allreduce", "two_level(across='hello')", "unknown allreduce algorithm 'hello'"),
    ],
)
def test_inner_algorithms_that_cannot_be_are_refused(of: str, text: str, said: str) -> None:
    algorithm = find(of, text)
    if not said:
        assert algorithm.rounds(0, 4, nodes=((0, 1), (2, 3)))
        return
    with pytest.raises(ArgumentError, match=said):
        algorithm.rounds(0, 4, nodes=((0, 1), (2, 3)))


def test_lanes_refuse_uneven_nodes() -> None:
    with pytest.raises(Unsupported, match="as many ranks on every node, not 1, 3"):
        find("allreduce", "lanes").rounds(0, 4, nodes=((0,), (1, 2, 3)))


@pytest.mark.parametrize(
    ("text", "size", "blocks"),
    [
        ("ring", 6, 6),
        ("recursive_doubling", 6, 1),
        ("rabenseifner", 6, 4),
        ("tree", 6, 1),
        ("pipeline", 6, 8),
        ("reduce+broadcast(over=chain(segments=3))", 6, 3),
    ],
)
def test_vectors_are_cut_as_the_algorithm_says(text: str, size: int, blocks: int) -> None:
    assert find("allreduce", text).blocks(size) == blocks


@pytest.mark.parametrize(
    ("of", "name", "size"),
    [
        ("allgather", "recursive_doubling", 6),
        ("allgather", "neighbor_exchange", 5),
        ("reduce_scatter", "neighbor_exchange", 7),
        ("broadcast", "scatter_recursive_doubling", 12),
    ],
)
def test_sizes_that_cannot_be_served_are_refused(of: str, name: str, size: int) -> None:
    with pytest.raises(Unsupported, match=f"{name} needs .*, not {size}"):
        find(of, name).rounds(0, size)


def test_a_new_algorithm_is_one_decorated_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpicoll.algorithms import registry

    shelf = dict(registry._REGISTRY["broadcast"])
    monkeypatch.setitem(registry._REGISTRY, "broadcast", shelf)

    @algorithm("broadcast", blocks=lambda size, parts: parts * size)
    def mine(rank: int, size: int, root: int, parts: int = 2):
        yield send(1, root)

    assert find("broadcast", "mine(parts=3)").blocks(4) == 12
    assert find("broadcast", "mine").rounds(0, 2, root=1) == [(send(1, 1),)]
