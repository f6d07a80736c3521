"""The types of the compiled executor by themselves: what they refuse, find, forget and keep."""

from __future__ import annotations

import gc
import sys
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpicoll import tuning
from mpicoll.engine import compiled, extension
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.threads import threads

COPY, FOLD, DIVIDE, RAISE, AWAIT, FETCH = range(6)


def row(
    code: int, *, count: int = 0, extra: int = 0, registers: tuple[int, int, int] = (1, 0, 0)
) -> list[int]:
    operands = [[register, 0, 0, 0, 1, 0] for register in registers]
    return [code, count, extra, *operands[0], *operands[1], *operands[2]]


def program(rows: list[list[int]], registers: Any = (0, 0), **given: Any) -> Any:
    options = {"check": len(rows), "spins": 1, "light": True, "heavy": False, "wait": None,
               "look": None, "keep": None, **given}  # fmt: skip
    table = array("q", [each for one in rows for each in one])
    op, dtype = options.pop("op", None), options.pop("dtype", None)
    return extension._compiled.Program(table, registers, op, dtype, **options)


def address(x: Any) -> int:
    return int(x.__array_interface__["data"][0])


# -- Table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "nbytes", "slots", "results"),
    [
        ("allgather", 1024, compiled.CACHED, compiled.CACHED),
        ("allgather", 2048, compiled.ADAPTIVE, compiled.CACHED),
        ("reduce", 1 << 18, compiled.ADAPTIVE, None),
        ("broadcast", 3 << 18, compiled.ADAPTIVE, compiled.CACHED),
        ("alltoall", 1 << 20, compiled.ADAPTIVE, compiled.STREAMED),
    ],
)  # fmt: skip
def test_slots_are_written_adaptively_and_large_results_past_the_cache(
    collective: str, nbytes: int, slots: int, results: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of another core holds every line of a slot that it has read before."""
    monkeypatch.setattr(tuning, "STREAMED_RESULTS", 2 << 20)
    found = ways(collective, nbytes, monkeypatch)
    assert found == ({slots}, set() if results is None else {results})


def ways(
    collective: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[set[int], set[int]]:
    """Return how a call writes slots, and how results."""
    written, results = set(), set()

    def note(table: Any, code: int, target: compiled.Operand, *_: Any, **given: Any) -> None:
        if code == COPY:
            (results if target.register == compiled.OUTPUT else written).add(given["extra"])
        add(table, code, target, *_, **given)

    add = compiled.Table._row
    x = np.ones((2, nbytes) if collective == "alltoall" else nbytes, np.uint8)
    with monkeypatch.context() as patched:
        patched.setattr(compiled.Table, "_row", note)
        threads(2)(lambda c: getattr(c, collective)(x, algorithm="naive@symmetric"))
    return written, results


def test_what_is_fetched_to_one_place_is_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of the system takes microseconds; what is folded is fetched tile by tile."""
    found = []

    def note(table: Any) -> None:
        fill(table)
        codes = table.rows[:: compiled._COLUMNS]
        found.append((codes.count(FETCH), codes.count(AWAIT)))

    fill = compiled.Table.fill
    monkeypatch.setattr(compiled.Table, "fill", note)
    x = np.arange(1 << 19, dtype=np.float32).reshape(2, -1)
    y = threads(2)(lambda c: c.alltoall(x + c.rank, algorithm="naive@cma"))
    np.testing.assert_array_equal(y[0][1], x[0] + 1)
    assert found == [(1, 2)] * 2
    threads(2)(lambda c: c.reduce_scatter(x, algorithm="direct@cma"))
    assert found[2:] == [(2, 2)] * 2


# -- Program ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (row(99), "no such code, register or callback"),
        (row(-1), "no such code, register or callback"),
        (row(COPY, registers=(2, 0, 0)), "no such code, register or callback"),
        (row(COPY, registers=(0, -1, 0)), "no such code, register or callback"),
        (row(FOLD), "needs a kernel"), (row(DIVIDE), "needs a kernel"),
        ([*row(COPY), 1], "rows of"),
    ],
)  # fmt: skip
def test_a_bad_table_is_refused(table: list[int], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        program([table])


@pytest.mark.parametrize("registers", [3, [0, "x"], [0, 1 << 70]])
def test_bad_registers_are_refused(registers: Any) -> None:
    with pytest.raises((TypeError, OverflowError, ValueError)):
        program([row(COPY)], registers)


def test_a_program_is_made_once() -> None:
    made = program([])
    with pytest.raises(TypeError, match="once"):
        made.__init__(b"", [0, 0], None, None, check=0, spins=1, light=True, heavy=False, wait=None,
                      look=None, keep=None)  # fmt: skip


def test_a_program_runs_on_any_arrays() -> None:
    made = program([row(COPY, count=24)])
    for turn in range(3):
        x, out = np.full(3, float(turn)), np.zeros(3)
        made.run_on(address(x), address(out))
        np.testing.assert_array_equal(out, x)
    assert (made.sequence, made.position, made.length) == (3, 1, 1)


@pytest.mark.parametrize("nbytes", [100, 2048, 4097, 8192, (1 << 20) + 4101])
@pytest.mark.parametrize("how", [compiled.CACHED, compiled.STREAMED, compiled.ADAPTIVE])
def test_a_copy_is_exact_however_it_is_written(how: int, nbytes: int) -> None:
    """A trial is a part of the copy, of the first and of those after each MiB."""
    made = program([row(COPY, count=nbytes, extra=how)])
    for turn in range(3):
        x = np.random.default_rng(turn).integers(0, 256, nbytes, np.uint8)
        out = np.full(nbytes + 64, 7, np.uint8)
        made.run_on(address(x), address(out))
        np.testing.assert_array_equal(out[:nbytes], x)
        assert (out[nbytes:] == 7).all()


def test_a_run_that_failed_is_the_last() -> None:
    def wait(program: object, position: int, error: int) -> None:
        raise KeyError(position)

    word = np.zeros(1, np.int64)
    made = program([row(RAISE), row(AWAIT, registers=(0, 0, 0))], [address(word)] * 2, wait=wait)
    made.run()  # its own word is there
    never = program([row(AWAIT)], [0, address(np.zeros(1, np.int64))], wait=wait)
    with pytest.raises(KeyError):
        never.run()
    with pytest.raises(RuntimeError, match="failed in the middle of its last run"):
        never.run()


# -- Calls ------------------------------------------------------------------------------------


class Alone:
    """The calls of the only rank of a group.

    Attributes:
        slow: the calls that were left to Python.
    """

    def __init__(self, arrays: Any = None) -> None:
        self.lines, self.number = np.zeros(64, np.int64), array("q", [0, 0, 0])
        self.slow: list[tuple[Any, ...]] = []
        layout = (arrays or NumpyArrays()).layout()
        self.calls = extension._compiled.PlanTable(
            *layout, self.number, self._slow, None, lines=[address(self.lines)], stride=8, spins=1
        )

    def _slow(self, *given: Any) -> str:
        self.slow.append(given)
        return "slow"

    def add(self, x: Any, out: Any = None, *, nbytes: int = 0, **other: Any) -> Any:
        made = program([row(COPY, count=nbytes)] if nbytes else [])
        make = None if out is not None else lambda: np.empty_like(x)
        self.calls.add_program(given(x, out, **other), made, 7, True, make)
        return made

    def knows(self, x: Any, out: Any = None, **other: Any) -> bool:
        return not isinstance(self.calls(*given(x, out, **other)), str)


def given(
    x: Any, out: Any = None, *, name: str = "allreduce", op: Any = "sum", root: Any = 0,
    counts: Any = None, algorithm: str = "auto",
) -> tuple[Any, ...]:  # fmt: skip
    return name, x, out, op, root, counts, algorithm


def test_a_known_call_runs_on_new_arrays() -> None:
    alone, x = Alone(), np.arange(5.0)
    assert not alone.knows(x)
    made = alone.add(x, nbytes=x.nbytes)
    for turn in range(3):
        fresh = np.arange(5.0) + turn
        np.testing.assert_array_equal(alone.calls(*given(fresh)), fresh)
    assert len(alone.slow) == 1 and alone.number[0] == 3
    alone.calls.forget(program([]))
    assert alone.knows(x)
    alone.calls.forget(made)
    assert not alone.knows(x)


def test_a_group_that_has_ended_is_left_to_python() -> None:
    alone, x = Alone(), np.arange(5.0)
    alone.add(x)
    alone.number[1] = 1
    assert not alone.knows(x) and alone.number[0] == 0


def test_python_tells_the_others_that_there_is_no_memory() -> None:
    def refuse() -> None:
        raise MemoryError

    alone, x = Alone(), np.arange(5.0)
    alone.calls.add_program(given(x), program([]), 7, True, refuse)
    assert not alone.knows(x) and alone.number[0] == 0


def test_an_interrupt_is_not_taken_for_want_of_memory() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    alone, x = Alone(), np.arange(5.0)
    alone.calls.add_program(given(x), program([]), 7, True, interrupted)
    with pytest.raises(KeyboardInterrupt):
        alone.calls(*given(x))
    assert not alone.slow and alone.number[0] == 0


class Two:
    """The plan table of the first of two ranks, and what the other rank publishes.

    Attributes:
        waited: the ranks and numbers for which it had to wait.
        slow: the calls that were left to Python.
    """

    def __init__(self, other: int = 7) -> None:
        self.lines, self.number = [np.zeros(16, np.int64) for _ in range(2)], array("q", [0, 0, 0])
        self.waited: list[tuple[int, int]] = []
        self.slow: list[tuple[Any, ...]] = []
        self.other = other
        self.calls = extension._compiled.PlanTable(
            *NumpyArrays().layout(), self.number, self._slow, None, stride=8, spins=1,
            lines=[address(each) for each in self.lines], wait=self._wait,
        )  # fmt: skip

    def _slow(self, *given: Any) -> str:
        self.slow.append(given)
        return "slow"

    def _wait(self, rank: int, number: int, name: str) -> None:
        """Let the other rank publish its digest."""
        self.waited.append((rank, number))
        self.lines[1][number % 2 * 8 + 2] = self.other
        self.lines[1][number % 2 * 8] = number


@pytest.mark.parametrize("kind", ["program", "function", "library"])
@pytest.mark.parametrize("other", [7, 8])
def test_the_ranks_compare_their_calls_whatever_serves_them(kind: str, other: int) -> None:
    two, x = Two(other), np.arange(5.0)
    call, made = given(x, x), program([])
    if kind == "program":
        two.calls.add_program(call, made, 7, True, None)
    else:
        two.calls.add_function(call, None if kind == "library" else lambda x, out: out, 7, 0)
    for number in (1, 2):
        result = two.calls(*call)
        assert two.number[0] == number and two.waited[-1] == (1, number)
        if other == 7:
            assert result is (True if kind == "library" else x) and not two.slow
        else:
            begun = made if kind == "program" else True
            assert result == "slow" and two.slow[-1] == (*call, begun)


def test_ranks_of_several_nodes_say_in_which_call_they_are() -> None:
    numbers, seen, x = array("q", [4, 4, 2]), list[list[int]](), np.arange(5.0)
    table = extension._compiled.PlanTable(
        *NumpyArrays().layout(), array("q", [0, 0, 0]), None, lambda plan, error: True, lines=(),
        calls=numbers,
    )  # fmt: skip
    table.add_function(given(x, x), lambda x, out: seen.append(list(numbers)), 9, 0)
    table(*given(x, x))
    assert seen == [[5, 4, 9]] and list(numbers) == [5, 5, 9]
    with pytest.raises(ValueError, match="three numbers"):
        extension._compiled.PlanTable(
            None, None, array("q", [0, 0, 0]), None, None, lines=(), calls=array("q", [0])
        )


def test_a_function_that_fails_is_given_up() -> None:
    given_up, x, alone = list[tuple[Any, str]](), np.zeros(5), Alone()

    def give_up(plan: Any, error: BaseException) -> bool:
        given_up.append((plan, str(error)))
        return "other" in str(error)

    def fail(x: Any, out: Any) -> None:
        raise ValueError("another call" if x[0] else "broken")

    table = extension._compiled.PlanTable(
        *NumpyArrays().layout(), alone.number, alone._slow, give_up, lines=(),
        agree=lambda digest, name: True,
    )  # fmt: skip
    table.add_function(given(x, x), fail, 9, 0)
    with pytest.raises(ValueError, match="broken"):
        table(*given(x, x))
    x[0] = 1
    assert table(*given(x, x)) == "slow" and alone.slow[-1][-1] is True
    assert given_up == [(fail, "broken"), (fail, "another call")]


def test_arrays_of_other_kinds_are_described() -> None:
    class Array:
        def __init__(self, kind: int, count: int) -> None:
            self.kind, self.count = kind, count

    def describe(x: Any) -> Any:
        return (4096, 8 * x.count, x.kind, (x.count,)) if isinstance(x, Array) else None

    alone = Alone()
    table = extension._compiled.PlanTable(
        None, None, alone.number, alone._slow, None, lines=(), describe=describe,
        agree=lambda digest, name: True,
    )  # fmt: skip
    table.add_function(given(Array(0, 3)), lambda x, out: x.count, 9, 0)
    assert table(*given(Array(0, 3))) == 3
    for other in (Array(1, 3), Array(0, 4), np.ones(3), [3.0], object()):
        assert table(*given(other)) == "slow"
    assert not table.reads(given([3.0])) and table.reads(given(Array(1, 3)))


BOTH = np.zeros(20)
OTHERS: dict[str, Callable[[], dict[str, Any]]] = {
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
    "in place": lambda: {"x": BOTH[:10], "out": BOTH[:10]},
    "overlap": lambda: {"x": BOTH[:10], "out": BOTH[5:15]},
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_call_is_another_program(what: str) -> None:
    alone, known = Alone(), {"x": np.zeros(10), "out": np.zeros(10)}
    alone.add(**known)
    assert alone.knows(**known)
    other = {**known, **OTHERS[what]()}
    assert not alone.knows(**other)
    alone.add(**other)
    assert alone.knows(**other) and alone.knows(**known)


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


@pytest.mark.parametrize("what", UNUSUAL)
def test_what_is_unusual_is_left_to_python(what: str) -> None:
    """Also where somebody has added it."""
    alone, call = Alone(), UNUSUAL[what]()
    alone.add(**call)
    assert not alone.knows(**call)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (), (1, 1, 1), (2,) * 8])
