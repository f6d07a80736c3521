"""Figures of single algorithms: those of the papers, and what their parameters do."""

from __future__ import annotations

from math import log2

import pytest

from mpicoll.algorithms.registry import find
from mpicoll.notation.schedule import Send
from mpicoll.simulator import prove


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("recursive_doubling", (8, 7, 7)),
        ("cyclic", (7, 7, 10)),
        ("rabenseifner", (15, 3.47, 1.48)),
        ("binary_blocks", (26, 2.0, 1.0)),
        ("circulant", (14, 1.98, 0.99)),
        ("swing", (14, 1.98, 0.99)),
    ],
)
def test_allreduce_of_a_hundred_ranks(name: str, figures: tuple[float, ...]) -> None:
    """The figures that the catalogue states, to its precision.

    It has 13 m of folds for the cyclic one, which folds into its second value to the end; ours
    drops that value when no later round needs it.
    """
    trace = prove(find("allreduce", name), 100)
    assert (trace.rounds, round(trace.sent, 2), round(trace.reduced, 2)) == figures
    assert trace.ports == 1


@pytest.mark.parametrize(
    ("of", "name", "size", "figures"),
    [
        ("allreduce", "rabenseifner", 64, (12, 1.96875, 0.984375)),
        ("allreduce", "circulant", 64, (12, 1.96875, 0.984375)),
        ("allreduce", "swing", 64, (12, 1.96875, 0.984375)),
        ("reduce", "rabenseifner", 8, (6, 1.375, 0.875)),
        ("gather", "bine", 8, (3, 0.5, 0)),
        ("gather", "size_aware", 8, (3, 0.5, 0)),
        ("alltoall", "circulant", 64, (6, 3, 0)),
        ("alltoall", "circulant", 33, (6, 73 / 33, 0)),
        ("alltoall", "swing", 64, (6, 3, 0)),
        ("alltoall", "swing", 12, (4, 20 / 12, 0)),
        ("alltoall", "tuna", 64, (9, 144 / 64, 0)),
        ("alltoall", "grid", 64, (14, 112 / 64, 0)),
        ("alltoall", "grid", 12, (5, 17 / 12, 0)),
        ("alltoall", "grid", 13, (12, 12 / 13, 0)),
        ("exscan", "one_two_three", 33, (6, 6, 6)),
        ("exscan", "one_two_three", 64, (7, 7, 7)),
        ("exscan", "recursive_doubling", 64, (6, 6, 11)),
        ("exscan", "binary_tree", 64, (20, 3, 4)),
        ("exscan", "two_tree", 64, (16, 2, 2)),
        ("scan", "two_tree", 33, (16, 2, 2)),
    ],
)
def test_figures_of_the_catalogue(of: str, name: str, size: int, figures) -> None:
    """Of those without a closed form, and of some at sizes to which these are not held."""
    trace = prove(find(of, name), size)
    assert (trace.rounds, trace.sent, trace.reduced) == figures


# -- what parameters do --------------------------------------------------------------------

SOME = (2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 24, 25, 26, 27, 28, 31, 32, 33, 40)
"""Sizes at which one more round begins for a radix of 2, 3, 5 or 8, and their neighbours."""
BY_RADIX = [
    ("barrier", "dissemination"), ("broadcast", "knomial"), ("reduce", "knomial"),
    ("gather", "knomial"), ("scatter", "knomial"), ("allgather", "bruck"),
    ("reduce_scatter", "bruck"), ("alltoall", "bruck"),
]  # fmt: skip
BY_PORTS = [("allgather", "circulant"), ("reduce_scatter", "circulant")]


def fewest(size: int, radix: int) -> int:
    """Return ceil(log_radix size)."""
    return 0 if size <= 1 else 1 + fewest(-(-size // radix), radix)


@pytest.mark.exhaustive
@pytest.mark.parametrize("radix", [2, 3, 5, 8])
@pytest.mark.parametrize(("of", "name"), BY_RADIX + BY_PORTS)
def test_a_radix_or_ports_take_the_fewest_rounds(of: str, name: str, radix: int) -> None:
    parameter = f"ports={radix - 1}" if (of, name) in BY_PORTS else f"radix={radix}"
    proved = {size: prove(find(of, f"{name}({parameter})"), size) for size in SOME}
    assert {size: trace.rounds for size, trace in proved.items()} == {
        size: fewest(size, radix) for size in SOME
    }
    assert max(trace.ports for trace in proved.values()) == radix - 1


@pytest.mark.parametrize("aggregation", [1, 2, 8, 64])
def test_aggregation_bounds_rows_and_rounds(aggregation: int) -> None:
    for size in SOME:
        trace = prove(find("allgather", f"pat(aggregation={aggregation})"), size)
        whole = 1 << (size - 1).bit_length()
        largest = min(aggregation, whole)
        rounds = size - 1 if largest == 1 else largest.bit_length() - 1 + whole // largest - 1
        assert trace.rounds == rounds
        assert max(len(message.blocks) for message in trace.log) <= aggregation


@pytest.mark.exhaustive
@pytest.mark.parametrize("segments", [1, 2, 8, 32])
@pytest.mark.parametrize(
    ("of", "name", "rounds_per_segment", "levels"),
    [
        ("broadcast", "two_tree", 1, 2),
        ("reduce", "two_tree", 1, 2),
        ("reduce", "in_order_binary", 1, 1),
        ("allreduce", "double_tree", 2, 4),
        ("allreduce", "dual_root", 3, 4),
    ],
)
def test_trees_are_pipelined(
    of: str, name: str, rounds_per_segment: int, levels: int, segments: int
) -> None:
    algorithm = find(of, f"{name}(segments={segments})")
    for size in SOME:
        assert prove(algorithm, size).rounds <= rounds_per_segment * segments + levels * log2(size)


@pytest.mark.parametrize("latency", [1, 2, 3, 5])
def test_a_postal_tree_is_as_quick_as_can_be(latency: int) -> None:
    """A rank sends every round and hears `latency` rounds later (Bar-Noy and Kipnis 1994)."""
    for size in SOME:
        informed = [1] * latency
        while informed[-1] < size:
            informed.append(informed[-1] + informed[-latency])
        arrival, order = {0: 0}, [0]
        for rank in order:
            sent = find("broadcast", f"fibonacci(latency={latency})").rounds(rank, size)
            children = [op.peer for (op,) in sent if isinstance(op, Send)]
            arrival |= {child: arrival[rank] + i + latency for i, child in enumerate(children)}
            order += children
        assert max(arrival.values()) == len(informed) - 1


@pytest.mark.parametrize(("group", "size"), [(3, 9), (4, 12), (5, 25)])
def test_few_messages_of_a_k_ring_leave_their_group(group: int, size: int) -> None:
    log = prove(find("allgather", f"k_ring(group={group})"), size).log
    leaving = [
        message for message in log if message.source // group != message.destination // group
    ]
    assert len(leaving) == size * (size // group - 1)
