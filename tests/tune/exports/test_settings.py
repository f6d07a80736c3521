"""Settings of the libraries that take no table."""

from __future__ import annotations

import pytest
from library_studies import LIBRARY_CHOICE, make_choices

from mpicoll.errors import ArgumentError
from mpicoll.tune.exports import settings
from mpicoll.tune.exports.choices import Choice, Range

HOSTILE = ["'; touch owned; '", "$(touch owned)", "a\nb", "", "8'", "8 9", "a,b"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_record_gets_into_a_file_that_a_shell_reads(text: str) -> None:
    good = {"I_MPI_ADJUST_ALLREDUCE": "8"}
    assert settings.intel_takes("allreduce", "ring", good)
    assert not settings.intel_takes("allreduce", "ring", {"I_MPI_ADJUST_ALLREDUCE": text})
    assert not settings.intel_takes("allreduce", "ring", {**good, f"I_MPI_ADJUST_{text}=": "8"})
    assert not settings.ucc_takes("allreduce", text, {"UCC_TL_UCP_TUNE": "x"})
    assert not settings.nccl_takes("allreduce", "ring", {"NCCL_ALGO": text, "NCCL_PROTO": "LL"})


@pytest.mark.parametrize(
    ("write", "variables", "text"),
    [
        (settings.intel, {"I_MPI_ADJUST_ALLREDUCE": "8"},
         "export I_MPI_ADJUST_ALLREDUCE='8:0-2147483647'\n"),
        (settings.ucc, {"UCC_TL_UCP_TUNE": ""},
         "export UCC_TL_UCP_TUNE='allreduce:1001-inf:[4-4]:inf:@ring'\n"),
        (settings.nccl, {"NCCL_ALGO": "allreduce:ring", "NCCL_PROTO": "allreduce:ll"},
         "allreduce,1001,4611686018427387904,ring,ll,-1,1,4,-1,-1\n"),
    ],
)  # fmt: skip
def test_other_libraries_are_told_in_a_line(write, variables: dict[str, str], text: str) -> None:
    ranges = [Range(None, "ring", variables)]
    parts = [LIBRARY_CHOICE, *ranges] if write is not settings.intel else ranges
    assert write([Choice("allreduce", 4, 1, parts)]) == text


def test_nccl_s_plugin_has_names_of_its_own() -> None:
    """An unknown one would be taken for ring, without a word."""
    text = settings.nccl(make_choices("x", NCCL_ALGO="CollNetDirect", NCCL_PROTO="Simple"))
    assert text.split(",")[3:5] == ["collnet_direct", "simple"]
    variables = {"NCCL_ALGO": "^Ring", "NCCL_PROTO": "LL"}
    assert not settings.nccl_takes("allreduce", "x", variables)
    assert not settings.nccl_takes("allreduce", "x", {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL64"})


def test_ucc_counts_what_a_rank_has_of_a_reduce_scatter() -> None:
    ranges = [LIBRARY_CHOICE, Range(4000, "knomial", {}), Range(None, "ring", {})]
    text = settings.ucc([Choice("reduce_scatter", 4, 1, ranges)])
    assert "reduce_scatter:251-1000:[4-4]:inf:@knomial" in text
    assert "reduce_scatter:1001-inf:[4-4]:inf:@ring" in text


def test_intel_mpi_has_one_table_for_all_numbers_of_ranks() -> None:
    (choice,) = make_choices("ring", I_MPI_ADJUST_ALLREDUCE="8")
    with pytest.raises(ArgumentError, match="give records of one of 4, 8"):
        settings.intel([choice, choice._replace(ranks=8)])
