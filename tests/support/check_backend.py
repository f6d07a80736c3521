"""Checks of the backend for torch.distributed that every rank of a group runs together.

``torchrun --nproc-per-node 3 tests/support/check_backend.py torchcoll`` prints a line
for each check and rank: ``ok`` and its name, or what is wrong.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial, reduce
from itertools import product
from operator import xor
from threading import Event, get_native_id
from time import sleep
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch._dynamo
import torch.distributed as dist
from side_effects import CASES, COLLECTIVES, Effects, observe
from torch.distributed import ReduceOp, distributed_c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor

from mpicoll.flight import groups as flight_groups
from mpicoll.flight import reader
from torchcoll.backend import describe_group

BACKEND = sys.argv[1]
PLANNED = (
    "allreduce", "broadcast", "reduce", "allgather", "gather", "scatter", "reduce_scatter",
    "alltoall",
)  # fmt: skip
"""The collectives on tensors that have plans between nodes."""
OPS = {
    "SUM": (sum, (torch.float32, torch.bfloat16, torch.int16, torch.complex64)),
    "AVG": (lambda all_: sum(all_) / len(all_), (torch.float64, torch.float16)),
    "PRODUCT": (lambda all_: torch.stack(all_).prod(0), (torch.float32, torch.int64)),
    "MIN": (lambda all_: torch.stack(all_).amin(0), (torch.float32, torch.uint8)),
    "MAX": (lambda all_: torch.stack(all_).amax(0), (torch.float64, torch.int8)),
    "BAND": (lambda all_: all_[0] & all_[1] & all_[-1], (torch.int32,)),
    "BOR": (lambda all_: all_[0] | all_[1] | all_[-1], (torch.int64,)),
    "BXOR": (lambda all_: reduce(xor, all_), (torch.uint8,)),
}


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def given(of: int, dtype: Any = torch.float32, count: int = 6) -> torch.Tensor:
    """Return the input of a rank: small numbers, on which every operator is exact."""
    return (torch.arange(count) % 3 + of + 1).to(dtype)


def every(dtype: Any = torch.float32, count: int = 6) -> list[torch.Tensor]:
    return [given(each, dtype, count) for each in range(size())]


class Functions(TorchFunctionMode):
    """Collects the names of torch's functions that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        self.names.add(function.__name__)
        return function(*given, **(named or {}))


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


# -- checks ---------------------------------------------------------------------------------


def check_name() -> None:
    assert dist.get_backend() == BACKEND
    assert type(dist.group.WORLD).__module__ == "torchcoll.backend.group"


def check_allreduce_of_every_operator() -> None:
    for name, (fold, dtypes) in OPS.items():
        for dtype in dtypes:
            x = given(rank(), dtype)
            dist.all_reduce(x, getattr(ReduceOp, name))
            same(x, fold(every(dtype)).to(dtype))


def check_reduce_leaves_the_others_alone() -> None:
    x = given(rank())
    dist.reduce(x, 1)
    same(x, sum(every()) if rank() == 1 else given(rank()))


def check_broadcast() -> None:
    for dtype in (torch.float32, torch.bool, torch.float8_e4m3fn):
        x = given(rank(), torch.float32).to(dtype)
        dist.broadcast(x, size() - 1)
        same(x.to(torch.float32), given(size() - 1).to(dtype).to(torch.float32))


def check_gathers() -> None:
    found = [torch.empty(6) for _ in range(size())]
    dist.all_gather(found, given(rank()))
    same(found, every())
    parts = list(torch.empty(size(), 6).unbind())
    dist.all_gather(parts, given(rank()))
    same(parts, every())
    whole = torch.empty(size() * 6)
    dist.all_gather_into_tensor(whole, given(rank()))
    same(whole, torch.cat(every()))
    found = [torch.empty(6) for _ in range(size())] if rank() == 0 else None
    dist.gather(given(rank()), found, 0)
    if found is not None:
        same(found, every())


