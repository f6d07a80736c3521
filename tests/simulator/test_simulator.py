"""Every algorithm proved for every size, and the figures that the simulator derives."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext, suppress
from itertools import product

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll.algorithms.registry import Algorithm, algorithms, find
from mpicoll.errors import ArgumentError, Deadlock, Unsupported, WrongContents
from mpicoll.notation.contract import COLLECTIVES, collective
from mpicoll.notation.schedule import Temp, copy, fold, recv, reduce, send
from mpicoll.simulator import contiguous, is_ordered, prove, simulate
from mpicoll.simulator.__main__ import main

CATALOGUE = [each for name in COLLECTIVES for each in algorithms(name)]
ROOTED = [each for each in CATALOGUE if each.collective.rooted]
VARIANTS = [
    *(("barrier", f"dissemination(radix={k})") for k in (3, 4, 5)),
    *(("broadcast", f"knomial(radix={k})") for k in (2, 3, 5, 8)),
    *(("broadcast", f"chain(segments={n})") for n in (1, 2, 13)),
    *(("reduce", f"knomial(radix={k})") for k in (2, 3, 5, 8)),
    *(("reduce", f"chain(segments={n})") for n in (1, 2, 13)),
    *(("reduce", f"in_order_binary(segments={n})") for n in (2, 5)),
    *(("allreduce", f"reduce+broadcast(over={t})") for t in ("pipeline", "naive", "two_level")),
    *(("allreduce", f"reduce+broadcast(over={t})") for t in ("knomial(radix=3)",)),
    *(("allreduce", f"two_level(across={t})") for t in ("naive", "one_shot", "ring_unchunked")),
    *(
        (of, f"lane_ring(segments={n})")
        for of in ("allreduce", "allgather", "reduce_scatter")
        for n in (1, 3)
    ),
    *(
        (of, f"{name}(radix={k})")
        for of in ("allgather", "reduce_scatter")
        for name in ("bruck", "recexch", "bcube")
        for k in (2, 3, 5)
    ),
    *(
        (of, f"circulant(ports={k})")
        for of in ("allgather", "reduce_scatter", "allreduce")
        for k in (2, 3, 4)
    ),
    *(
        (of, f"pat(aggregation={k})")
        for of in ("allgather", "reduce_scatter")
        for k in (1, 2, 8, 64)
    ),
    *(("barrier", f"recexch(radix={k})") for k in (2, 3, 8)),
    *(("allreduce", f"{name}(radix={k})") for name in ("recexch", "bcube") for k in (2, 3, 8)),
    *(("allreduce", f"segmented_ring(segments={n})") for n in (1, 3)),
    *(
        ("allreduce", f"{name}(segments={n})")
        for name in ("double_tree", "dual_root")
        for n in (1, 2, 13)
    ),
    *(
        (of, f"{name}(segments={n})")
        for of in ("broadcast", "reduce")
        for name in ("kary", "chains", "split_binary", "pipelined_circulant", "two_tree")
        for n in (1, 2, 13)
    ),
    *((of, f"kary(radix={k})") for of in ("broadcast", "reduce") for k in (3, 9)),
    *((of, f"chains(count={k})") for of in ("broadcast", "reduce") for k in (1, 2, 40)),
    *((of, f"fibonacci(latency={k})") for of in ("broadcast", "reduce") for k in (1, 3, 9)),
    *(
        (of, f"pipelined_circulant(segments={n})")
        for of in ("allgather", "reduce_scatter")
        for n in (1, 2, 9)
    ),
    *(("alltoall", f"bruck(radix={k})") for k in (3, 4, 5)),
    *(("alltoall", f"tuna(radix={k})") for k in (2, 3, 5, 64)),
    *((of, f"knomial(radix={k})") for of in ("gather", "scatter") for k in (2, 3, 8)),
    *(("scan", f"chain(segments={n})") for n in (1, 3)),
    *(("exscan", f"chain(segments={n})") for n in (1, 3)),
    *(
        (of, f"{tree}(segments={n})")
        for of in ("scan", "exscan")
        for tree in ("binary_tree", "two_tree")
        for n in (1, 2, 13)
    ),
]
UNORDERED = {
    "reduce": (
        "ring", "kary", "split_binary", "pipelined_circulant", "two_tree", "bine", "circulant",
    ),
    "allreduce": (
        "ring", "ring_unchunked", "segmented_ring", "lane_ring", "cyclic", "trivance", "circulant",
        "swing", "swing_latency", "double_tree",
    ),
    "reduce_scatter": (
        "ring", "pairwise", "recursive_halving", "bruck", "neighbor_exchange", "lane_ring",
        "circulant", "pipelined_circulant", "swing", "recexch", "sparbit", "pat", "k_ring",
    ),
}  # fmt: skip
ORDERED_FOR_EVERY_ROOT = {"naive", "in_order_binary", "rabenseifner"}


def label(value: object) -> str:
    return f"{value.collective.name}-{value}" if hasattr(value, "collective") else str(value)


def serves(each, size: int) -> bool:
    """Whether an algorithm serves a size; if not, it must say so."""
    if each.needs.holds(size):
        return True
    with pytest.raises(Unsupported):
        prove(each, size)
    return False


# -- proof ------------------------------------------------------------------------------


@pytest.mark.parametrize(("of", "text"), VARIANTS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 9, 16, 17, 27])
def test_every_parameter_is_right(of: str, text: str, size: int) -> None:
    prove(find(of, text), size)


@pytest.mark.parametrize("of", ["allgather", "reduce_scatter"])
@pytest.mark.parametrize(("size", "group"), [(6, 3), (12, 4), (12, 12), (7, 1), (25, 5)])
def test_k_ring_serves_multiples_of_its_group(of: str, size: int, group: int) -> None:
    assert prove(find(of, f"k_ring(group={group})"), size).rounds == size - 1
    with pytest.raises(Unsupported, match=f"a multiple of group={group + 1} ranks, not {size}"):
        prove(find(of, f"k_ring(group={group + 1})"), size)


def test_pat_needs_an_aggregation_that_is_a_power_of_two() -> None:
    with pytest.raises(ArgumentError, match="a power of two, not 3: 2 or 4 would do"):
        prove(find("allgather", "pat(aggregation=3)"), 8)


@pytest.mark.parametrize("size", range(2, 10))
@pytest.mark.parametrize("each", ROOTED, ids=label)
def test_every_root_is_right(each, size: int) -> None:
    if serves(each, size):
        proved = [prove(each, size, root) for root in range(size)]
        if each.collective.reduces and each.name in ORDERED_FOR_EVERY_ROOT:
            assert all(trace.ordered for trace in proved)


@pytest.mark.parametrize("each", CATALOGUE, ids=label)
def test_one_rank_sends_nothing(each) -> None:
    assert each.rounds(0, 1) == []


@pytest.mark.parametrize(
    "nodes",
    [
        ((0, 1, 2, 3, 4, 5, 6),),
        ((0,), (1,), (2,), (3,), (4,), (5,), (6,)),
        ((0, 1, 2), (3, 4), (5, 6)),
        ((0, 2, 4, 6), (1, 3, 5)),
        ((6, 1), (5, 0, 2), (3, 4)),
    ],
    ids=str,
)
@pytest.mark.parametrize("root", [0, 3, 6])
@pytest.mark.parametrize(
    "of", ["barrier", "broadcast", "reduce", "allreduce", "gather", "scatter", "alltoall"]
)
def test_two_level_is_right_on_every_layout(of: str, root: int, nodes) -> None:
    prove(find(of, "two_level"), 7, root if collective(of).rooted else 0, nodes)


WITHIN = {
    "two_level": {
        "barrier": {"local": "broadcast", "across": "barrier"},
        "broadcast": {"local": "broadcast", "across": "broadcast"},
        "reduce": {"local": "reduce", "across": "reduce"},
        "allreduce": {"local": "reduce", "across": "allreduce", "back": "broadcast"},
        "allgather": {"local": "gather", "across": "allgather", "back": "broadcast"},
        "alltoall": {"local": "gather", "across": "alltoall", "back": "scatter"},
        "gather": {"local": "gather", "across": "gather"},
        "scatter": {"local": "scatter", "across": "scatter"},
    },
    "lanes": {
        "allreduce": {"local": "reduce_scatter", "across": "allreduce", "back": "allgather"},
        "allgather": {"local": "allgather", "across": "allgather"},
        "reduce_scatter": {"local": "reduce_scatter", "across": "reduce_scatter"},
        "alltoall": {"local": "alltoall", "across": "alltoall"},
    },
    "reduce+broadcast": {"allreduce": {"over": "reduce", "back": "broadcast"}},
}
"""The collectives that parameters of composed algorithms name."""


def level(form: str, of: str, parameter: str, inner: Algorithm) -> str:
    """Name a composed algorithm with another one inside; the way back has its default's name."""
    back = ""
    if parameter != "back" and "back" in WITHIN[form][of]:
        back = ",back=" + ("direct" if form == "lanes" else "binomial")
    return f"{form}({parameter}={str(inner)!r}{back})"


