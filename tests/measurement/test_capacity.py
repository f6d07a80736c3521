"""The memory of a case: its estimate, and the refusal of one that does not fit."""

from __future__ import annotations

from typing import Any

import fake_gpu
import numpy as np
import pytest
from run_collective import device

from mpicoll import Collectives
from mpicoll.cli.watchdog import Watchdog
from mpicoll.errors import ArgumentError
from mpicoll.machine.gpu_links import OwnGpu
from mpicoll.measurement import capacity, measure
from mpicoll.measurement.candidate import Settings
from mpicoll.measurement.capacity import needed, remarks_on_memory, weigh
from mpicoll.measurement.cases import CUDA, NEW_ARRAYS, Case, Group, Wanted, cases, groups
from mpicoll.measurement.measure import Bench
from mpicoll.measurement.program_memory import program_bytes
from mpicoll.measurement.workbench import Workbench

SIZE = 1 << 24
_FLAGS = 1 << 18
"""More bytes than flags take, which an estimate leaves out."""
NEEDS = {
    "allreduce": (2, 1), "allgather": (1.25, 1), "alltoall": (2, 1), "reduce_scatter": (1.25, 1),
    "scan": (2, 2), "exscan": (2, 2),
}  # fmt: skip
"""The bytes of both arrays and within the library on 4 ranks, in multiples of the size."""


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each node have 1 GiB, whatever this machine has."""
    monkeypatch.setattr(capacity, "available_memory", lambda: 1 << 30)
    monkeypatch.setattr(capacity, "free_in_process", lambda: None)


def grouped_cases(
    c: Collectives, name: str, *sizes: int, algorithms: str = "native"
) -> list[list[Case]]:
    """Return the cases of one collective, by size."""
    wanted = Wanted((name,), (algorithms,), sizes or (SIZE,))
    return [cases(group, {c.backend: c}, wanted) for group in groups(wanted, c.size)]


@pytest.mark.ranks(4)
@pytest.mark.parametrize("name", NEEDS)
def test_a_native_call_needs_its_arrays_and_as_much_as_the_library(
    c: Collectives, name: str
) -> None:
    (group_cases,) = grouped_cases(c, name)
    arrays, library = NEEDS[name]
    worlds = {c.backend: c}
    assert needed(group_cases, worlds) == (arrays + library) * SIZE
    persistent = Case(group_cases[0].group, c.backend, "native_persistent")
    assert needed([persistent, *group_cases], worlds) == (arrays + 2 * library) * SIZE


@pytest.mark.ranks(4)
def test_new_arrays_in_every_call_are_those_of_a_pool(c: Collectives) -> None:
    (group_cases,) = grouped_cases(c, "allreduce")
    new = Case(group_cases[0].group, c.backend, "native", NEW_ARRAYS)
    assert needed([*group_cases, new], {c.backend: c}) == (3 * 2 + 1) * SIZE


@pytest.mark.ranks(2)
def test_a_rank_without_the_result_of_a_reduce_holds_a_partial_one(c: Collectives) -> None:
    (group_cases,) = grouped_cases(c, "reduce")
    assert needed(group_cases, {c.backend: c}) == 3 * SIZE


@pytest.mark.ranks(4)
@pytest.mark.parametrize(
    ("algorithm", "rows"),
    [("ring@point-to-point", 0.25), ("recursive_doubling@point-to-point", 1)],
)
def test_a_schedule_by_messages_needs_its_scratch(
    c: Collectives, algorithm: str, rows: float
) -> None:
    group = grouped_cases(c, "allreduce")[0][0].group
    assert needed([Case(group, c.backend, algorithm)], {c.backend: c}) == (2 + rows) * SIZE


@pytest.mark.ranks(2, 4)
@pytest.mark.threads_only
@pytest.mark.parametrize("transport", ["symmetric", "cma"])
@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("allreduce", "one_shot"), ("allreduce", "two_shot"), ("reduce", "binomial"),
     ("exscan", "two_shot"), ("alltoall", "ring"), ("scan", "recursive_doubling")],
)  # fmt: skip
def test_a_schedule_in_shared_memory_takes_what_was_estimated(
    c: Collectives, name: str, algorithm: str, transport: str
) -> None:
    """Windows, slots, scratch, and the buffers of what is fetched and folded."""
    shared, group = c.transport.shared, grouped_cases(c, name)[0][0].group
    if shared is None or (transport == "cma" and shared.no_cma):
        pytest.skip("ranks cannot read each other's memory")
    shape = (c.size, SIZE // 4 // c.size) if name == "alltoall" else (SIZE // 4,)
    x = device(c, np.ones(shape), "float32")
    out = None if name == "reduce" and c.rank else device(c, np.ones(shape), "float32")
    areas: list[int] = []
    take = shared.allocator.take
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            shared.allocator, "take", lambda nbytes: ((area := take(nbytes)) and areas.append(
                nbytes)) or area)  # fmt: skip
        with c.plan(name, x, out=out, algorithm=f"{algorithm}@{transport}"):
            resources: Any = c.planner.tags.held[max(c.planner.tags.held)]
            private = sum(array.nbytes for array in resources.buffers)
    private -= sum(array.nbytes for array in (x, out) if array is not None)
    taken, estimate = sum(areas) + private, program_bytes(group, c, f"{algorithm}@{transport}")
    assert taken <= estimate + _FLAGS
    # What a fold fetches lies in buffers of its own.
    assert estimate <= taken + _FLAGS or transport == "cma"


@pytest.mark.ranks(4)
@pytest.mark.usefixtures("free")
def test_a_size_that_does_not_fit_is_refused_with_one_that_does(c: Collectives) -> None:
    worlds = {c.backend: c}
    small, large = grouped_cases(c, "allreduce", SIZE, 900 << 30)
    assert weigh(small, worlds).refusal == ""
    refusal = weigh(large, worlds).refusal
    assert "it takes about 10800G on the node of rank 0" in refusal
    assert "921M are free for 4 ranks: up to 64M would fit" in refusal.replace("922M", "921M")
    (fits,) = grouped_cases(c, "allreduce", 64 << 20)
    assert weigh(fits, worlds).refusal == ""


@pytest.mark.ranks(4)
@pytest.mark.threads_only
@pytest.mark.parametrize(("gpus", "fits", "rank"), [(1, "64M", 0), (2, "128M", 2)])
def test_ranks_that_share_a_gpu_share_its_memory(
    c: Collectives, gpus: int, fits: str, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the first rank of the GPU on which the case takes the most."""
    part = c.split(0)
    assert part is not None
    fake_gpu.install(part)

    def own_gpu(worlds: dict[str, Collectives]) -> OwnGpu:
        index = next(iter(worlds.values())).rank * gpus // 4
        return OwnGpu(index, str(index), 1 << 30)

    monkeypatch.setattr(capacity, "own_gpu", own_gpu)
    wanted = Wanted(("allreduce",), ("native", "one_shot@ipc", "ring@staged"),
                    (SIZE, 900 << 30), device=CUDA)  # fmt: skip
    worlds = {c.backend: part}
    small, large = [cases(group, worlds, wanted) for group in groups(wanted, c.size)]
    assert weigh(small, worlds).refusal == ""
    refusal = weigh(large, worlds).refusal
    assert f"are free for {4 // gpus} ranks: up to {fits} would fit" in refusal
    assert f"on the GPU of rank {rank}," in refusal
    part.free()


