"""NCCL's collectives on CuPy arrays.

On a fake of CuPy's binding; ``MPICOLL_TEST_GPU=1`` asks for the real one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from expect import expected, input_shape, values
from run_collective import ROOTED, compare, on_gpu

from mpicoll import Collectives, RankLost, Unavailable, UnknownName
from mpicoll.backend import DIRECT, IPC, STAGED
from mpicoll.gpu.ipc import SWITCH
from mpicoll.gpu.nccl import BLOCKING
from mpicoll.measurement.cases import CPU, CUDA, Wanted, cases, groups
from mpicoll.selection import tables

pytest.importorskip("mpi4py")
from fake_cupy_nccl import Nccl, install

nccl = pytest.importorskip("mpicoll.mpi.nccl")
UNEVEN = ("gather", "allgather", "scatter", "alltoall")
REAL = os.environ.get("MPICOLL_TEST_GPU", "") not in ("", "0")
IN_PLACE = ("allreduce", "broadcast", "alltoall")


@pytest.fixture
def g(c: Collectives) -> Iterator[Collectives]:
    if c.backend != "mpi4py":
        pytest.skip("beside MPI's own")
    part = c.split(0)
    assert part is not None
    yield part
    part.free()


@pytest.fixture
def fake(g: Collectives, monkeypatch: pytest.MonkeyPatch) -> Nccl:
    if REAL:
        pytest.skip("the fake one")
    return install(g, monkeypatch)


@pytest.fixture
def any_nccl(g: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL, a fake or the real one."""
    if not REAL:
        install(g, monkeypatch)
        return
    try:
        g.plan("allreduce", on_gpu(g, np.zeros(4), "int32"), algorithm="native:nccl")
    except (UnknownName, Unavailable) as refused:
        pytest.skip(str(refused))


def check(
    g: Collectives, name: str, op: str = "sum", dtype: str = "int32", counts: Any = None,
    in_place: bool = False,
) -> None:  # fmt: skip
    """Run a plan on changing inputs, and start it."""
    root = g.size - 1
    shapes = [input_shape(name, g.size, rank, (6,), counts) for rank in range(g.size)]
    x = on_gpu(g, np.zeros(shapes[g.rank]), dtype)
    out = x if in_place else None
    with g.plan(name, x, op=op, root=root, counts=counts, out=out, algorithm="native:nccl") as plan:
        assert (plan.algorithm, plan.transport, plan.executor) == ("native:nccl", DIRECT, "native")
        for turn in range(2):
            inputs = [values(s, dtype, rank + 31 * turn, op) for rank, s in enumerate(shapes)]
            g.transport.arrays.from_host(x, inputs[g.rank])
            if turn:
                plan.start().wait()
            else:
                plan.run()
            g.transport.arrays.synchronize(g.gpu())  # the fake GPU works when it is waited for
            wanted = expected(name, inputs, op, root, counts)[g.rank]
            if wanted is not None:
                compare(g, plan.out, wanted, dtype)


@pytest.mark.parametrize("name", [*ROOTED, "allreduce", "allgather", "reduce_scatter", "alltoall"])
def test_every_collective(g: Collectives, any_nccl: None, name: str) -> None:
    assert "native:nccl" in g.algorithms(name)
    check(g, name)