def check_gathers_in_place() -> None:
    whole = torch.zeros(size(), 4)
    whole[rank()] = given(rank(), count=4)
    dist.all_gather_into_tensor(whole, whole[rank()])
    same(whole, torch.stack(every(count=4)))


def check_gather_of_unequal_lengths() -> None:
    found = [torch.empty(each) for each in range(size())]
    dist.all_gather(found, torch.full((rank(),), float(rank())))
    same(found, [torch.full((each,), float(each)) for each in range(size())])


def check_scatters() -> None:
    x = torch.empty(6)
    dist.scatter(x, every() if rank() == 1 else None, 1)
    same(x, given(rank()))
    x = torch.empty(6)
    dist.reduce_scatter(x, [given(rank()) + each for each in range(size())])
    same(x, sum(every()) + size() * rank())
    x = torch.empty(2)
    dist.reduce_scatter_tensor(x, given(rank(), count=2 * size()), ReduceOp.AVG)
    mean = sum(every(count=2 * size())) / size()
    same(x, mean[2 * rank() : 2 * rank() + 2])


def check_all_to_all() -> None:
    x = torch.empty(2 * size())
    dist.all_to_all_single(x, torch.arange(2.0 * size()) + 100 * rank())
    same(x, torch.cat([torch.arange(2.0) + 2 * rank() + 100 * each for each in range(size())]))
    sent = [each + 1 for each in range(size())]
    x = torch.empty(size() * (rank() + 1), 2)
    rows = torch.full((sum(sent), 2), float(rank()))
    dist.all_to_all_single(x, rows, [rank() + 1] * size(), sent)
    same(x[:: rank() + 1, 0], torch.arange(float(size())))
    outputs = [torch.empty(each + 1) for each in range(size())]
    inputs = [torch.full((rank() + 1,), float(rank())) for _ in range(size())]
    dist.all_to_all(outputs, inputs)
    same(outputs, [torch.full((each + 1,), float(each)) for each in range(size())])


def check_sizes_that_do_not_fit_name_the_ranks() -> None:
    sent = [1 + (each == rank()) for each in range(size())]
    text = f"rank {rank()} sends 2 elements to rank {rank()}, which expects 1"
    with pytest.raises(ValueError, match=text):
        dist.all_to_all_single(torch.empty(size()), torch.empty(size() + 1), [1] * size(), sent)
    part, sent = dist.new_group(), [1] * size()
    sent[-1] += rank() == 0
    last = size() - 1

    def exchange() -> None:
        x = torch.empty(sum(sent))
        dist.all_to_all_single(torch.empty(size()), x, [1] * size(), sent, part)
        dist.barrier(part)

    with pytest.raises(RuntimeError, match=rf"rank {last}|rank 0 in alltoall \(8 bytes"):
        exchange()
    with pytest.raises(RuntimeError, match="ranks need"):
        dist.all_gather_into_tensor(torch.empty(size()), torch.empty(2))


def check_objects() -> None:
    found: list[Any] = [None] * size()
    dist.all_gather_object(found, {"rank": rank(), "text": "x" * 10 ** (rank() + 1)})
    assert [each["rank"] for each in found] == list(range(size()))
    said = [rank()]
    dist.broadcast_object_list(said, 1)
    assert said == [1]
    output: list[Any] = [None]
    dist.scatter_object_list(output, [f"to {each}" for each in range(size())], 0)
    assert output == [f"to {rank()}"]


def check_tensors_that_are_not_contiguous() -> None:
    x = torch.zeros(4, 6)
    x[:, 1] = given(rank(), count=4)
    dist.all_reduce(x[:, 1])
    same(x[:, 1], sum(every(count=4)))
    assert not x[:, 0].any() and not x[:, 2:].any()
    y = given(rank()).view(2, 3).t()
    dist.broadcast(y, 0)
    same(y, given(0).view(2, 3).t())
    z = torch.complex(given(rank()), given(rank())).conj().imag
    assert z.is_neg()
    dist.all_reduce(z)
    same(z.resolve_neg(), -sum(every()))