def test_arrays_of_any_shape_are_read(shape: tuple[int, ...]) -> None:
    alone, x = Alone(), np.ones(shape)
    alone.add(x, nbytes=x.nbytes)
    np.testing.assert_array_equal(alone.calls(*given(x)), x)
    assert not alone.slow


def test_the_oldest_give_way() -> None:
    alone, arrays = Alone(), [np.zeros(each) for each in range(2000)]
    for each in arrays:
        alone.add(each)
    known = sum(map(alone.knows, arrays))
    assert 100 < known <= 512


@pytest.mark.parametrize("count", range(6))
def test_a_call_takes_seven_arguments(count: int) -> None:
    with pytest.raises(TypeError, match="seven"):
        Alone().calls(*range(count))


@pytest.mark.parametrize("outputs", [False, True], ids=["new", "given"])
def test_calls_leak_no_references(outputs: bool) -> None:
    alone, x, out = Alone(), np.ones(5), np.ones(5) if outputs else None
    alone.add(x, out, nbytes=x.nbytes)
    call = given(x, out)
    for _ in range(100):
        alone.calls(*call)
    gc.collect()
    before = [sys.getrefcount(each) for each in call if each is not None], sys.getallocatedblocks()
    for _ in range(100_000):
        alone.calls(*call)
    after = [sys.getrefcount(each) for each in call if each is not None], sys.getallocatedblocks()
    assert after[0] == before[0] and after[1] - before[1] < 100