@pytest.mark.parametrize(
    ("lacks", "taken", "transport"),
    [("nothing", "", IPC), ("memory", "native:nccl", DIRECT), ("NCCL", "native", STAGED),
     ("a GPU of its own", "native", STAGED)],
)  # fmt: skip
def test_auto_takes_it_before_an_mpi_that_cannot_read_gpu_memory(
    g: Collectives, fake: Nccl, lacks: str, taken: str, transport: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Where ranks share no memory, as between nodes; what one rank lacks, all do without."""
    if g.size == 1:
        pytest.skip("nothing is sent")
    if lacks != "nothing":
        monkeypatch.setenv(SWITCH, "0")
    if lacks == "NCCL" and g.rank == 1:
        monkeypatch.setattr(nccl, "library", lambda: None)
    if lacks == "a GPU of its own":
        monkeypatch.setattr(nccl, "_place", lambda gpu: ("here", "0"))
    with g.plan("allreduce", on_gpu(g, np.full(9, g.rank), "int32")) as plan:
        assert plan.transport == transport and plan.algorithm.startswith(taken)
        plan.run()
        g.transport.arrays.synchronize(g.gpu())
        compare(g, plan.out, np.full(9, sum(range(g.size))), "int32")


@pytest.mark.parametrize(("lacks", "taken"), [(False, "native:nccl"), (True, "one_shot")])
def test_auto_takes_it_where_a_table_of_gpus_says_so(
    g: Collectives, fake: Nccl, lacks: bool, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a rank lacks it; what the table says of arrays on the host is not asked."""

    def load(*key: Any, gpu: str) -> tables.Decisions:
        said = "native:nccl" if gpu == "fake" else "ring"
        return {"allreduce": tables.Decision([{"upto": None, "algorithm": said}])}

    monkeypatch.setattr(tables, "load", load)
    if lacks and g.rank == g.size - 1:
        monkeypatch.setattr(nccl, "library", lambda: None)
    taken = taken if g.size > 1 or not lacks else "native"
    with g.plan("allreduce", on_gpu(g, np.full(9, g.rank), "int32")) as plan:
        assert plan.algorithm == taken


def test_the_benchmark_measures_it_beside_mpi_where_arrays_lie_on_a_gpu(
    g: Collectives, fake: Nccl
) -> None:
    for device in (CPU, CUDA):
        wanted = Wanted(collectives=("allreduce",), sizes=(64,), device=device)
        (group,) = groups(wanted, g.size)
        found = [each.algorithm for each in cases(group, {g.backend: g}, wanted)]
        assert ("native:nccl" in found) == (device == CUDA)


@pytest.mark.parametrize("unique", [bytes(range(128)), tuple(range(-64, 64))])
def test_one_communicator_serves_a_group(
    g: Collectives, fake: Nccl, unique: bytes | tuple[int, ...]
) -> None:
    fake.unique = unique
    check(g, "allreduce")
    check(g, "broadcast")
    assert fake.made == 1


def test_another_gpu_takes_another_group(g: Collectives, fake: Nccl) -> None:
    check(g, "allreduce")
    arrays: Any = g.transport.arrays
    turn = g.transport.gpu_turn + (g.rank == g.size - 1)
    x = arrays.empty((4,), "int32", arrays.on_gpu(turn))
    with pytest.raises(Unavailable, match=f"rank {g.size - 1}: NCCL has its GPU .*, not another"):
        g.plan("allreduce", x, algorithm="native:nccl")


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(g: Collectives, any_nccl: None, name: str) -> None:
    check(g, name, in_place=True)


@pytest.mark.parametrize("name", UNEVEN)
def test_unequal_counts(g: Collectives, any_nccl: None, name: str) -> None:
    rows = [(3 * rank + 1) % 4 for rank in range(g.size)]
    check(g, name, counts=[[n + rank for n in rows] for rank in range(g.size)]
          if name == "alltoall" else rows)  # fmt: skip


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("max", "uint64"), ("prod", "float64"), ("min", "int8"), ("avg", "float32"),
     ("sum", "complex64"), ("avg", "complex128"), ("land", "bool"), ("bor", "bool")],
)  # fmt: skip
def test_operators_and_dtypes(g: Collectives, any_nccl: None, op: str, dtype: str) -> None:
    for name in ("allreduce", "reduce", "reduce_scatter"):
        check(g, name, op, dtype)


@pytest.mark.parametrize(
    ("name", "op", "dtype", "says"),
    [("allreduce", "prod", "complex64", "no op 'prod' on complex64"),
     ("allreduce", "sum", "int16", "no op 'sum' on int16"),
     ("allreduce", "bxor", "int32", "no op 'bxor' on int32"),
     ("scan", "sum", "int32", "no scan: use a schedule")],
)  # fmt: skip
def test_what_nccl_lacks(
    g: Collectives, any_nccl: None, name: str, op: str, dtype: str, says: str
) -> None:
    with pytest.raises(Unavailable, match=says):
        g.plan(name, on_gpu(g, np.zeros(4), dtype), op=op, algorithm="native:nccl")
    with pytest.raises(Unavailable, match="takes CuPy arrays"):
        g.plan("allreduce", np.zeros(4), algorithm="native:nccl")


