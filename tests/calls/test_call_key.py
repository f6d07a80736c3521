"""The key of a call: the arguments that make another call, and those that Python has to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plan_tables import SoleRank, call_of
from program_rows import program

from mpicoll.engine import extension


def test_arrays_of_other_kinds_are_described() -> None:
    class Array:
        def __init__(self, kind: int, count: int) -> None:
            self.kind, self.count = kind, count

    def describe(x: Any) -> Any:
        return (4096, 8 * x.count, x.kind, (x.count,)) if isinstance(x, Array) else None

    rank = SoleRank()
    table = extension._compiled.PlanTable(
        None, None, rank.numbers, rank.call_python, None, lines=(), describe=describe,
        agree=lambda digest, name: True,
    )  # fmt: skip
    table.add(call_of(Array(0, 3)), lambda x, out: x.count, 9, None, 0)
    assert table(*call_of(Array(0, 3))) == 3
    for unknown in (Array(1, 3), Array(0, 4), np.ones(3), [3.0], object()):
        assert table(*call_of(unknown)) == "slow"


MEMORY = np.zeros(20)
CHANGES: dict[str, Callable[[], dict[str, Any]]] = {
    "name": lambda: {"name": "scan"},
    "dtype": lambda: {"x": np.zeros(10, "int64")},
    "shape": lambda: {"x": np.zeros(11)},
    "dimensions": lambda: {"x": np.zeros((10, 1))},
    "order of the shape": lambda: {"x": np.zeros((1, 10))},
    "op": lambda: {"op": "max"},
    "root": lambda: {"root": 1},
    "counts": lambda: {"counts": (10,)},
    "algorithm": lambda: {"algorithm": "ring"},
    "no output": lambda: {"out": None},
    "no input": lambda: {"x": None},
    "in place": lambda: {"x": MEMORY[:10], "out": MEMORY[:10]},
    "overlap": lambda: {"x": MEMORY[:10], "out": MEMORY[5:15]},
}


@pytest.mark.parametrize("kind", CHANGES)
def test_another_call_is_another_program(kind: str) -> None:
    rank, known = SoleRank(), {"x": np.zeros(10), "out": np.zeros(10)}
    rank.add(**known)
    assert rank.serves(**known)
    changed = {**known, **CHANGES[kind]()}
    assert not rank.serves(**changed)
    rank.add(**changed)
    assert rank.serves(**changed) and rank.serves(**known)


class Subclass(np.ndarray[Any, Any]):
    pass


def read_only() -> Any:
    x = np.zeros(10)
    x.flags.writeable = False
    return x


UNUSUAL: dict[str, Callable[[], dict[str, Any]]] = {
    "a list": lambda: {"x": [1.0] * 10},
    "a subclass": lambda: {"x": np.zeros(10).view(Subclass)},
    "not contiguous": lambda: {"x": np.zeros(20)[::2]},
    "Fortran's order": lambda: {"x": np.zeros((5, 2), order="F")},
    "swapped bytes": lambda: {"x": np.zeros(10, ">f8")},
    "more than 8 dimensions": lambda: {"x": np.zeros((1,) * 8 + (10,))},
    "a read-only output": lambda: {"x": np.zeros(10), "out": read_only()},
    "objects": lambda: {"x": np.zeros(10, object)},
    "root as a float": lambda: {"x": np.zeros(10), "root": 0.0},
    "a negative root": lambda: {"x": np.zeros(10), "root": -1},
    "a huge root": lambda: {"x": np.zeros(10), "root": 1 << 80},
    "counts as a list": lambda: {"x": np.zeros(10), "counts": [10]},
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_what_is_unusual_is_left_to_python(kind: str) -> None:
    """Also where somebody has added it."""
    rank, arguments = SoleRank(), UNUSUAL[kind]()
    rank.add(**arguments)
    assert not rank.serves(**arguments)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (), (1, 1, 1), (2,) * 8])
def test_arrays_of_any_shape_are_read(shape: tuple[int, ...]) -> None:
    rank, x = SoleRank(), np.ones(shape)
    rank.add(x, nbytes=x.nbytes)
    np.testing.assert_array_equal(rank.table(*call_of(x)), x)
    assert not rank.python_calls


@pytest.mark.parametrize("count", range(6))
def test_a_call_takes_seven_arguments(count: int) -> None:
    with pytest.raises(TypeError, match="seven"):
        SoleRank().table(*range(count))


def test_tensors_of_unusual_kinds_are_left_to_python() -> None:
    torch = pytest.importorskip("torch")
    from torchcoll.arrays import TorchArrays

    rank = SoleRank(TorchArrays())
    lazy = torch.ones(6, dtype=torch.complex64)
    usual, unusual = [torch.ones(6), torch.ones(0), torch.ones(2, 0, 3), lazy], [
        torch.ones(12)[::2], lazy.conj(), lazy.conj().imag, torch.ones(2, 3).t(),
        torch.ones(6, device="meta"), torch.nn.Parameter(torch.ones(6)), torch.ones(6).to_sparse(),
    ]  # fmt: skip
    for x in [*usual, *unusual]:
        rank.table.add(call_of(x, torch.ones(6)), program([]), 7, None, 0, True, None)
    assert all(rank.serves(x, torch.ones(6)) for x in usual)
    assert not any(rank.serves(x, torch.ones(6)) for x in unusual)
