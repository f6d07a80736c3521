"""What a call of a method does between nodes, in Python and compiled."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpicoll.execution import extension
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.peers.calls import BEGUN, ENDED, PLAN, Calls
from mpicoll.runtime.stated import Served, Steps, stated


class Group:
    """What the plans of a group would do for a call: each step notes what it finds.

    Args:
        fails: the step that raises.
        makes: the call makes an array for its result.
    """

    def __init__(self, count: int = 3, fails: str = "", makes: bool = True) -> None:
        self.own_x, self.own_out = np.zeros(count), np.zeros(count)
        self.calls, self.fails, self.makes = Calls(lambda: 0, lambda ranks: []), fails, makes
        self.calls.numbers[:] = array("q", [4, 4, 2])
        self.noted: list[tuple[str, list[int]]] = []

    def note(self, what: str) -> None:
        self.noted.append((what, list(self.calls.numbers)))
        if what == self.fails:
            raise ValueError(what)

    def make(self) -> Any:
        self.note("make")
        return np.zeros_like(self.own_out) if self.makes else None

    def run(self) -> None:
        self.note("run")
        self.own_out[:] = -self.own_x

    def run_for(self, x: Any, out: Any) -> None:
        if x is not None:
            self.own_x[...] = x
        self.run()
        if out is not None and self.gives:
            out[...] = self.own_out

    def fail(self, error: BaseException, x: Any, out: Any) -> Any:
        self.note(f"fail: {error}")
        self.given = x, out
        return "served otherwise"

    def serve(
        self, compiled: bool, takes: tuple[bool, bool] = (True, True), *, gives: bool = True,
        out: bool = True, signals: bool = True,
    ) -> Callable[[Any, Any], Any]:  # fmt: skip
        """Return what serves calls of this group."""
        self.gives = gives
        signal = {each: SimpleNamespace(run=lambda each=each: self.note(each)) if signals else None
                  for each in ("meet", "release")}  # fmt: skip
        arguments = SimpleNamespace(device="host", has_output=self.makes)
        own = SimpleNamespace(x=self.own_x)
        plan = SimpleNamespace(out=self.own_out if out else None, run=self.run)
        kept = SimpleNamespace(number=7, plan=plan, arguments=own, **signal)
        served = Served(kept, arguments, b"", takes, gives, 0)  # type: ignore[arg-type]
        steps = Steps(self.make, self.run_for, self.fail)
        layout = NumpyArrays().layout()
        arrays = extension.functions(layout, self.run) if compiled else None
        return stated(served, steps, self.calls, None, arrays)


kinds = pytest.mark.parametrize(
    "compiled", [pytest.param(False, id="Python"), pytest.param(True, id="C")]
)


@kinds
def test_the_order_of_what_it_does(compiled: bool) -> None:
    group = Group()
    x, out = np.arange(3.0), np.ones(3)
    serve = group.serve(compiled)
    assert serve(x, out) is out
    assert list(out) == [0, -1, -2] and list(x) == [0, 1, 2]
    under_way = [5, 4, 7]
    assert group.noted == [("meet", under_way), ("run", under_way), ("release", under_way)]
    assert (BEGUN, ENDED, PLAN) == (0, 1, 2)
    assert list(group.calls.numbers) == [5, 5, 7]
    assert serve(out, out) is out and list(out) == [0, 1, 2]  # in place
    assert list(group.calls.numbers) == [6, 6, 7]


@kinds
def test_no_signals(compiled: bool) -> None:
    group = Group()
    group.serve(compiled, signals=False)(np.ones(3), np.ones(3))
    assert [what for what, _ in group.noted] == ["run"]


@kinds
@pytest.mark.parametrize("count", [0, 1, 1 << 15])
@pytest.mark.parametrize(
    ("takes_out", "is_given"), [(True, False), (False, True)], ids=["none given", "not taken"]
)
def test_a_new_array(compiled: bool, count: int, takes_out: bool, is_given: bool) -> None:
    """It is made before other ranks can learn of the call."""
    group = Group(count)
    x, given = np.arange(count, dtype=float), np.full(count, 5.0)
    found = group.serve(compiled, (True, takes_out))(x, given if is_given else None)
    assert found is not given and np.array_equal(found, -x) and (given == 5).all()
    assert group.noted[0] == ("make", [4, 4, 2])


@kinds
def test_what_a_rank_neither_takes_nor_gives(compiled: bool) -> None:
    group = Group()
    x, out = np.ones(3), np.full(3, 5.0)
    serve = group.serve(compiled, (False, True), gives=False)
    assert serve(x, out) is out
    assert list(group.own_x) == [0, 0, 0] and list(out) == [5, 5, 5]


@kinds
def test_a_rank_that_gets_nothing(compiled: bool) -> None:
    group = Group(makes=False)
    serve = group.serve(compiled, (True, False), gives=False, out=False)
    assert serve(np.ones(3), None) is None
    assert list(group.own_x) == [1, 1, 1]


@kinds
@pytest.mark.parametrize("step", ["make", "meet", "run", "release"])
def test_an_error(compiled: bool, step: str) -> None:
    group = Group(fails=step)
    x = np.ones(3)
    assert group.serve(compiled)(x, None) == "served otherwise"
    assert group.given == (x, None)
    begun = 4 if step == "make" else 5
    assert group.noted[-1][0] == f"fail: {step}"
    assert group.calls.numbers[BEGUN] == begun and group.calls.numbers[ENDED] == 4


@kinds
def test_arrays_that_only_python_reads(compiled: bool) -> None:
    group = Group()
    x, out = np.arange(6.0)[::2], np.ones(6)[::2]
    assert group.serve(compiled)(x, out) is out and list(out) == [0, -2, -4]


def test_what_it_refuses() -> None:
    group = Group()
    serve = group.serve(True)
    with pytest.raises(TypeError, match="an input and an output"):
        serve(np.ones(3))  # type: ignore[call-arg]
    group.calls.numbers = array("q", [0, 0])
    with pytest.raises(ValueError, match="three numbers"):
        group.serve(True)
    group = Group()
    group.own_x = np.ones(6)[::2]
    with pytest.raises(ValueError, match="cannot be read"):
        group.serve(True)
    group = Group()
    serve = group.serve(True)
    group.makes = False  # a new array that is none
    assert serve(np.ones(3), None) == "served otherwise"
    assert group.noted[-1][0] == "fail: the new array cannot be read"