def check_tensors_of_no_element_and_of_one() -> None:
    x = torch.empty(0)
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.all_gather_into_tensor(torch.empty(0), x)
    dist.all_to_all_single(torch.empty(0), x)
    y = torch.tensor(float(rank()))
    dist.all_reduce(y)
    assert float(y) == sum(range(size()))
    z = torch.ones(3, 1)[:, 0][:1]
    dist.all_reduce(z)
    assert float(z) == size()


def check_parameters() -> None:
    x = torch.nn.Parameter(given(rank()))
    dist.broadcast(x, 0)
    same(x.detach(), given(0))
    y = given(rank()).requires_grad_()
    dist.all_reduce(y.data)
    same(y.detach(), sum(every()))


def check_autograd_sees_what_it_sees_over_gloo() -> None:
    """In a group's first call and in later ones."""
    stock = dist.new_group(backend="gloo")
    for is_async in (False, True):
        group = dist.new_group()
        for case in CASES:
            expected = observe(*case, group=stock, is_async=is_async)
            for _ in range(3):
                assert observe(*case, group=group, is_async=is_async) == expected, case
        dist.destroy_process_group(group)


def check_a_leaf_is_not_gathered_into() -> None:
    for kind in ("leaf", "view of a leaf"):
        found = observe("all_gather_single", kind, True, group=dist.group.WORLD, is_async=False)
        assert found == Effects("leaf", False, 0, None, False)


def check_modes_that_are_set_before_the_first_call() -> None:
    """Each sees the program's calls, and no operators of which these consist."""
    for mode in (
        lambda: torch.device("meta"), torch.inference_mode, torch.no_grad, Functions,
        lambda: torch.autocast("cpu", torch.bfloat16), CommDebugMode, deterministic,
    ):  # fmt: skip
        with mode() as seen:
            group = dist.new_group()
            for is_async in (False, True):
                rows = [torch.empty(4, device="cpu") for _ in range(size())]
                work = dist.all_gather(rows, torch.ones(4, device="cpu"), group, is_async)
                if is_async:
                    sleep(0.01)  # a thread of the group may run it
                    work.wait()
                assert [row.tolist() for row in rows] == [[1.0] * 4] * size()
        if isinstance(seen, CommDebugMode):
            assert seen.get_total_counts() == 2, seen.get_comm_counts()
        if isinstance(seen, Functions):
            assert not seen.names & {"stack", "copy_", "view", "detach"}, seen.names
        dist.destroy_process_group(group)


def check_the_profiler_shows_what_it_shows_over_gloo() -> None:
    stock = dist.new_group(backend="gloo")
    for collective in ("all_reduce", "all_gather", "all_gather_single", "broadcast", "gather"):
        shown, count = [], size() if "single" in collective else 1
        for group in (stock, dist.group.WORLD):
            with torch.profiler.profile() as profile:
                COLLECTIVES[collective](torch.ones(4 * count), group=group)
            names = [event.name.replace(f"{BACKEND}:", "gloo:") for event in profile.events()]
            shown.append(sorted(each for each in names if each.startswith(("c10d::", "gloo:"))))
        assert shown[0] == shown[1], shown


@contextmanager
def callbacks_never_overtake() -> Iterator[None]:
    """Let no callback overtake another one that takes long, as on a busy machine."""
    order = sys.modules.get("torchcoll.backend.order")
    with patch.object(order, "_STUCK", 200.0) if order else nullcontext():
        yield


@callbacks_never_overtake()
def check_works_complete_in_the_order_of_issue() -> None:
    """Rank 0 issues nothing before the others wait: a callback of a complete work runs at once."""
    done: list[int] = []
    all_done = Event()
    tensors = [given(rank()) for _ in range(1000)]
    for each in range(1, size()) if rank() == 0 else ():
        dist.recv(torch.empty(1), each)
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    for index, work in enumerate(works):
        work.get_future().then(lambda _, index=index: done.append(index))
    works[-1].get_future().then(lambda _: all_done.set())
    if rank():
        dist.send(torch.ones(1), 0)
    assert all_done.wait(200)
    assert rank() == 0 or done == list(range(1000))
    assert all(work.is_completed() for work in works)
    same(tensors[500], sum(every()))