def test_what_is_added_and_forgotten_leaks_no_references() -> None:
    alone, x, counts = Alone(), np.ones(5), (5, int("7" * 3))
    before = sys.getrefcount(counts)
    for _ in range(1000):
        made = alone.add(x, counts=counts)
        alone.add(x, counts=counts)
        alone.calls.forget(made)
    assert sys.getrefcount(counts) <= before + 1


def test_a_function_serves_known_calls() -> None:
    alone, x, out = Alone(), np.ones(5), np.ones(5)
    served: list[tuple[Any, Any]] = []

    def function(x: Any, out: Any) -> int:
        served.append((x, out))
        return 3

    alone.calls.add_function(given(x, out), function, 7, 0)
    alone.calls.add_function(given([1.0]), function, 7, 0)
    assert alone.calls(*given(x, out)) == 3
    assert served == [(x, out)] and served[0][0] is x
    assert not alone.knows(x) and not alone.knows(np.ones(6), out)
    alone.calls.forget(function)
    assert alone.calls(*given(x, out)) == "slow"


def test_functions_that_are_added_and_forgotten_leak_no_references() -> None:
    alone, x, name = Alone(), np.ones(5), "".join(["all", "reduce"])

    def function(x: Any, out: Any) -> None: ...

    before = sys.getrefcount(name), sys.getrefcount(function)
    for _ in range(1000):
        alone.calls.add_function(given(x, name=name), function, 7, 0)
        alone.calls.add_function(given(x, name=name), function, 7, 0)
        alone.calls(*given(x, name=name))
        alone.calls.forget(function)
    assert (sys.getrefcount(name), sys.getrefcount(function)) == before


