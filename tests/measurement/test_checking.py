"""The run-time check: expected results, poison, and faults that it must find."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import expect
import numpy as np
import pytest

from mpicoll.errors import ArgumentError
from mpicoll.measurement import checking
from mpicoll.measurement.checking import Check, Wrong, poison
from mpicoll.measurement.patterns import PERIOD, CheckedCall
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.elements import DTYPES, OPS, check_op, kind_of

ARRAYS = NumpyArrays()


def inputs(call: CheckedCall) -> Any:
    """Return the input of a call as one array, None where it gives none."""
    pieces = checking.inputs(call)
    return pieces and np.concatenate([*pieces.pieces()])


def expected(call: CheckedCall) -> Any:
    """Return the right output of a call as one array, None where it is undefined."""
    pieces = [piece for block in checking.expected(call) for piece in block.pieces()]
    return np.concatenate(pieces) if pieces else None


def compare(rank: int, got: Any, good: Any) -> Wrong | None:
    """Return the wrong elements of one array."""
    return checking.compare(rank, [(got, good)])


def combinations() -> list[Any]:
    """Return every collective with every dtype that it moves, and of those that fold a third."""
    params = []
    for row, contract in enumerate(COLLECTIVES.values()):
        for column, op in enumerate(OPS.values() if contract.reduces else (OPS["sum"],)):
            for place, dtype in enumerate(DTYPES if contract.unit != "none" else ()):
                if contract.reduces and (row + column + place) % 3:
                    continue
                try:
                    check_op(op, dtype, contract) if contract.reduces else None
                except ArgumentError:
                    continue
                params.append(
                    pytest.param(contract, op, dtype, id=f"{contract.name}-{op.name}-{dtype}")
                )
    return params


def test_every_op_meets_every_dtype_and_every_collective() -> None:
    reducing_calls = [param.values for param in combinations() if param.values[0].reduces]
    fitting = sum(kind_of(dtype) in op.kinds for op in OPS.values() for dtype in DTYPES)
    assert len({(op.name, dtype) for _, op, dtype in reducing_calls}) == fitting
    reducing = sum(contract.reduces for contract in COLLECTIVES.values())
    assert (
        len({(contract.name, op.name) for contract, op, _ in reducing_calls})
        == reducing * len(OPS) - 2
    )


def all_ranks(
    contract: Any, op: Any, dtype: str, size: int, root: int, width: int = 5
) -> list[CheckedCall]:
    return [CheckedCall.of(contract, rank, size, root, width, dtype, op) for rank in range(size)]


@pytest.mark.parametrize(("contract", "op", "dtype"), combinations())
@pytest.mark.parametrize(
    ("size", "root"), [pytest.param(1, 0, marks=pytest.mark.exhaustive), (4, 3)]
)
def test_expected_is_what_brute_force_says(
    contract: Any, op: Any, dtype: str, size: int, root: int
) -> None:
    cases = all_ranks(contract, op, dtype, size, root)
    shape = expect.input_shape(contract.name, size, 0, (5,), None)
    arrays = [inputs(case) for case in cases]
    full = [(array if array is not None else arrays[root]).reshape(shape) for array in arrays]  # type: ignore[union-attr]
    for case, good in zip(
        cases, expect.expected(contract.name, full, op.name, root, None), strict=True
    ):
        result = expected(case)
        if good is None:
            assert result is None
            continue
        assert result is not None
        np.testing.assert_array_equal(result, good.reshape(-1))
        spoiled = compare(0, poison(result), result)
        assert spoiled is not None and spoiled.count == result.size


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("op", ["sum", "prod", "avg"])
@pytest.mark.parametrize("size", [2, 100, pytest.param(250, marks=pytest.mark.exhaustive)])
def test_folds_are_exact_in_any_order(op: str, dtype: str, size: int) -> None:
    if op == "avg" and dtype == "int8":
        pytest.skip("a mean of integers is none")
    contract = COLLECTIVES["allreduce"]
    parts = np.array([inputs(c) for c in all_ranks(contract, OPS[op], dtype, size, 0, 64)], float)
    limit = {"int8": 127, "float16": 2048, "bfloat16": 256, "float32": 2**24}[dtype]
    if op == "prod":
        assert np.abs(np.prod(parts, 0)).max() <= 64
        return
    largest = np.abs(parts).sum(0).max() if op == "sum" else np.abs(np.cumsum(parts, 0)).max()
    assert largest <= limit
    if op == "avg":
        assert not (parts.sum(0) % size).any()


FAULTS = ["missing", "repeated", "shifted", "unwritten", "foreign", "swapped"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("op", OPS)
def test_planted_faults_are_caught(fault: str, op: str) -> None:
    dtype = "float32" if op == "avg" else "int32"
    idempotent = op in ("min", "max", "band", "bor", "land", "lor")
    if fault == "repeated" and (idempotent or op == "avg"):
        pytest.skip("a repeated operand changes nothing")
    cases = all_ranks(COLLECTIVES["allreduce"], OPS[op], dtype, 4, 0, 64)
    parts = [inputs(case) for case in cases]
    good = expected(cases[0])
    assert good is not None
    assert compare(1, _faulty_result(fault, op, parts, good), good) is not None


def _faulty_result(fault: str, op: str, parts: list[Any], good: Any) -> Any:
    function = expect.FUNCTIONS[op]

    def fold(some: list[Any]) -> Any:
        folded = some[0]
        for part in some[1:]:
            folded = np.asarray(function(folded, part)).astype(good.dtype)
        return (folded / 4).astype(good.dtype) if op == "avg" else folded

    results: dict[str, Callable[[], Any]] = {
        "missing": lambda: fold(parts[:3]),
        "repeated": lambda: fold([*parts, parts[2]]),
        "shifted": lambda: np.roll(good, 1),
        "unwritten": lambda: np.concatenate([good[:-1], poison(good)[-1:]]),
        "foreign": lambda: fold([*parts[:3], np.roll(parts[3], 16)]),
        "swapped": lambda: np.concatenate([good[32:], good[:32]]),
    }
    return results[fault]()


@pytest.mark.parametrize("name", ["gather", "allgather", "alltoall", "scatter", "broadcast"])
def test_swapped_blocks_are_caught(name: str) -> None:
    case = CheckedCall.of(COLLECTIVES[name], 0, 4, 0, 8, "float32", OPS["sum"])
    good = expected(case)
    assert good is not None
    assert compare(0, np.roll(good, 8 if good.size > 8 else 1), good) is not None


def test_first_wrong_element_is_named() -> None:
    good = np.arange(6.0)
    got = good.copy()
    got[[2, 5]] = np.nan, -1
    wrong = compare(3, got, good)
    assert wrong is not None and (wrong.rank, wrong.count, wrong.index) == (3, 2, 2)
    assert str(wrong) == "rank 3, output index 2: expected 2.0, got nan (2 wrong)"


def test_check_poisons_and_guards_the_input() -> None:
    case = CheckedCall.of(COLLECTIVES["allreduce"], 0, 1, 0, 8, "int32", OPS["sum"])
    x, out = np.empty(8, "int32"), np.empty(8, "int32")
    check = Check(case, ARRAYS, x, out)
    check.prepare()
    untouched = check.verify()
    assert untouched is not None and untouched.count == 8
    out[:] = x
    assert check.verify() is None
    x[3] += 1
    clobbered = check.verify()
    assert clobbered is not None and (clobbered.array, clobbered.index) == ("input", 3)


def test_check_in_place_keeps_its_input() -> None:
    case = CheckedCall.of(COLLECTIVES["allgather"], 1, 2, 0, 4, "float64", OPS["sum"])
    out = np.empty((2, 4))
    check = Check(case, ARRAYS, out[1], out)
    check.prepare()
    assert not np.isnan(out[1]).any() and np.isnan(out[0]).all()
    row = inputs(CheckedCall.of(COLLECTIVES["allgather"], 0, 2, 0, 4, "float64", OPS["sum"]))
    out[0] = row
    assert check.verify() is None


LONG = (PERIOD - 1, PERIOD, PERIOD + 1, 2 * PERIOD + 3)


@pytest.mark.parametrize("width", LONG)
@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name != "barrier"])
def test_expected_is_right_beyond_a_period(name: str, width: int) -> None:
    calls = all_ranks(COLLECTIVES[name], OPS["sum"], "int32", 3, 1, width)
    shape = expect.input_shape(name, 3, 0, (width,), None)
    arrays = [inputs(call) for call in calls]
    full = [(array if array is not None else arrays[1]).reshape(shape) for array in arrays]
    for call, good in zip(calls, expect.expected(name, full, "sum", 1, None), strict=True):
        result = expected(call)
        assert (result is None) == (good is None)
        if result is not None:
            np.testing.assert_array_equal(result, good.reshape(-1))


@pytest.mark.parametrize("index", [0, PERIOD - 1, PERIOD, 2 * PERIOD, 2 * PERIOD + 2])
@pytest.mark.parametrize("array", ["output", "input"])
def test_a_fault_in_any_piece_is_found(array: str, index: int) -> None:
    call = CheckedCall.of(COLLECTIVES["allreduce"], 0, 1, 0, LONG[-1], "float32", OPS["sum"])
    x, out = np.empty(LONG[-1], "float32"), np.empty(LONG[-1], "float32")
    check = Check(call, ARRAYS, x, out)
    check.prepare()
    assert np.isnan(out).all()
    out[:] = x
    assert check.verify() is None
    spoiled = out if array == "output" else x
    spoiled[[index, -1]] += 1
    wrong = check.verify()
    assert wrong is not None
    assert (wrong.array, wrong.index) == (array, index)
    assert wrong.count == len({index, LONG[-1] - 1})


@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name != "barrier"])
def test_a_check_takes_little_memory(name: str) -> None:
    width = 4 << 20
    call = CheckedCall.of(COLLECTIVES[name], 0, 2, 0, width, "float32", OPS["sum"])
    x, out = (
        np.zeros(expect.input_shape(collective, 2, 0, (width,), None), "float32")
        for collective in (name, _REVERSED.get(name, "allreduce"))
    )
    checking.expected(call)
    tracemalloc.start()
    check = Check(call, ARRAYS, x, out)
    check.prepare()
    check.verify()
    check.zero_input()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < x.nbytes / 4


_REVERSED = {"allgather": "scatter", "gather": "scatter", "alltoall": "alltoall"}
"""Collectives whose input has the shape of the output of another one."""


def test_wrong_is_one_line() -> None:
    assert "\n" not in str(Wrong(0, 1, 2, 3.0, float("nan")))