def check_a_callback_waits_for_a_call_that_it_makes() -> None:
    def again(_: Any) -> Any:
        return dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()[0]

    dist.all_reduce(torch.ones(2))
    if rank():
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(again)
        dist.send(torch.ones(1), 0)
        same(future.wait(), torch.full((2,), float(size())))
    else:
        for each in range(1, size()):
            dist.recv(torch.ones(1), each)
        for _ in range(2):
            dist.all_reduce(torch.ones(2))


def check_calls_that_block_come_after_those_that_do_not() -> None:
    x = given(rank())
    works = [dist.all_reduce(x, async_op=True) for _ in range(5)]
    dist.broadcast(x, 1)
    assert all(work.is_completed() for work in works)
    same(x, size() ** 4 * sum(every()))
    assert works[0].wait() and works[0].result()[0] is x


def check_what_is_not_ours_keeps_the_order() -> None:
    x, y = given(rank()), torch.eye(3).to_sparse() * (rank() + 1)
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True)]
    dist.all_reduce(x)
    assert all(work.is_completed() for work in works)
    same(y.to_dense(), torch.eye(3) * sum(range(1, size() + 1)))
    same(x, size() * sum(every()))


def check_what_watches_operators_sees_them() -> None:
    x = given(rank())
    with CommDebugMode() as seen:
        dist.all_reduce(x)
    assert seen.get_total_counts() == 1, seen.get_comm_counts()
    same(x, sum(every()))
    y = TwoTensor(given(rank()), given(rank()))
    dist.all_reduce(y)
    same(y.a, sum(every()))  # torch waits for the first of the two alone
    dist.barrier()