LEVELS = [
    (of, level(form, of, parameter, inner), inner)
    for form, forms in WITHIN.items()
    for of, parameters in forms.items()
    for parameter, within in parameters.items()
    for inner in algorithms(within)
]


@pytest.mark.parametrize(
    "nodes",
    [
        ((0, 1), (2, 3), (4, 5)),
        ((0, 3, 5), (1, 2, 4)),
        ((0, 1, 2, 3, 4, 5),),
        ((0,), (1,), (2,), (3,), (4,), (5,)),
    ],
    ids=str,
)
@pytest.mark.parametrize(("of", "text", "inner"), LEVELS, ids=label)
def test_any_algorithm_runs_at_either_level(of: str, text: str, inner, nodes) -> None:
    """Only numbers of ranks that it does not serve are refused."""
    groups = {6} if text.startswith("reduce+broadcast") else {len(nodes), *map(len, nodes)}
    with nullcontext() if all(map(inner.needs.holds, groups)) else suppress(Unsupported):
        prove(find(of, text), 6, 0, nodes)


@pytest.mark.parametrize(("nodes", "ordered"), [(2, True), (3, True), (7, True)])
def test_two_level_keeps_order_where_nodes_are_neighbours(nodes: int, ordered: bool) -> None:
    assert prove(find("allreduce", "two_level"), 7, 0, contiguous(7, nodes)).ordered is ordered