def test_tensors_of_unusual_kinds_are_left_to_python() -> None:
    torch = pytest.importorskip("torch")
    from torchcoll.arrays import TorchArrays

    alone = Alone(TorchArrays())
    lazy = torch.ones(6, dtype=torch.complex64)
    usual, unusual = [torch.ones(6), torch.ones(0), torch.ones(2, 0, 3), lazy], [
        torch.ones(12)[::2], lazy.conj(), lazy.conj().imag, torch.ones(2, 3).t(),
        torch.ones(6, device="meta"), torch.nn.Parameter(torch.ones(6)), torch.ones(6).to_sparse(),
    ]  # fmt: skip
    for x in [*usual, *unusual]:
        alone.calls.add_program(given(x, torch.ones(6)), program([]), 7, True, None)
    assert all(alone.knows(x, torch.ones(6)) for x in usual)
    assert not any(alone.knows(x, torch.ones(6)) for x in unusual)


@pytest.mark.parametrize("name", ["float32", "int64", "uint8", "bool", "complex64"])
def test_tensors_that_are_lent_are_found_as_numpy_arrays(name: str) -> None:
    torch = pytest.importorskip("torch")
    from torchcoll.arrays import TorchArrays

    alone, dtype = Alone(), getattr(torch, name)
    x = torch.ones(5, dtype=dtype)
    alone.add(x.numpy(), torch.zeros(5, dtype=dtype).numpy(), nbytes=5 * x.itemsize)
    assert not alone.knows(x, torch.zeros(5, dtype=dtype))
    alone.calls.lend(*TorchArrays().layout())
    out = torch.zeros(5, dtype=dtype)
    assert alone.knows(x, out) and torch.equal(out, x) and alone.knows(x.numpy(), out.numpy())
    others = torch.float64, torch.int8, torch.float8_e4m3fn, torch.bfloat16, torch.uint16
    for other in others:
        assert not alone.knows(torch.empty(5, dtype=other), torch.empty(5, dtype=other))
    with pytest.raises(TypeError, match="once"):
        alone.calls.lend(*TorchArrays().layout())