@pytest.mark.ranks(2)
@pytest.mark.usefixtures("free")
def test_a_stated_limit_counts_for_each_rank(c: Collectives) -> None:
    (group_cases,) = grouped_cases(c, "allreduce")
    assert weigh(group_cases, {c.backend: c}, 3 * SIZE).refusal == ""
    refusal = weigh(group_cases, {c.backend: c}, SIZE).refusal
    assert refusal == "it takes about 48M on rank 0, which may take 16M: up to 4M would fit"


@pytest.mark.ranks(2)
@pytest.mark.usefixtures("free")
def test_a_run_is_refused_where_nothing_fits(c: Collectives) -> None:
    worlds, watchdog = {c.backend: c}, Steps(0)
    (remark,) = remarks_on_memory(grouped_cases(c, "allreduce", SIZE, 900 << 30), worlds, watchdog)
    assert [name.partition(" B ")[0] for name in watchdog.names] == [
        "estimating the memory of allreduce 16777216",
        "estimating the memory of allreduce 966367641600",
        "",
    ]
    assert remark.startswith("allreduce 966367641600 B float32 sum is left out")
    with pytest.raises(ArgumentError, match="would fit"):
        remarks_on_memory(grouped_cases(c, "allreduce", 900 << 30), worlds, watchdog)


class Steps(Watchdog):
    """Notes what it is to watch."""

    def __init__(self, limit: float) -> None:
        self.names: list[str] = []
        super().__init__(limit)

    def step(self, name: str) -> None:
        self.names.append(name)


@pytest.mark.ranks(2)
@pytest.mark.usefixtures("free")
def test_nothing_is_allocated_for_a_case_that_does_not_fit(c: Collectives) -> None:
    (large,) = grouped_cases(c, "allreduce", 900 << 30)
    (candidate,) = Bench({c.backend: c}, Settings(), Watchdog(0)).measure(large, 1.0)
    assert candidate.plan is None and candidate.message.startswith("no memory: it takes about")


@pytest.mark.ranks(2)
def test_memory_that_one_rank_lacks_refuses_a_case_on_all(
    c: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for that rank where plans are bound."""

    def bench(world: Collectives, group: Group, pool: bool) -> Workbench:
        if world.rank == 1:
            raise MemoryError("Unable to allocate 16.0 MiB")
        return Workbench(world, group, pool)

    monkeypatch.setattr(measure, "Workbench", bench)
    (wanted,) = grouped_cases(c, "allreduce", 64, algorithms="ring")
    candidates = Bench({c.backend: c}, Settings(), Watchdog(0)).measure(wanted, 1.0)
    assert [candidate.plan for candidate in candidates] == [None] * len(wanted)
    assert {candidate.message for candidate in candidates} == {
        "no memory on rank 1: Unable to allocate 16.0 MiB"
    }