def test_two_level_loses_order_where_ranks_are_dealt_round() -> None:
    assert not is_ordered(find("allreduce", "two_level"), 4, 0, ((0, 2), (1, 3)))


@given(data=st.data())
@settings(max_examples=200)
def test_uneven_and_empty_blocks_are_right(data: st.DataObject) -> None:
    each = data.draw(st.sampled_from(CATALOGUE))
    size = data.draw(st.integers(1, 12).filter(each.needs.holds))
    root = data.draw(st.integers(0, size - 1)) if each.collective.rooted else 0
    cut = range(each.blocks(size))
    names = list(product(cut, cut)) if each.collective.unit == "pairs" else list(cut)
    counts = st.lists(st.sampled_from([0, 0, 1, 2, 7]), min_size=len(names), max_size=len(names))
    prove(each, size, root, sizes=dict(zip(names, data.draw(counts), strict=True)))


@pytest.mark.parametrize("each", CATALOGUE, ids=label)
def test_nothing_but_empty_blocks_sends_nothing(each) -> None:
    size = next(size for size in (4, 3) if each.needs.holds(size))
    cut = range(each.blocks(size))
    empty = dict.fromkeys([*cut, *product(cut, cut)], 0)
    trace = prove(each, size, sizes=empty)
    assert trace.sent == 0
    assert trace.messages == 0 or each.collective.name == "barrier"


def test_uneven_volume_is_counted_in_elements() -> None:
    trace = prove(find("gather", "naive"), 3, sizes={0: 4, 1: 3, 2: 1})
    assert trace.sent == 3 / 8


