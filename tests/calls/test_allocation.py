"""One rank without memory for its arrays: the same error on all ranks, and the group goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from layouts import Layout
from run_collective import compare, device

from mpicoll import Collectives, Unavailable
from mpicoll.backend import Transport
from mpicoll.calls import allocation, binding
from mpicoll.calls.arguments import Arguments

pytestmark = pytest.mark.ranks(2, 3)
ALGORITHMS = ["auto", "ring", "one_shot", "native", "native:reduce+broadcast"]


@pytest.fixture(params=[MemoryError, RuntimeError], ids=["NumPy's", "torch's"])
def refusing(request: pytest.FixtureRequest) -> Iterator[None]:
    """The last rank has no memory."""

    def empty(transport: Transport, arguments: Arguments, shape: tuple[int, ...]) -> Any:
        if transport.rank == transport.size - 1:
            raise request.param("cannot allocate 1 TiB")
        return found(transport, arguments, shape)

    with pytest.MonkeyPatch.context() as patch:
        found = allocation.empty
        patch.setattr(allocation, "empty", empty)
        yield


MADE = {
    "by a method": lambda c, x, algorithm: c.allreduce(x, algorithm=algorithm),
    "by a plan": lambda c, x, algorithm: c.plan("allreduce", x, algorithm=algorithm),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.usefixtures("refusing")
def test_all_ranks_hear_of_it(c: Collectives, algorithm: str, made: str) -> None:
    x = device(c, np.ones(5), "float64")
    out = device(c, np.zeros(5), "float64")
    with pytest.raises(Unavailable, match=f"no memory .* rank {c.size - 1}: cannot allocate 1 TiB"):
        MADE[made](c, x, algorithm)
    with c.plan("allreduce", x, out=out, algorithm="ring") as plan:  # it has all its arrays
        plan.run()
    compare(c, out, np.full(5, c.size), "float64")


@pytest.fixture
def short_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last rank has no memory for the rows of a program, nor for a copy of an input."""

    def fill(table: Any) -> None:
        if table.transport.rank == table.transport.size - 1:
            raise MemoryError("cannot allocate 1 TiB")
        fill_all(table)

    def copy(transport: Transport, arguments: Arguments) -> Any:
        if transport.rank == transport.size - 1:
            raise MemoryError("cannot allocate 1 TiB")
        return copy_input(transport, arguments)

    fill_all, copy_input = binding.Table.fill, binding.empty_like_input
    monkeypatch.setattr(binding.Table, "fill", fill)
    monkeypatch.setattr(binding, "empty_like_input", copy)


@pytest.mark.usefixtures("short_of")
def test_all_ranks_hear_of_it_where_folds_are_fetched(c: Collectives) -> None:
    if c.transport.shared is None or c.transport.shared.no_cma:
        pytest.skip("no CMA here")
    x = device(c, np.ones(1 << 20), "float64")
    with pytest.raises(Unavailable, match=f"no memory .* rank {c.size - 1}: cannot allocate 1 TiB"):
        c.plan("allreduce", x, algorithm="ring@cma")
    c.plan("allreduce", x, algorithm="native").run()


@pytest.mark.ranks(2, Layout(4, per_node=2))
@pytest.mark.parametrize("name", ["allreduce", "alltoall"])
@pytest.mark.usefixtures("short_of")
def test_all_ranks_hear_of_it_in_the_middle_of_binding(c: Collectives, name: str) -> None:
    """Between nodes, where no note in shared memory says so."""
    x = device(c, np.ones((c.size, 3)), "float64")
    with pytest.raises(Unavailable, match=f"no memory .* rank {c.size - 1}: cannot allocate 1 TiB"):
        c.plan(name, x, out=x, algorithm={"allreduce": "ring", "alltoall": "naive"}[name]
               + "@point-to-point")  # fmt: skip
    c.plan("allgather", x, algorithm="native").run()
