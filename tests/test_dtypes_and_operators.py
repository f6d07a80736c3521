"""Every dtype and operator, over what the libraries and the lowering do with them.

No schedule knows of dtypes: a few of each form stand for all. Their messages are bytes, so threads
show as much as processes, with arrays of both libraries.
"""

from __future__ import annotations

import pytest
from layouts import Layout
from run_collective import EVERY, SCHEDULES, carried, pairs_of_op_and_dtype, run

from mpicoll import Collectives
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.elements import DTYPES

pytestmark = [
    pytest.mark.ranks(2, more=(Layout(2, library="torch"),)), pytest.mark.kept_group,
]  # fmt: skip
NATIVES = [(name, text) for name, text in EVERY if "native" in text]
ODD_TURNS = [(dtype, index % 2 == 1) for index, dtype in enumerate(DTYPES)]
OPERATORS = [(*pair, index % 2 == 1) for index, pair in enumerate(pairs_of_op_and_dtype())]
"""In place or not is another question: half of the cases ask it."""
every_dtype = pytest.mark.parametrize(("dtype", "in_place"), ODD_TURNS)
every_op = pytest.mark.parametrize(("op", "dtype", "in_place"), OPERATORS)
natives = pytest.mark.parametrize(("name", "algorithm"), NATIVES)
CARRIED = [
    (*schedule, ("point-to-point", "symmetric")[(row // 2 + column) % 2], *turn)
    for column, schedule in enumerate(SCHEDULES)
    for row, turn in enumerate(ODD_TURNS)
]
"""Every schedule with every dtype; each of both meets each transport, in place and not."""


def folding(cases: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """Parametrise by those of some cases that reduce."""
    found = [each for each in cases if COLLECTIVES[each[0]].reduces]
    return pytest.mark.parametrize(("name", "algorithm"), found)


def carry(c: Collectives, name: str, algorithm: str, dtype: str, in_place: bool) -> None:
    carried(c, dtype)
    run(c, name, algorithm, dtype=dtype, op="bor" if dtype == "bool" else "sum", in_place=in_place)


def fold(c: Collectives, name: str, algorithm: str, op: str, dtype: str, in_place: bool) -> None:
    if op == "avg" and name in ("scan", "exscan"):
        pytest.skip("a mean has no prefix form")
    run(c, name, algorithm, dtype=dtype, op=op, in_place=in_place)


def test_every_collective_has_a_schedule_here() -> None:
    assert {name for name, _ in SCHEDULES} == {*COLLECTIVES} - {"barrier"}


@pytest.mark.threads_only
@pytest.mark.parametrize(("name", "algorithm", "transport", "dtype", "in_place"), CARRIED)
def test_schedules_carry_every_dtype(
    c: Collectives, name: str, algorithm: str, transport: str, dtype: str, in_place: bool
) -> None:
    carry(c, name, f"{algorithm}@{transport}", dtype, in_place)


@pytest.mark.threads_only
@folding(SCHEDULES)
@every_op
def test_schedules_fold_by_every_op(
    c: Collectives, name: str, algorithm: str, op: str, dtype: str, in_place: bool
) -> None:
    fold(c, name, f"{algorithm}@symmetric", op, dtype, in_place)


@pytest.mark.threads_only
@every_op
def test_arrays_fold_by_every_op(c: Collectives, op: str, dtype: str, in_place: bool) -> None:
    """As received messages are folded: not by the compiled executor."""
    fold(c, "allreduce", "ring@point-to-point", op, dtype, in_place)


@pytest.mark.launch_only
@natives
@every_dtype
def test_natives_carry_every_dtype(
    c: Collectives, name: str, algorithm: str, dtype: str, in_place: bool
) -> None:
    carry(c, name, algorithm, dtype, in_place)


@pytest.mark.launch_only
@folding(NATIVES)
@every_op
def test_natives_fold_by_every_op(
    c: Collectives, name: str, algorithm: str, op: str, dtype: str, in_place: bool
) -> None:
    fold(c, name, algorithm, op, dtype, in_place)