# -- derived figures --------------------------------------------------------------------


@pytest.mark.parametrize("each", [a for a in CATALOGUE if a.collective.reduces], ids=label)
def test_rank_order_is_kept_by_those_that_the_catalogue_names(each) -> None:
    sizes = [size for size in range(2, 20) if each.needs.holds(size)]
    ordered = all(is_ordered(each, size, 0, None) for size in sizes)
    assert ordered is (each.name not in UNORDERED.get(each.collective.name, ()))


@pytest.mark.parametrize(
    ("of", "name", "ports"),
    [
        ("allreduce", "ring", 1),
        ("allreduce", "one_shot", 7),
        ("broadcast", "knomial(radix=4)", 3),
        ("alltoall", "bruck(radix=4)", 3),
        ("reduce", "in_order_binary", 2),
    ],
)
def test_ports(of: str, name: str, ports: int) -> None:
    assert prove(find(of, name), 8).ports == ports


def test_messages_are_logged_with_their_round() -> None:
    trace = prove(find("broadcast", "binomial"), 4)
    assert trace.messages == 3
    assert sorted(trace.log) == [(1, 0, 2, (0,)), (2, 0, 1, (0,)), (2, 2, 3, (0,))]


# -- wrong schedules --------------------------------------------------------------------


def run(of: str, *schedules, blocks: int = 1, sizes=None):
    return simulate(
        [list(schedule) for schedule in schedules], collective(of), len(schedules), 0, blocks, sizes
    )


def test_everyone_receiving_first_is_a_deadlock() -> None:
    with pytest.raises(Deadlock, match=r"rank 0 in round 0 waits for rank 1, which is in round 0"):
        run("allreduce", [(recv(1, 0),), (send(1, 0),)], [(recv(0, 0),), (send(0, 0),)])


def test_sending_first_would_need_a_buffer() -> None:
    with pytest.raises(Deadlock):
        run("barrier", [(send(1),), (recv(1),)], [(send(0),), (recv(0),)])


def test_a_message_that_nobody_receives_is_a_deadlock() -> None:
    with pytest.raises(Deadlock, match="waits for rank 1, which has finished"):
        run("broadcast", [(send(1, 0),), (send(1, 0),)], [(recv(0, 0),)])


SWAP = (send(1, 0), reduce(1, 0, side="right")), (send(0, 0), reduce(0, 0))


TURN = [[(send((rank + 1) % 3), recv((rank - 1) % 3))] for rank in range(3)]


@pytest.mark.parametrize(
    ("of", "schedules", "reason"),
    [
        ("allreduce", ([SWAP[0]], [(send(0, 0), recv(0, 0))]), "rank 1 ends with"),
        ("allreduce", ([SWAP[0]] * 2, [SWAP[1]] * 2), "twice"),
        ("allreduce", ([(send(1, 0, 0), SWAP[0][1])], [SWAP[1]]), "sends blocks 0, 0 where"),
        ("allreduce", ([(send(1, 5), SWAP[0][1])], [SWAP[1]]), "uses 5, not held"),
        ("allreduce", ([(send(0, 0),)], []), "no peer"),
        ("allreduce", ([(send(2, 0),)], []), "no peer"),
        ("allreduce", ([(recv(-1, 0),)], []), "no peer"),
        ("allreduce", ([(fold(Temp("a", 0), 0),)], []), "not held"),
        ("allreduce", ([(copy(0, Temp("a", 0)),)], []), "not held"),
        ("allreduce", ([(fold(0, 0),)], []), "twice"),
        ("broadcast", ([(send(1, 0), send(1, 0))], [(recv(0, 0), recv(0, 0))]), "receives 0 twice"),
        ("broadcast", ([], []), "rank 1 ends with nothing"),
        ("barrier", ([(send(1),)], [(recv(0),)]), r"rank 0 leaves without word from ranks \[1\]"),
        # What a rank hears in a round, it cannot pass on in the same one.
        ("barrier", TURN, r"rank 0 leaves without word from ranks \[1\]"),
    ],
)
def test_wrong_schedules_are_refused(of: str, schedules, reason: str) -> None:
    with pytest.raises(WrongContents, match=reason):
        run(of, *schedules)


