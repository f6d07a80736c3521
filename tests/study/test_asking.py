"""The output of libraries that says which algorithm they ran."""

from __future__ import annotations

from mpicoll.study.asking import read_answers
from mpicoll.study.libraries import force_algorithm


def test_what_the_library_says_is_heard_by_collective_and_size() -> None:
    forcing = {"allreduce": force_algorithm("MPICH", "allreduce", "ring")}
    text = (
        "Allreduce ring cannot be applied.\n\nmpicoll asks: allreduce 4\n"
        "Allreduce ring cannot be applied.\n\nmpicoll asks: allreduce 64\n"
        "Bcast x cannot be applied.\n"
    )
    answer = read_answers("MPICH", forcing, text)["allreduce"]
    assert answer.obeyed and answer.refused == [4] and answer.said.startswith("Allreduce ring")
    assert read_answers("MPICH", forcing, None)["allreduce"].obeyed is None
    first = text.partition("\n\nmpicoll asks: allreduce 64")[0]
    assert read_answers("MPICH", forcing, first)["allreduce"].obeyed is False
    # Ranks print at the same time, and a file may be damaged.
    for between in (
        "mpicoll asks: ",
        "mpicoll asks: allreduce 4a\n",
        "mpicoll asks: x " + "9" * 5000,
    ):
        assert read_answers("MPICH", forcing, between + text)["allreduce"] == answer


def test_intel_mpi_says_as_it_starts_that_it_has_no_such_number() -> None:
    """Of the others it does not say whether it ran them."""
    forcing = {
        name: force_algorithm("Intel MPI", name, "binomial") for name in ("broadcast", "reduce")
    }
    text = (
        "[0] MPI startup(): Incorrect algorithm: BCAST=1, will be ignored\n"
        "mpicoll asks: broadcast 4\n\nmpicoll asks: reduce 4\n"
    )
    answers = read_answers("Intel MPI", forcing, text)
    assert answers["broadcast"].obeyed is False and answers["reduce"].obeyed is None


def test_nccl_says_what_it_ran() -> None:
    forcing = {
        "allreduce": force_algorithm("NCCL", "allreduce", "nvlstree_simple"),
        "reduce_scatter": force_algorithm("NCCL", "reduce_scatter", "ring_ll"),
        "allgather": force_algorithm("NCCL", "allgather", "ring_ll"),
    }
    line = "\nNCCL INFO {}: 4096 Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..1}}\n"
    text = (
        "mpicoll asks: allreduce 4096" + line.format("AllReduce", "NVLS_TREE", "SIMPLE")
        + "mpicoll asks: reduce_scatter 64" + line.format("ReduceScatter", "RING", "LL")
        + "mpicoll asks: reduce_scatter 4096" + line.format("ReduceScatter", "RING", "SIMPLE")
        + "mpicoll asks: allgather 64\n"
    )  # fmt: skip
    answers = read_answers("NCCL", forcing, text)
    assert answers["allreduce"].obeyed and not answers["allreduce"].refused
    assert answers["reduce_scatter"].refused == [4096]
    assert answers["reduce_scatter"].said == "ring_simple"
    assert answers["allgather"].obeyed is None


def test_open_mpi_says_where_han_runs() -> None:
    forcing = {
        "allreduce": force_algorithm("Open MPI", "allreduce", "han_simple"),
        "broadcast": force_algorithm("Open MPI", "broadcast", "binomial"),
        "gather": force_algorithm("Open MPI", "gather", "binomial"),
        "reduce": force_algorithm("Open MPI", "reduce", "han_intra"),
    }
    line = "\n[host0:7] coll:han:get_algorithm {} size:4 algorithm:2 {}\n"
    text = (
        "mpicoll asks: allreduce 4" + line.format("allreduce", "simple")
        + "mpicoll asks: broadcast 4" + line.format("bcast", "default")
        + "mpicoll asks: gather 4\nmpicoll asks: reduce 4\n"
    )  # fmt: skip
    answers = read_answers("Open MPI", forcing, text)
    assert {name: answer.obeyed for name, answer in answers.items()} == {
        "allreduce": True, "broadcast": False, "gather": None, "reduce": False,
    }  # fmt: skip
