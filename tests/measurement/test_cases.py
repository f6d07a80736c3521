"""The choice of cases: sizes, operators, roots, algorithms."""

from __future__ import annotations

import pytest

from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import Wanted, groups, is_known
from mpicoll.notation.contract import COLLECTIVES


@pytest.mark.parametrize("name", ["allreduce", "allgather", "alltoall", "scatter"])
@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("nbytes", [4, 1000, 4096])
def test_sizes_are_whole_elements_on_every_rank(name: str, size: int, nbytes: int) -> None:
    (group,) = groups(Wanted(collectives=(name,), sizes=(nbytes,)), size)
    rows = 1 if name == "allreduce" else size
    assert group.width >= 1
    assert group.bytes_per_rank == 4 * group.width
    assert group.bytes_total == rows * group.bytes_per_rank
    assert group.bytes_total <= max(nbytes, 4 * rows)


def test_meaningless_pairs_are_skipped_and_said() -> None:
    wanted = Wanted(collectives=("allreduce",), ops=("band", "sum"), sizes=(64,))
    assert [group.op for group in groups(wanted, 4)] == ["sum"]
    assert len(wanted.skipped) == 1 and "band" in wanted.skipped[0]


def test_root_out_of_range_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="root 4"):
        list(groups(Wanted(collectives=("bcast",), roots=("4",)), 4))


def test_algorithm_with_unknown_parameter_is_an_error() -> None:
    assert not is_known(COLLECTIVES["barrier"], "rnig", [])
    with pytest.raises(ArgumentError, match="has no 'teeth'"):
        is_known(COLLECTIVES["allreduce"], "ring(teeth=3)", [])