def compiled_frames(group: Any) -> tuple[int, Any]:
    """Return how many frames torch compiles of programs that call collectives, and gradients."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        work: Any = dist.all_reduce(y, group=group, async_op=True)
        work.wait()
        dist.broadcast(y, 0, group=group)
        dist.barrier(group)
        part = dist.new_group(backend=dist.get_backend(group))
        dist.broadcast(y, 0, group=part)
        return y + 1

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    same(torch.compile(program, backend="eager")(given(rank())), 2 * sum(every()) + 1)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6))
    model = torch.nn.parallel.DistributedDataParallel(layers, process_group=group)
    compiled = torch.compile(model, backend="eager")
    for _ in range(3):
        compiled(torch.outer(given(0), given(rank()))).square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    return torch._dynamo.utils.counters["frames"]["total"], gradients


def check_torch_compiles_no_frame_of_ours() -> None:
    gloo = dist.new_group(backend="gloo")
    compiled_frames(gloo)  # torch compiles some frames of its own only once
    frames, gradients = compiled_frames(gloo)
    our_frames, our_gradients = compiled_frames(dist.group.WORLD)
    assert our_frames == frames
    torch.testing.assert_close(our_gradients, gradients)


def check_methods_of_groups_take_tensors_instead_of_lists_of_one() -> None:
    group, most = dist.group.WORLD, timedelta(seconds=200)
    for _ in range(2):  # the first call of a group may take another way
        x, y, part = given(rank()), torch.tensor(float(rank())), torch.empty(6)
        rows = [torch.empty(6) for _ in range(size())]
        group.allreduce(x, ReduceOp.MAX).wait()
        same(x, torch.stack(every()).amax(0))
        group.broadcast(y, root=1).wait()
        same(y, torch.tensor(1.0))
        group.allgather(rows, given(rank()), most).wait()
        same(rows, every())
        group.scatter(part, every() if rank() == 0 else [], 0).wait()
        same(part, given(rank()))
        group.reduce_scatter(part, every(), ReduceOp.SUM).wait()
        same(part, size() * given(rank()))
        gathered = [torch.empty(6) for _ in range(size())] if rank() == 0 else []
        group.gather(gathered, given(rank()), 0).wait()
        same(gathered, every() if rank() == 0 else [])
        lists = [[torch.empty(6), torch.empty(3)] for _ in range(size())]
        group.allgather_coalesced(lists, [given(rank()), given(rank(), count=3)]).wait()
        same([row[1] for row in lists], every(count=3))


def check_several_tensors_in_one_call() -> None:
    """Gloo folds those of each rank, too."""
    stock, results = dist.new_group(backend="gloo"), []
    for group in (stock, dist.group.WORLD):
        tensors = [given(rank()), given(rank() + 1)]
        group.allreduce(tensors).wait()
        results.append(tensors)
    same(results[1], results[0])


def strided(of: int, count: int) -> torch.Tensor:
    """Return a tensor of some of the numbers of a rank, none beside another."""
    return torch.stack([given(of, count=count), torch.zeros(count)], 1)[:, 0]


def check_lists_of_tensors_that_are_not_contiguous() -> None:
    rows, ranks = [strided(0, 3) for _ in range(size())], range(size())
    dist.all_gather(rows, strided(rank(), 3))
    same(rows, every(count=3))
    dist.all_to_all(rows, [strided(rank(), 3) for _ in ranks])
    same(rows, every(count=3))
    rows = [strided(0, peer + 1) for peer in ranks]
    dist.all_gather(rows, strided(rank(), rank() + 1))
    same(rows, [given(peer, count=peer + 1) for peer in ranks])
    x = strided(0, rank() + 1)
    dist.reduce_scatter(x, [strided(rank(), peer + 1) for peer in ranks])
    same(x, sum(given(peer, count=rank() + 1) for peer in ranks))


def check_lists_that_are_read_and_written() -> None:
    for _ in range(2):
        rows = [given(rank()) for _ in range(size())]
        dist.all_to_all(rows, rows)
        same(rows, every())
        whole = torch.zeros(size(), 6)
        whole[rank()] = given(rank())
        rows = list(whole.unbind())
        dist.all_gather(rows, rows[rank()])
        same(rows, every())


def check_messages() -> None:
    x = torch.empty(6)
    ahead, behind = (rank() + 1) % size(), (rank() - 1) % size()
    receiving = dist.irecv(x, behind)
    dist.barrier()
    dist.isend(given(rank()), ahead).wait()
    receiving.wait()
    same(x, given(behind))


def check_memory_may_be_resized_afterwards() -> None:
    """FSDP frees and makes the memory of parameters so."""
    x, parts, rows = given(rank()), given(rank()), torch.empty(size(), 6)
    for _ in range(2):  # the first call makes a plan, the second finds it
        dist.all_reduce(x)
        dist.all_gather_into_tensor(rows, parts)
        dist.all_reduce(torch.nn.Parameter(parts, requires_grad=False), async_op=True).wait()
    for each in (x, parts, rows):
        storage = each.untyped_storage()
        length = storage.nbytes()
        storage.resize_(0)
        storage.resize_(length)


def check_coalesced() -> None:
    tensors = [given(rank()), given(rank(), torch.float64, 3)]
    with dist._coalescing_manager():
        for each in tensors:
            dist.all_reduce(each)
    same(tensors, [sum(every()), sum(every(torch.float64, 3))])


def check_groups() -> None:
    pair = dist.new_group([0, size() - 1])
    x = given(rank())
    dist.all_reduce(x, group=pair)
    member = rank() in (0, size() - 1)
    same(x, given(0) + given(size() - 1) if member else given(rank()))
    if member:
        dist.destroy_process_group(pair)
    mesh = init_device_mesh("cpu", (1, size()), mesh_dim_names=("a", "b"))
    y = given(rank())
    dist.all_reduce(y, group=mesh["b"].get_group())
    same(y, sum(every()))


def check_the_recorder_samples_the_calling_thread() -> None:
    dist.all_reduce(torch.ones(3))
    recorder = flight_groups.find()
    assert recorder is not None
    dump = reader.read(recorder.path)
    assert not dump.faults and get_native_id() in {sample.thread for sample in dump.samples}
    if dist.get_backend() == "torchcoll":  # whose ranks meet over TCP
        assert dump.links


def check_options_choose() -> None:
    chosen = dist.new_group(backend=BACKEND, pg_options={"allreduce": "ring"})
    assert chosen.algorithms["allreduce"] == "ring"
    x = given(rank())
    dist.all_reduce(x, group=chosen)
    same(x, sum(every()))
    with pytest.raises(ValueError, match="did you mean 'ring'"):
        dist.new_group(backend=BACKEND, pg_options="allreduce=rnig")
    with pytest.raises(ValueError, match="pg_options is 5"):
        dist.new_group(backend=BACKEND, pg_options=5)


@contextmanager
def several_nodes(per_node: int = 2) -> Iterator[None]:
    """State nodes of so many ranks, of one rank where there are two ranks."""
    count = per_node if size() > 2 else 1
    with patch.dict(os.environ, {"MPICOLL_RANKS_PER_NODE": str(count)}):
        yield


def check_groups_on_several_nodes() -> None:
    """A group is torch's own where every node has one rank, unless MPI carries its calls."""
    whole, node = list(range(size())), [0, 1]
    library = "gloo" if BACKEND == "torchcoll" else "MPI"
    ours, nodes = f"torchcoll over {library}", ""
    if size() > 2 and BACKEND == "torchcoll":
        nodes = f", {size()} ranks on {-(-size() // 2)} nodes"
    pair = rank() < 2 and size() > 2
    with several_nodes():
        spanning = dist.new_group(whole, backend=BACKEND)
        chosen = dist.new_group(whole, backend=BACKEND, pg_options={"allreduce": "ring"})
        beside = dist.new_group(whole, backend=f"cpu:{BACKEND},cuda:fake")
        with patch.dict(os.environ, {"TORCHCOLL_AS_GLOO": "1"}):
            unmodified = dist.new_group(whole, backend="gloo")
            on_one_node = dist.new_group(node, backend="gloo")
        with patch.dict(os.environ, {"MPICOLL_REPRODUCIBLE": "1"}):
            in_order = dist.new_group(whole, backend=BACKEND)
    with several_nodes(1):
        lone_ranks = dist.new_group(whole, backend=BACKEND)
    if BACKEND == "torchcoll":
        assert describe_group(lone_ranks) == "gloo"
        assert type(lone_ranks) is dist.ProcessGroup
    if size() > 2:
        assert describe_group(spanning) == ours + nodes
        assert describe_group(beside).startswith(ours + nodes)
    if pair:
        assert describe_group(on_one_node) == "torchcoll over gloo"
    assert describe_group(chosen) == describe_group(in_order) == ours
    for group in (spanning, chosen, beside, unmodified, in_order, lone_ranks):
        for is_async in (True, False):
            tensor = given(rank())
            work = dist.all_reduce(tensor, group=group, async_op=is_async)
            if is_async:
                work.wait()
            same(tensor, sum(every()))
        assert dist.get_backend(group) == dist.distributed_c10d._world.pg_map[group][0]