def test_ranks_that_share_a_gpu_are_named(
    g: Collectives, fake: Nccl, monkeypatch: pytest.MonkeyPatch
) -> None:
    if g.size == 1:
        pytest.skip("nobody shares")
    monkeypatch.setattr(nccl, "_place", lambda gpu: ("here", f"{max(1, g.rank)}"))
    monkeypatch.setattr(nccl, "why_not_shared", lambda: "too old" if g.rank == 1 else "")
    with pytest.raises(Unavailable, match=r"ranks \[0, 1\] share one GPU: too old"):
        g.plan("allreduce", on_gpu(g, np.zeros(4), "int32"), algorithm="native:nccl")
    assert not fake.made
    monkeypatch.setattr(nccl, "why_not_shared", lambda: "")
    check(g, "allreduce")


@pytest.mark.parametrize("name", ["allreduce", "alltoall"])
@pytest.mark.parametrize("started", [False, True])
def test_a_rank_that_does_not_come_is_lost(
    g: Collectives, fake: Nccl, monkeypatch: pytest.MonkeyPatch, started: bool, name: str
) -> None:
    """The stream of a rank whose NCCL waits for another never has done its work."""
    if g.size == 1:
        pytest.skip("nobody is missing")
    monkeypatch.setenv(BLOCKING, "1")
    monkeypatch.setattr(nccl, "_is_done", lambda stream: fake.aborted)
    x = on_gpu(g, np.zeros((g.size, 4)), "int32")
    with g.plan(name, x, algorithm="native:nccl") as plan:
        g.deadline = 0.3
        for _ in range(2):
            with pytest.raises(RankLost, match=rf"NCCL's own {name}: .* did not come in \d"):
                plan.start().wait() if started else plan.run()
        g.deadline = 60.0
    assert fake.aborted
    assert fake.group is None, "what comes next would wait in it"


def test_a_started_call_is_complete_when_its_stream_is_where_the_host_waits(
    g: Collectives, fake: Nccl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BLOCKING, "1")
    monkeypatch.setattr(nccl, "_is_done", lambda stream: not stream.work)
    x = on_gpu(g, np.full(4, g.rank), "int32")
    with g.plan("allreduce", x, algorithm="native:nccl") as plan:
        request = plan.start()
        assert not request.test()
        g.transport.arrays.synchronize(x)
        assert request.test()
        compare(g, plan.out, np.full(4, sum(range(g.size))), "int32")


def test_a_rank_that_does_not_connect_is_told_to_all(
    g: Collectives, fake: Nccl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> None:
        raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")

    if g.rank == g.size - 1:
        monkeypatch.setattr(fake, "NcclCommunicator", refuse)
    with pytest.raises(Unavailable, match=f"rank {g.size - 1}: NCCL_ERROR_SYSTEM_ERROR"):
        g.plan("allreduce", on_gpu(g, np.zeros(4), "int32"), algorithm="native:nccl")


def test_windows_hold_arrays(g: Collectives, any_nccl: None) -> None:
    if not REAL:
        pytest.skip("a fake has no memory of NCCL's")
    try:
        x = g.allocate(1000, "float32", like=g.gpu())
        out = g.allocate((g.size, 1000), "float32", like=g.gpu())
    except Unavailable as refused:
        pytest.skip(str(refused))
    for turn in range(3):
        g.transport.arrays.from_host(x, np.arange(1000) + g.rank + turn)
        g.plan("allgather", x, out=out, algorithm="native:nccl").run()
        wanted = [np.arange(1000) + rank + turn for rank in range(g.size)]
        compare(g, out, np.array(wanted), "float32")


def test_without_nccl_there_is_no_such_name(g: Collectives) -> None:
    if nccl.library() is not None:
        pytest.skip("CuPy has NCCL")
    with pytest.raises(UnknownName, match="native:nccl"):
        g.plan("allreduce", np.zeros(4), algorithm="native:nccl")
    assert "native:nccl" not in g.algorithms("allreduce")
