"""The registry: a name with parameters gives an algorithm or a documented error, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from catalogue import CATALOGUE, label
from damage import CODE, PLANTED
from hypothesis import example, given
from hypothesis import strategies as some

from mpicoll.algorithms import registry
from mpicoll.algorithms.registry import MAX_BLOCKS, algorithm, aliases, find, parse
from mpicoll.calls.arguments import check_dtype
from mpicoll.cli.options import transport_names
from mpicoll.errors import ArgumentError, CollectiveError, UnknownName, Unsupported
from mpicoll.notation.contract import COLLECTIVES, collective
from mpicoll.notation.elements import reduce_op
from mpicoll.notation.schedule import send
from mpicoll.notation.sweep import DEEPEST, LONGEST
from mpicoll.selection.forced import forced
from mpicoll.text.sizes import parse_sizes

REPRS = {
    "<Algorithm broadcast knomial(radix=8)>": find("broadcast", "knomial(radix=8)"),
    "<Algorithm allreduce ring>": find("allreduce", "ring"),
    "<Collective allreduce>": collective("allreduce"),
    "<ReduceOp sum>": reduce_op("sum"),
    "<ReduceOp <lambda>>": reduce_op(lambda lhs, rhs: lhs),
    "Constraint(text='any number of ranks')": find("allreduce", "ring").needs,
}


@pytest.mark.parametrize("text", REPRS)
def test_a_repr_names_and_has_no_address(text: str) -> None:
    assert repr(REPRS[text]) == text


ALIASES = [(name, alias, target) for name in COLLECTIVES for alias, target in aliases(name).items()]
PARAMETERS = sorted({key for entry in CATALOGUE for key in entry.parameters})


def nested(depth: int) -> str:
    return "two_level(across=" * depth + "ring" + ")" * depth


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (nested(200), f"longer than {LONGEST} characters"),
        (nested(DEEPEST + 1), f"more than {DEEPEST} levels of brackets"),
        (f"chain(segments={'-' * 5000}1)", f"longer than {LONGEST}"),
        ("chain(segments={[]: 1})", "not of the form"),
        ("chain(segments=[1])", "must be a whole number"),
        ("chain(segments=1000000000)", f"at most {MAX_BLOCKS}, not 1000000000"),
        (f"chain(segments={'9' * 900})", f"at most {MAX_BLOCKS}"),
        ("chain(segments=²)", "must be a whole number, not '²'"),
        ("chain(segments=1 2)", "not of the form"),
        ("chain(segments=nan)", "must be a whole number"),
        ("chain(segments=1e9)", "must be a whole number"),
        ("chain(segments=True)", "must be a whole number"),
        ("chain(segments=1)(radix=2)", "not of the form"),
        ("chain(segments=1,segments=2)", "each key once"),
        ("chain(**{1: 2})", "not of the form"),
        ("two_level(local=3)", "must be a name, not 3"),
        ("two_level(local=)", "not of the form"),
        ("chain(", "not of the form"),
        ("chain(4)", "not of the form"),
        ("chain)(x=1)", "not of the form"),
        ("knomial(radix=2).x(radix=3)", "not of the form"),
        ("knomail", "did you mean 'knomial'"),
        ("adaptive", "'adaptive': python -m mpicoll.tune now measures which algorithm auto runs;"),
        ("knomial(radix=1)", "at least 2"),
        ("knomial(fanout=2)", "it takes radix"),
        ("chain(segments=0)", "at least 1"),
        ("a" * 5_000_000, f"longer than {LONGEST}"),
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_name_is_refused_briefly(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        find("broadcast", text)
    assert len(str(caught.value)) < 400


READERS: tuple[Callable[[str], object], ...] = (
    partial(find, "allreduce"), collective, reduce_op, check_dtype, transport_names, parse_sizes,
    lambda text: forced("FORCED", {"FORCED": f"allreduce:{text}"}),
)  # fmt: skip


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("text", CODE)
def test_no_name_is_evaluated(text: str, read: Callable[[str], object]) -> None:
    """Neither are those in files, which `mutations.py` holds to it."""
    with pytest.raises(CollectiveError):
        read(text)
    assert not PLANTED.exists()


def test_an_unknown_name_is_told_briefly() -> None:
    with pytest.raises(UnknownName, match=r"\.\.\. \(3000002 characters\): known are"):
        find("a" * 3_000_000, "ring")


def test_brackets_as_deep_as_may_be_are_served() -> None:
    assert parse(nested(DEEPEST))[1] == {"across": nested(DEEPEST - 1)}
    assert find("allreduce", nested(DEEPEST)).rounds(0, 4)


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


@pytest.mark.parametrize("entry", CATALOGUE, ids=label)
def test_every_algorithm_is_found_by_its_own_text(entry) -> None:
    assert find(entry.collective.name, str(entry)) == entry


@pytest.mark.parametrize(("name", "alias", "target"), ALIASES)
def test_every_alias_leads_to_an_algorithm(name: str, alias: str, target: str) -> None:
    assert find(name, alias) == find(name, target)


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
    shelf = dict(registry._REGISTRY["broadcast"])
    monkeypatch.setitem(registry._REGISTRY, "broadcast", shelf)

    @algorithm("broadcast", blocks=lambda size, parts: parts * size)
    def mine(rank: int, size: int, root: int, parts: int = 2):
        yield send(1, root)

    assert find("broadcast", "mine(parts=3)").blocks(4) == 12
    assert find("broadcast", "mine").rounds(0, 2, root=1) == [(send(1, 1),)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("algorithm", [entry for entry in CATALOGUE if entry.parameters], ids=str)
def test_the_largest_parameters_end(algorithm: object) -> None:
    """Each is served, or refused for the number of blocks."""
    name, of = algorithm.name, algorithm.collective.name  # type: ignore[attr-defined]
    for key, default in algorithm.parameters.items():  # type: ignore[attr-defined]
        if isinstance(default, int):
            largest = find(of, f"{name}({key}={MAX_BLOCKS})")
            try:
                assert largest.rounds(1, 4)
            except CollectiveError:
                continue


@given(some.text() | some.text("chain(segments=1,)+@²-{[ \n"))
@example("two_level(local=a)(b=c)")
@example("(" * 900)
@example("\ud800(\ud800=\ud800)")
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        name, parameters = parse(text)
    except ArgumentError:
        return
    assert isinstance(name, str) and all(type(value) in (int, str) for value in parameters.values())


NAMES = some.recursive(
    some.sampled_from([entry.name for entry in CATALOGUE]) | some.integers().map(str)
    | some.sampled_from(["nan", "1e400", "²", "", "0x10", "None"]),
    lambda inner: some.builds(
        lambda name, pairs: f"{name}({','.join(f'{key}={value}' for key, value in pairs.items())})",
        some.sampled_from([entry.name for entry in CATALOGUE if entry.parameters]),
        some.dictionaries(some.sampled_from(PARAMETERS), inner, max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


@given(some.sampled_from(sorted(COLLECTIVES)), NAMES, some.integers(1, 6), some.data())
def test_any_algorithm_has_a_schedule_or_is_refused(
    of: str, text: str, size: int, data: some.DataObject
) -> None:
    rank = data.draw(some.integers(0, size - 1))
    try:
        rounds = find(of, text).rounds(rank, size)
    except CollectiveError:
        return
    assert all(isinstance(step, tuple) for step in rounds)
