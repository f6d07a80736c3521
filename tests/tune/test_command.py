"""The command line of ``mpicoll.tune``."""

from __future__ import annotations

from typing import Any

import pytest
from launcher import mpirun, ranks

from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import CPU
from mpicoll.tune.command import parse
from mpicoll.tune.run import Options


def parse_options(*collectives: str, **values: Any) -> Options:
    names = ("backends", "algorithms", "sizes", "output", "interface", "threads")
    plain = dict.fromkeys(names) | {
        "budget": 240.0,
        "timeout": 60.0,
        "resume": False,
        "device": CPU,
    }
    worlds: Any = {"mpi4py": None, "torch": None}
    return parse(plain | {"collectives": collectives} | values, worlds)


@pytest.mark.parametrize(
    "collectives", [("bcast,all_reduce",), ("broadcast", "allreduce"), ("Bcast, ", "AllReduce")]
)
def test_collectives_are_separated_by_spaces_or_commas(collectives: tuple[str, ...]) -> None:
    assert parse_options(*collectives).wanted.collectives == ("broadcast", "allreduce")


def test_sizes_are_sorted_and_unique() -> None:
    assert parse_options(sizes=(4096, 8, 4096)).wanted.sizes == (8, 4096)


@pytest.mark.parametrize(
    ("collectives", "values", "message"),
    [
        (["allredcue"], {}, "did you mean 'allreduce'"),
        ([], {"algorithms": "auto"}, "auto is no candidate"),
        ([], {"algorithms": "chain(segments=8:2)"}, "is empty"),
        ([], {"backends": "x"}, "mpi4py"),
    ],
)
def test_bad_usage_is_refused(collectives: list[str], values: dict[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse_options(*collectives, **values)


@pytest.mark.launches
@pytest.mark.skipif(mpirun() is None, reason="no mpirun here")
def test_bad_usage_is_printed_once() -> None:
    result = ranks(2, "-m", "mpicoll.tune", "--backends", "mpi4py", "--algorithms", "rnig")
    assert result.returncode == 2 and result.stdout.count("Error:") == 1
    assert "did you mean 'ring'?" in result.stdout
