"""Tables of Open MPI in all its versions, and a launch that takes one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launcher import ranks
from library_studies import LIBRARY_CHOICE, make_choices

from mpicoll.study.libraries import force_algorithm
from mpicoll.tune.exports import openmpi
from mpicoll.tune.exports.choices import Choice, Range


def test_open_mpi_decides_itself_for_other_ranks() -> None:
    numbers = [
        line.split("#")[0].split() for line in openmpi.rules(make_choices("ring")).splitlines()
    ]
    assert [" ".join(words) for words in numbers] == [
        "1", "2", "3",
        "0", "1", "0 0 0 0",
        "4", "2", "0 0 0 0", "1001 4 0 0",
        "5", "1", "0 0 0 0",
    ]  # fmt: skip


def test_open_mpi_is_told_of_requests_in_version_2() -> None:
    requests = {"OMPI_MCA_coll_tuned_alltoall_algorithm_max_requests": "2"}
    decisions = make_choices("linear_sync_2", "alltoall", **requests)
    lines = openmpi.rules(decisions).splitlines()
    assert lines[0] == "rule-file-version-2"
    assert "0 0 0 0 # its own choice" in lines and "1001 4 0 0 2 # linear_sync_2" in lines
    assert '"alg": 4,' in openmpi.json_rules(decisions) and '"reqs": 2' in openmpi.json_rules(
        decisions
    )
    assert openmpi.takes("alltoall", "linear_sync_2", requests)
    assert not openmpi.takes("alltoall", "linear_sync_2", {next(iter(requests)): "2 # x"})


def test_open_mpi_is_told_the_fan_of_a_chain_and_the_radix_of_bruck() -> None:
    """A fan of 0 is 1, and the variables that force a chain leave it at 4; a radix of 0 hangs."""
    chain = make_choices("chain", "reduce")
    assert "1001 2 4 0 # chain" in openmpi.rules(chain).splitlines()
    assert '"faninout": 4' in openmpi.json_rules(chain)
    bruck = make_choices("bruck", "allgather")
    assert "1001 2 0 0 # bruck" in openmpi.rules(bruck).splitlines()
    assert '"faninout": 2' in openmpi.json_rules(bruck)


def test_open_mpi_6_gets_json() -> None:
    document = json.loads(openmpi.json_rules(make_choices("binomial", "broadcast")))
    (rule,) = document["collectives"]["bcast"]
    assert (rule["comm_size_min"], rule["comm_size_max"]) == (4, 4)
    assert rule["rules"] == [{"msg_size_min": 1001, "msg_size_max": "inf", "alg": 6}]


def test_han_hands_on_what_was_chosen_on_several_nodes() -> None:
    (choice,) = make_choices("binomial", "broadcast")
    assert openmpi.han_rules([choice]) is None
    ranges = [LIBRARY_CHOICE, Range(2000, "ring", {}), Range(None, "han_simple", {})]
    wide = Choice("allgather", 4, 2, ranges)
    lines = str(openmpi.han_rules([choice, wide])).splitlines()
    assert [line.split("#")[0].strip() for line in lines] == [
        "1", "allgather", "1", "global_communicator", "3",
        "1", "1", "0 han",
        "4", "3", "0 han", "251 tuned", "501 han @simple",
        "5", "1", "0 han",
    ]  # fmt: skip
    # Of coll_tuned HAN's algorithms are its own choice.
    assert "2001 0 0 0 # han_simple" in openmpi.rules([wide])
    assert openmpi.takes("allgather", "han_simple", {})
    assert not openmpi.takes("alltoall", "han_simple", {})
    variables = openmpi.variables({"": Path("a"), openmpi.HAN_RULES: Path("b")})
    assert variables["OMPI_MCA_coll_han_use_dynamic_file_rules"] == "1"


@pytest.mark.launches
def test_open_mpi_takes_what_the_file_says(tmp_path: Path) -> None:
    """What rounds otherwise in one range of sizes on 6 ranks, and its own choice beside it."""
    from mpi4py import MPI

    if MPI.get_vendor()[0] != "Open MPI":
        pytest.skip("not Open MPI")
    table = tmp_path / "openmpi.rules"
    ranges = [LIBRARY_CHOICE, Range(32768, "ring", {}), Range(None, None, {})]
    table.write_text(openmpi.rules([Choice("allreduce", 6, 1, ranges)]))
    program = "tests/support/fingerprints.py", "128", "4096", "65536"
    tuned, forced_run, default = (
        json.loads(ranks(6, *program, environment=environment).stdout.splitlines()[-1])
        for environment in (
            openmpi.variables({"": table}),
            force_algorithm("Open MPI", "allreduce", "ring").variables, {},
        )
    )  # fmt: skip
    assert tuned["allreduce 4096"] == forced_run["allreduce 4096"] != default["allreduce 4096"]
    for name in ("allreduce 128", "allreduce 65536"):
        assert tuned[name] == default[name] != forced_run[name]