def test_blocks_of_different_sizes_do_not_match() -> None:
    with pytest.raises(WrongContents, match="sends blocks 0 where"):
        run(
            "broadcast", [(send(1, 0),)], [(recv(0, 1),)], blocks=2, sizes={0: 1, 1: 2}
        )  # fmt: skip


def test_losing_rank_order_is_found_and_no_error() -> None:
    wrong_side = (send(0, 0), reduce(0, 0, side="right"))
    assert run("allreduce", [SWAP[0]], [SWAP[1]]).ordered
    assert not run("allreduce", [SWAP[0]], [wrong_side]).ordered


def test_unsynchronised_rounds_overlap() -> None:
    """A rank that waits for nobody runs ahead: the chain costs p-2+n rounds, not n(p-1)."""
    assert prove(find("broadcast", "chain(segments=20)"), 5).rounds == 23


def test_local_rounds_cost_nothing() -> None:
    local = (copy(Temp("a", 0), 0),)
    assert run("allreduce", [local, SWAP[0]], [SWAP[1]]).rounds == 1


@pytest.mark.parametrize(("size", "count"), [(3, 0), (3, 4)])
def test_nodes_are_between_one_and_all_ranks(size: int, count: int) -> None:
    with pytest.raises(ArgumentError):
        contiguous(size, count)


def test_proving_needs_no_library() -> None:
    code = (
        "import sys, mpicoll.simulator;"
        "print({'mpi4py', 'torch', 'cupy', 'rich', 'click'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# -- command line -----------------------------------------------------------------------

KEYS = [
    "collective", "algorithm", "serves", "size", "rounds", "sent", "reduced", "messages", "ports",
    "ordered",
]  # fmt: skip


def command(line: str):
    return CliRunner().invoke(main, line.split())


def test_json_lines_have_exactly_these_keys() -> None:
    result = command("--size 7 --format jsonl")
    records = [json.loads(line) for line in result.output.splitlines()]
    assert result.exit_code == 0
    assert [list(record) for record in records] == [KEYS] * len(CATALOGUE)


def test_json_lines_carry_the_figures() -> None:
    values = ["allreduce", "ring", "any number of ranks", 8, 14, 1.75, 0.875, 112, 1, False]
    assert json.loads(
        command("--size 8 --collective all_reduce --algorithm ring --format jsonl").output
    ) == dict(zip(KEYS, values, strict=True))


def test_the_table_names_every_algorithm_and_every_refusal() -> None:
    output = command("--size 7").output
    assert [str(each) for each in CATALOGUE if str(each) not in output] == []
    assert "refused: allgather algorithm neighbor_exchange needs an even number" in output


def test_one_table_for_each_size() -> None:
    output = command("--size 4,6:7 --collective allgather").output
    assert [f"{size} ranks;" in output for size in (4, 5, 6, 7)] == [True, False, True, True]
    assert output.count("refused: allgather algorithm swing needs an even number") == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--size 4 --collective nothing", "unknown collective"),
        ("--size 4 --collective allreduce --algorithm rign", "did you mean 'ring'"),
        ("--size 4 --algorithm ring", "needs --collective"),
        ("--size 4 --root 4", "root 4"),
        ("--size 4 --nodes 5", "5 nodes"),
        ("--size 0", "no sizes of one rank and more"),
        ("--size 4,x", "no list of sizes"),
        ("--size 9:4", "no sizes"),
    ],
)
def test_wrong_options_say_what_would_do(words: str, reason: str) -> None:
    result = command(words)
    assert result.exit_code != 0
    assert reason in result.output


def test_history_begins_with_what_each_rank_holds_at_first() -> None:
    history = prove(find("reduce", "binomial"), 2, history=True).history
    first = (0, 0), (1, 0)
    assert history[0] == [(0, {0: first[:1]}), (1, {0: first})]
    assert history[1] == [(0, {0: first[1:]}), (1, {0: first[1:]})]
