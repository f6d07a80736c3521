"""Every dtype and operator on real ranks; neither depends on how many there are."""

from __future__ import annotations

import pytest
from run_collective import EVERY, EVERY_REDUCTION, carried, pairs_of_op_and_dtype, run

from mpicoll import Collectives
from mpicoll.notation.dtypes import DTYPES

pytestmark = pytest.mark.mpi
IN_TURN = (False, True)
"""In place or not is another question: half of the cases ask it."""


@pytest.mark.parametrize(("name", "algorithm"), EVERY)
@pytest.mark.parametrize(
    ("dtype", "in_place"), [(dtype, IN_TURN[index % 2]) for index, dtype in enumerate(DTYPES)]
)
def test_carries_every_dtype(
    c: Collectives, name: str, algorithm: str, dtype: str, in_place: bool
) -> None:
    carried(c, dtype)
    run(c, name, algorithm, dtype=dtype, op="bor" if dtype == "bool" else "sum", in_place=in_place)


@pytest.mark.parametrize(("name", "algorithm"), EVERY_REDUCTION)
@pytest.mark.parametrize(
    ("op", "dtype", "in_place"),
    [(*pair, IN_TURN[index % 2]) for index, pair in enumerate(pairs_of_op_and_dtype())],
)
def test_folds_every_op(
    c: Collectives, name: str, algorithm: str, op: str, dtype: str, in_place: bool
) -> None:
    if op == "avg" and name in ("scan", "exscan"):
        pytest.skip("a mean has no prefix form")
    run(c, name, algorithm, dtype=dtype, op=op, in_place=in_place)
