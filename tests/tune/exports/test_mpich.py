"""Tables of MPICH: its tree, that of its device, and a launch that takes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launcher import ranks
from library_studies import BASE, LIBRARY_CHOICE, make_choices

from mpicoll.errors import ArgumentError
from mpicoll.study.libraries import force_algorithm
from mpicoll.tune.exports import mpich
from mpicoll.tune.exports.choices import Choice, Range


@pytest.mark.parametrize("tree", ["[1]", "3", "[" * 100_000, "{}"])
def test_a_library_with_another_tree_is_refused(tree: str, tmp_path: Path) -> None:
    path = tmp_path / "libmpi.so"
    text = '{"collective=allreduce": TREE, "algorithm=MPIR_Allreduce_intra_x": 1}'
    path.write_text(text.replace("TREE", tree))
    with pytest.raises(ArgumentError, match="has no"):
        mpich.tree(make_choices("ring"), mpich.built_in(path))


def test_mpich_keeps_its_tree_for_other_ranks_sizes_and_operators() -> None:
    tree = json.loads(mpich.tree(make_choices("ring"), BASE))
    default = BASE["collective=allreduce"]["comm_type=intra"]
    sizes = tree["collective=allreduce"]["comm_type=intra"]
    assert [*sizes] == ["comm_size<=3", "comm_size<=4", "comm_size=any"]
    assert sizes["comm_size<=3"] == sizes["comm_size=any"] == default
    assert sizes["comm_size<=4"] == {
        "is_commutative=yes": {
            "avg_msg_size<=1000": default,
            "avg_msg_size=any": {"algorithm=MPIR_Allreduce_intra_ring": {}},
        },
        "is_commutative=no": default,
    }
    assert tree["collective=alltoall"] == BASE["collective=alltoall"]


DEVICE = {"collective=allreduce": {"comm_type=intra": {"composition=X": {}}}, "collective=scan": {}}
FLAGS = {"collective=allreduce": {"comm_type=intra": {"is_multi_threaded=no": {"algorithm=X": {}}}}}
LAYERS = {mpich.CH4: DEVICE, mpich.POSIX: FLAGS}


def branch(text: str, ranks: int) -> dict[str, object]:
    """Return what stands for allreduces of the larger size on so many ranks."""
    sizes = json.loads(text)["collective=allreduce"]["comm_type=intra"]
    assert [*sizes] == [f"comm_size<={ranks - 1}", f"comm_size<={ranks}", "comm_size=any"]
    ranges: dict[str, dict[str, object]] = sizes[f"comm_size<={ranks}"]["is_commutative=yes"]
    return ranges["avg_msg_size=any"]


def test_the_device_of_mpich_has_a_gap_where_an_algorithm_was_chosen() -> None:
    """There MPIR decides for the same ranks, by its own tree."""
    (text,) = mpich.layers(make_choices("ring"), LAYERS).values()
    default = DEVICE["collective=allreduce"]["comm_type=intra"]
    assert branch(text, 4) == {"comm_type=inter": default}
    assert json.loads(text)["collective=allreduce"]["comm_type=intra"]["comm_size=any"] == default
    assert json.loads(text)["collective=scan"] == {}


def test_mpich_takes_a_composition_from_the_tree_of_its_device() -> None:
    (text,) = mpich.layers(make_choices("composition_beta"), LAYERS).values()
    assert branch(text, 4) == {"composition=MPIDI_Allreduce_intra_composition_beta": {}}
    default = BASE["collective=allreduce"]["comm_type=intra"]
    assert branch(mpich.tree(make_choices("composition_beta"), BASE), 4) == default


@pytest.mark.parametrize(
    ("algorithm", "leaf"),
    [
        ("mpir", {"algorithm=MPIR_Allreduce_impl": {}}),
        ("release_gather", {"is_multi_threaded=no": {
            "algorithm=MPIDI_POSIX_mpi_allreduce_release_gather": {}}}),
    ],
)  # fmt: skip
def test_mpich_chooses_within_a_node_by_its_ranks(algorithm: str, leaf: dict[str, object]) -> None:
    (choice,) = make_choices(algorithm)
    texts = mpich.layers([choice._replace(nodes=2)], LAYERS)
    assert branch(texts[mpich.POSIX], 2) == leaf
    assert branch(texts[mpich.CH4], 4) == DEVICE["collective=allreduce"]["comm_type=intra"]


def test_mpich_without_a_tree_of_its_device_leaves_the_device_out() -> None:
    variables = mpich.variables(make_choices("ring"), {mpich.MPIR: Path("a")})
    assert variables["MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE"] == "0"
    variables = mpich.variables(make_choices("ring"), {mpich.MPIR: Path("a"), mpich.CH4: Path("b")})
    assert sorted(variables) == [
        "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE",
        "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE",
    ]


def test_mpich_counts_the_bytes_of_a_row_in_alltoall() -> None:
    tree = json.loads(mpich.tree(make_choices("pairwise", "alltoall"), BASE))
    assert "avg_msg_size<=250" in str(tree)


def test_mpich_needs_enough_elements_for_rabenseifner() -> None:
    tree = json.loads(mpich.tree(make_choices("reduce_scatter_allgather"), BASE))
    assert "count<pow2" in str(tree)


def test_a_file_without_a_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "libmpi.so").write_bytes(b'\x7fELF{"collective=bcast":{}}\0')
    with pytest.raises(ArgumentError, match="has no tree of algorithms"):
        mpich.built_in(tmp_path / "libmpi.so")


@pytest.mark.launches
def test_mpich_takes_what_the_file_says(tmp_path: Path) -> None:
    """What rounds otherwise in one range of sizes on 6 ranks, and its own choice beside it.

    In a single-threaded program that is flags in shared memory.
    """
    from mpi4py import MPI

    from mpicoll.tune.exports.command import _library

    if MPI.get_vendor()[0] != "MPICH":
        pytest.skip("not MPICH")
    base, bases = mpich.built_in(_library()), mpich.built_in_layers(_library())

    def written(name: str, *parts: Range) -> dict[str, str]:
        table = [Choice("allreduce", 6, 1, [LIBRARY_CHOICE, *parts, Range(None, None, {})])]
        texts = {mpich.MPIR: mpich.tree(table, base), **mpich.layers(table, bases)}
        paths = {end: tmp_path / f"{name}{end or '.json'}" for end in texts}
        for end, text in texts.items():
            paths[end].write_text(text)
        return mpich.variables(table, paths)

    ring = written("ring", Range(32768, "ring", {}))
    # Flags in shared memory are otherwise set up in the fifth call.
    single = {"MPI4PY_RC_THREAD_LEVEL": "single", "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": "0"}
    # Two nodes for MPICH, between which it would compose by itself.
    nodes = {"MPIR_CVAR_NUM_CLIQUES": "2"}
    flat = written("flat", Range(32768, "composition_beta", {}))
    program = "tests/support/fingerprints.py", "128", "4096", "65536"
    tuned, flagged, forced_run, composed, asked_flat = (
        json.loads(ranks(6, *program, environment=environment).stdout.splitlines()[-1])
        for environment in (
            ring, ring | single, forced_("ring"), flat | nodes, forced_("composition_beta") | nodes
        )
    )  # fmt: skip
    assert tuned["allreduce 4096"] == flagged["allreduce 4096"] == forced_run["allreduce 4096"]
    assert composed["allreduce 4096"] == asked_flat["allreduce 4096"]
    for name in ("allreduce 128", "allreduce 65536"):
        assert len({result[name] for result in (tuned, flagged, forced_run)}) == 3
        assert composed[name] != asked_flat[name]


def forced_(algorithm: str) -> dict[str, str]:
    return force_algorithm("MPICH", "allreduce", algorithm).variables