def all_results(group: Any, *, is_async: bool, inputs: Callable[[int], torch.Tensor]) -> list[Any]:
    """Return the results of all collectives on this rank's input, and on rows like it."""
    x, root, named = inputs(0), size() - 1, {"group": group, "async_op": is_async}
    vectors = [x.clone() for _ in range(3)]
    rows = [[torch.zeros_like(x) for _ in range(size())] for _ in range(2)]
    given_rows = [inputs(row) for row in range(size())]
    flat = [torch.zeros(size() * x.numel(), dtype=x.dtype) for _ in range(2)]
    flat[0].view(size(), -1)[rank()] = x
    # One rank alone gives its row of the output.
    row = flat[0].view(size(), -1)[rank()] if rank() == 1 and BACKEND == "torchcoll" else x
    outputs = [torch.zeros_like(x) for _ in range(3)]
    is_root = rank() == root
    works = [
        dist.all_reduce(vectors[0], ReduceOp.MAX, **named),
        dist.broadcast(vectors[1], root, **named),
        dist.reduce(vectors[2], root, **named),
        dist.all_gather(rows[0], x, **named),
        dist.all_gather_into_tensor(flat[0], row, **named),
        dist.gather(x, rows[1] if is_root else None, root, **named),
        dist.scatter(outputs[0], given_rows if is_root else None, root, **named),
        dist.reduce_scatter(outputs[1], given_rows, **named),
        dist.reduce_scatter_tensor(outputs[2], torch.cat(given_rows), ReduceOp.MIN, **named),
        dist.all_to_all_single(flat[1], torch.cat(given_rows), **named),
        dist.barrier(**named),
    ]
    for work in works:
        if work is not None:
            work.wait()
    reduced = vectors[2:] if is_root else []
    return [*vectors[:2], *reduced, *rows[0], *rows[1], *flat, *outputs]


def row_of(row: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    return given(rank() + 2 * row, dtype, count)


def check_calls_on_several_nodes_give_the_results_of_gloo() -> None:
    """Each signature is gloo's at first and then ours; asynchronous calls are gloo's throughout."""
    plain = dist.new_group(backend="gloo")
    with several_nodes():
        group = dist.new_group(backend=BACKEND)
        for dtype, count in ((torch.float32, 3), (torch.bfloat16, 3000)):
            inputs = partial(row_of, dtype=dtype, count=count)
            expected = all_results(plain, is_async=False, inputs=inputs)
            for call in range(11):
                same(all_results(group, is_async=call % 4 == 3, inputs=inputs), expected)
    if size() > 2 and BACKEND == "torchcoll":
        keys = {(key.name, key.dtype) for key in group.spanning.planned}
        dtypes = torch.float32, torch.bfloat16
        assert keys == {*product(PLANNED, dtypes), ("barrier", torch.uint8)}, keys


def check_a_wait_between_nodes_names_the_rank() -> None:
    x = torch.ones(2)
    with several_nodes():
        for calls in (7, 12):  # the next call makes the plan, or runs it
            group = dist.new_group(backend=BACKEND, timeout=timedelta(seconds=60))
            for _ in range(calls):
                dist.all_reduce(x, group=group)
            distributed_c10d._set_pg_timeout(timedelta(seconds=0.5), group)
            if rank():
                with pytest.raises(dist.DistBackendError, match="rank 0"):
                    dist.all_reduce(x, group=group)
            dist.barrier()


def check_another_library_serves_gpus() -> None:
    """torch has a library for tests, which exchanges nothing."""
    name = f"cpu:{BACKEND},cuda:fake"
    for options in (None, {"allreduce": "ring"}):
        both = dist.new_group(backend=name, pg_options=options)
        assert both._get_backend(torch.device("cuda")).name() == "fake"
        assert both.algorithms["allreduce"] == ("ring" if options else "auto")
        assert (dist.get_backend(both), dist.get_backend_config(both)) == (name, name)
        x = given(rank())
        dist.all_reduce(x, group=both)
        same(x, sum(every()))
        dist.destroy_process_group(both)


def check_different_calls_are_refused_on_every_rank() -> None:
    part, other = dist.new_group(), dist.new_group()
    with pytest.raises(ValueError, match=r"allreduce \(4 elements"):
        dist.all_reduce(torch.ones(3 if rank() else 4), group=part)
    dtype = torch.float8_e4m3fn if rank() else torch.float32
    with pytest.raises(RuntimeError, match="allgather of objects"):  # as torch's own errors are
        dist.all_reduce(torch.ones(3).to(dtype), group=other)


def check_a_wait_in_vain_names_the_rank() -> None:
    if rank():
        work = dist.all_reduce(torch.ones(2), async_op=True)
        with pytest.raises(dist.DistBackendError, match="rank 0"):
            work.wait(timedelta(seconds=0.5))
        dist.send(torch.ones(1), 0)
        work.wait()
    else:
        for each in range(1, size()):
            dist.recv(torch.ones(1), each)
        dist.all_reduce(torch.ones(2))


def check_a_barrier_has_a_timeout_of_its_own() -> None:
    group = dist.new_group()
    if rank():
        with pytest.raises(dist.DistBackendError, match="rank 0"):  # the first call of the group
            dist.barrier(group, timeout=timedelta(seconds=0.5))
    dist.barrier()
    dist.barrier(group, timeout=timedelta(seconds=60))
    if rank():
        with pytest.raises(dist.DistBackendError, match="rank 0"):
            dist.barrier(group, timeout=timedelta(seconds=0.5))
    dist.barrier()


def check_calls_have_timeouts_of_their_own() -> None:
    """As torch's methods of groups take them, at a group's first call and at a later one."""
    most, x = timedelta(seconds=0.3), torch.ones(2)
    opts = distributed_c10d.AllreduceOptions()
    opts.timeout = most
    rows = [torch.ones(2) for _ in range(size())]
    for call in (
        lambda group: group.allreduce([x], opts),
        lambda group: group.broadcast(x, root=0, timeout=most),
        lambda group: group.allgather(rows, x, most),
    ):
        for is_first in (True, False):
            group = dist.new_group()
            if not is_first:
                dist.barrier(group)
            if rank():
                with pytest.raises(dist.DistBackendError, match="rank 0"):
                    call(group).wait()
    dist.barrier()


def check_a_timeout_that_is_set_holds() -> None:
    group = dist.new_group()
    dist.barrier(group)
    distributed_c10d._set_pg_timeout(timedelta(seconds=0.5), group)
    if rank():
        with pytest.raises(dist.DistBackendError, match="rank 0"):
            dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()


def check_a_work_outlives_its_group() -> None:
    part, x = dist.new_group(), torch.ones(3)
    work = dist.all_reduce(x, group=part, async_op=True)
    dist.destroy_process_group(part)
    assert work.wait() and work.is_completed()
    assert work.get_future().wait()[0] is x
    same(x, torch.full((3,), float(size())))


def check_a_group_that_is_destroyed_refuses_calls() -> None:
    group = dist.new_group()
    dist.all_reduce(torch.ones(1), group=group)
    dist.destroy_process_group(group)
    with pytest.raises(ValueError, match="not initialized"):  # as torch logs errors
        dist.all_reduce(torch.ones(1), group=group)
    with pytest.raises(RuntimeError, match="has been destroyed"):
        dist.all_reduce(torch.ones(1), group=group, async_op=True).wait()


def check_a_forked_process_ends_no_group() -> None:
    gc.disable()
    part = dist.new_group()
    cycle = [part]
    cycle.append(cycle)
    dist.destroy_process_group(part)
    del part, cycle
    child = os.fork()
    if not child:
        gc.collect()
        os._exit(0)
    gc.enable()
    assert os.waitpid(child, 0)[1] == 0


def check_workers_that_are_forked() -> None:
    batches: Any = iter(torch.utils.data.DataLoader(torch.arange(8.0), 2, num_workers=2))
    try:
        for batch in batches:
            dist.all_reduce(batch)
    except RuntimeError as error:
        raise AssertionError([worker.exitcode for worker in batches._workers]) from error
    same(batch, torch.tensor([6.0, 7.0]) * size())


def main() -> None:
    import torch.testing._internal.distributed.fake_pg  # noqa: F401  it registers the library

    from torchcoll.backend.registration import register

    warnings.simplefilter("ignore")
    register()
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=200))
    wrong = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_"):
            continue
        try:
            check()
            print(f"rank {rank()}: ok {name}\n", end="", flush=True)
        except Exception:
            wrong += 1
            print(f"rank {rank()}: {name} {traceback.format_exc()}\n", end="", flush=True)
    if len(sys.argv) > 2:
        dist.destroy_process_group()
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
