"""The process group: torch.distributed's calls, served by our schedules.

torch's C++ reaches a group in Python only by the names that this class overrides; what it does not
override goes to the library beneath: messages between two ranks, and whatever needs a name of its
own. Other calls that are not ours, because of a device, a dtype or an operator, go there in their
turn (`Group._forward`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import profiler
from torch.distributed import distributed_c10d

from mpicoll.errors import ArgumentError, CollectiveError
from torchcoll.backend.choice import choose
from torchcoll.backend.opening import forget, open_over_gloo
from torchcoll.backend.order import Order
from torchcoll.backend.tensors import (
    Room,
    Tensor,
    flat,
    give_back,
    hand_out,
    moves,
    op_name,
    reduces,
)
from torchcoll.backend.works import DONE, ProfiledWork, QueuedWork, as_torch, recorded

Tensors = Sequence[Tensor]
Open = Callable[[Any], Any]
# torch's stubs lack its names for options, and one of the two constructors.
c10d: Any = distributed_c10d
_ProcessGroup: Any = dist.ProcessGroup


class Group(_ProcessGroup):  # type: ignore[misc]
    """A process group of torch.distributed whose collectives are ours.

    Args:
        store: of this group's ranks.
        rank: of this process in the group.
        size: of the group.
        over: opens the collectives of the group, which all its ranks do at its first call.
        options: `pg_options`: see `torchcoll.backend.choice`.

    Attributes:
        library: a plain process group over the same backends, for what is not ours.
        algorithms: the algorithm of each collective.
        not_reduced: dtypes whose reductions are left to the library.
    """

    def __init__(
        self, store: Any, rank: int, size: int, *, over: Open = open_over_gloo,
        options: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(rank, size)
        self.store, self.over = store, over
        self._rank, self._size = rank, size
        self.algorithms = choose(options)
        self.library = dist.ProcessGroup(store, rank, size)
        self.room = Room()
        self.order = Order(f"torchcoll {rank}")
        self.not_reduced: set[torch.dtype] = set()
        self._opened: Any = None

    # -- what torch asks of a group beside collectives --------------------------------------

    def get_group_store(self) -> Any:
        return self.store

    def _register_backend(self, device: Any, kind: Any, backend: Any = None) -> None:
        super()._register_backend(device, kind, backend)
        self.library._register_backend(device, kind, backend)

    def _set_default_backend(self, kind: Any) -> None:
        super()._set_default_backend(kind)
        self.library._set_default_backend(kind)

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        if self._opened is not None:
            self._opened.deadline = timeout.total_seconds()

    def shutdown(self) -> None:
        """Run what is queued, and release the memory that the ranks share."""
        self.order.stop()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.free()
        forget(self.library)
        super().shutdown()

    # -- collectives ------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        tensors, opts = _one(tensors), _options(opts, c10d.AllreduceOptions)
        op = op_name(opts.reduceOp)
        if len(tensors) != 1 or not self._reduces(op, tensors):
            return self._forward("allreduce", tensors, opts, tensors)
        return self._issue(
            "all_reduce", tensors, partial(self._allreduce, tensors[0], op), tensors, opts
        )

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        opts = _options(opts, c10d.AllreduceCoalescedOptions)
        op = op_name(opts.reduceOp)
        if not self._reduces(op, tensors):
            return self._forward("allreduce_coalesced", tensors, opts, tensors)

        def call() -> None:
            for tensor in tensors:
                self._allreduce(tensor, op)

        return self._issue("all_reduce", tensors, call, tensors, opts)

    def _allreduce(self, tensor: Tensor, op: Any) -> None:
        x = flat(tensor)
        self._call("allreduce", x, x, op)
        if x is not tensor:
            give_back(tensor, x)

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        tensors = _one(tensors)
        if isinstance(opts, int):
            opts, root = c10d.BroadcastOptions(), opts
            opts.rootRank = root
        if len(tensors) != 1 or not _moves(tensors):
            return self._forward("broadcast", tensors, opts, tensors)
        call = partial(self._broadcast, tensors[0], opts.rootRank)
        return self._issue("broadcast", tensors, call, tensors, opts)

    def _broadcast(self, tensor: Tensor, root: int) -> None:
        x = flat(tensor)
        self._call("broadcast", x, x, "sum", root)
        if x is not tensor:
            give_back(tensor, x)

    def reduce(self, tensors: Any, opts: Any = None, *rest: Any) -> Any:
        tensors = _one(tensors)
        if isinstance(opts, int):
            opts, root = c10d.ReduceOptions(), opts
            opts.rootRank = root
            if rest:
                opts.reduceOp = rest[0]
        op = op_name(opts.reduceOp)
        if len(tensors) != 1 or not self._reduces(op, tensors):
            return self._forward("reduce", tensors, opts, tensors)
        call = partial(self._reduce, tensors[0], op, opts.rootRank)
        return self._issue("reduce", tensors, call, tensors, opts)

    def _reduce(self, tensor: Tensor, op: Any, root: int) -> None:
        x = flat(tensor)
        self._call("reduce", x, x if self._rank == root else None, op, root)
        if x is not tensor and self._rank == root:
            give_back(tensor, x)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        if isinstance(inputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = _options(opts, c10d.AllgatherOptions)
        given = [*inputs, *outputs[0]]
        if len(inputs) != 1 or len(outputs[0]) != self._size or not _moves(given):
            return self._forward("allgather", outputs, inputs, opts, outputs[0])
        call = partial(self._allgather, outputs[0], inputs[0])
        return self._issue("all_gather", inputs, call, outputs[0], opts)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = _options(opts, c10d.AllgatherOptions)
        if not _moves([*inputs, *(each for row in outputs for each in row)]):
            return self._forward("allgather_coalesced", outputs, inputs, opts, outputs)

        def call() -> None:
            for tensor, *row in zip(inputs, *outputs, strict=True):
                self._allgather(row, tensor)

        return self._issue("all_gather", inputs, call, outputs, opts)

    def _allgather(self, outputs: Tensors, tensor: Tensor) -> None:
        counts = tuple(each.numel() for each in outputs)
        if len(set(counts)) > 1:
            self._allgather_uneven(outputs, tensor, counts)
            return
        x, rows = flat(tensor), self.room.for_rows(outputs)
        self._call("allgather", x, rows)
        hand_out(outputs, rows)

    def _allgather_uneven(self, outputs: Tensors, tensor: Tensor, counts: Any) -> None:
        x = flat(tensor)
        width = x.numel() // max(tensor.numel(), 1) or 1
        counts = tuple(width * each for each in counts)
        whole = torch.empty(sum(counts), dtype=x.dtype)
        self._call("allgather", x, whole, counts=counts)
        hand_out(outputs, torch.split(whole, counts))

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        opts = _options(opts, c10d.AllgatherOptions)
        if not _moves((output, tensor)):
            return self._forward("all_gather_single", output, tensor, opts, [output])
        _fit(output, tensor, self._size, "output", "input")
        call = partial(self._all_gather_single, output, tensor)
        return self._issue("_all_gather_base", [tensor], call, [output], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, tensors: Tensors,
                                    opts: Any = None) -> Any:  # fmt: skip
        opts = _options(opts, c10d.AllgatherOptions)
        if not _moves([*outputs, *tensors]):
            return self._forward("all_gather_single_coalesced", outputs, tensors, opts, outputs)

        def call() -> None:
            for output, tensor in zip(outputs, tensors, strict=True):
                self._all_gather_single(output, tensor)

        return self._issue("all_gather_into_tensor_coalesced", tensors, call, outputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _all_gather_single(self, output: Tensor, tensor: Tensor) -> None:
        x, whole = flat(tensor), flat(output)
        self._call("allgather", x, whole.view(self._size, -1) if x.numel() else _none(self, x))
        if whole is not output:
            give_back(output, whole)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, *rest: Any) -> Any:
        if isinstance(inputs, Tensor):
            outputs, inputs = [outputs] if outputs else [], [inputs]
        if isinstance(opts, int):
            opts, root = c10d.GatherOptions(), opts
            opts.rootRank = root
        rows = outputs[0] if outputs else []
        if len(inputs) != 1 or not _moves([*inputs, *rows]):
            return self._forward("gather", outputs, inputs, opts, rows)
        call = partial(self._gather, rows, inputs[0], opts.rootRank)
        return self._issue("gather", inputs, call, rows, opts)

    def _gather(self, outputs: Tensors, tensor: Tensor, root: int) -> None:
        if self._rank != root:
            self._call("gather", flat(tensor), None, "sum", root)
            return
        rows = self.room.for_rows(outputs)
        self._call("gather", flat(tensor), rows, "sum", root)
        hand_out(outputs, rows)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, *rest: Any) -> Any:
        if isinstance(outputs, Tensor):
            outputs, inputs = [outputs], [inputs] if inputs else []
        if isinstance(opts, int):
            opts, root = c10d.ScatterOptions(), opts
            opts.rootRank = root
        rows = inputs[0] if inputs else []
        if len(outputs) != 1 or not _moves([*outputs, *rows]):
            return self._forward("scatter", outputs, inputs, opts, outputs)
        call = partial(self._scatter, outputs[0], rows, opts.rootRank)
        return self._issue("scatter", rows, call, outputs, opts)

    def _scatter(self, output: Tensor, inputs: Tensors, root: int) -> None:
        x = flat(output)
        self._call(
            "scatter", self.room.rows_of(inputs) if self._rank == root else None, x, "sum", root
        )
        if x is not output:
            give_back(output, x)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, *rest: Any) -> Any:
        if isinstance(outputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = _options(opts, c10d.ReduceScatterOptions)
        op = op_name(opts.reduceOp)
        if len(outputs) != 1 or not self._reduces(op, [*outputs, *inputs[0]]):
            return self._forward("reduce_scatter", outputs, inputs, opts, outputs)
        call = partial(self._reduce_scatter, outputs[0], inputs[0], op)
        return self._issue("reduce_scatter", inputs[0], call, outputs, opts)

    def _reduce_scatter(self, output: Tensor, inputs: Tensors, op: Any) -> None:
        x = flat(output)
        counts = tuple(each.numel() for each in inputs)
        if len(set(counts)) > 1:
            whole = torch.cat([flat(each) for each in inputs])
            self._call("reduce_scatter", whole, x, op, counts=counts)
        else:
            self._call("reduce_scatter", self.room.rows_of(inputs), x, op)
        if x is not output:
            give_back(output, x)

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        opts = _options(opts, c10d.ReduceScatterOptions)
        op = op_name(opts.reduceOp)
        if not self._reduces(op, (output, tensor)):
            return self._forward("reduce_scatter_single", output, tensor, opts, [output])
        _fit(tensor, output, self._size, "input", "output")
        call = partial(self._reduce_scatter_single, output, tensor, op)
        return self._issue("_reduce_scatter_base", [tensor], call, [output], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, tensors: Tensors,
                                        opts: Any = None) -> Any:  # fmt: skip
        opts = _options(opts, c10d.ReduceScatterOptions)
        op = op_name(opts.reduceOp)
        if not self._reduces(op, [*outputs, *tensors]):
            return self._forward("reduce_scatter_single_coalesced", outputs, tensors, opts, outputs)

        def call() -> None:
            for output, tensor in zip(outputs, tensors, strict=True):
                self._reduce_scatter_single(output, tensor, op)

        return self._issue("reduce_scatter_tensor_coalesced", tensors, call, outputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter_single(self, output: Tensor, tensor: Tensor, op: Any) -> None:
        x, whole = flat(output), flat(tensor)
        rows = whole.detach().view(self._size, -1) if x.numel() else _none(self, x)
        self._call("reduce_scatter", rows, x, op)
        if x is not output:
            give_back(output, x)

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, output_sizes: Any, input_sizes: Any,
        opts: Any = None,
    ) -> Any:  # fmt: skip
        opts = _options(opts, c10d.AllToAllOptions)
        if not _moves((output, tensor)):
            sizes = output_sizes, input_sizes
            return self._forward("all_to_all_single", output, tensor, *sizes, opts, [output])
        call = partial(self._all_to_all_single, output, tensor, output_sizes, input_sizes)
        return self._issue("all_to_all", [tensor], call, [output], opts)

    alltoall_base = all_to_all_single

    def _all_to_all_single(
        self, output: Tensor, tensor: Tensor, output_sizes: Any, input_sizes: Any
    ) -> None:
        x, whole = flat(tensor), flat(output)
        if not output_sizes and not input_sizes:
            for each, label in ((x, "input"), (whole, "output")):
                if each.numel() % self._size:
                    raise ArgumentError(
                        f"the {label} of all_to_all_single has {each.numel()} elements: without "
                        f"sizes, a multiple of the {self._size} ranks"
                    )
            self._alltoall(x, whole)
        else:
            sent = _lengths(tensor, x, input_sizes, self._size)
            received = _lengths(output, whole, output_sizes, self._size)
            self._alltoall_uneven(x, whole, sent, received)
        if whole is not output:
            give_back(output, whole)

    def alltoall(self, outputs: Tensors, tensors: Tensors, opts: Any = None) -> Any:
        opts = _options(opts, c10d.AllToAllOptions)
        if not _moves([*outputs, *tensors]):
            return self._forward("alltoall", outputs, tensors, opts, outputs)
        call = partial(self._alltoall_lists, outputs, tensors)
        return self._issue("all_to_all", tensors, call, outputs, opts)

    def _alltoall_lists(self, outputs: Tensors, tensors: Tensors) -> None:
        parts = [flat(each) for each in tensors]
        rooms = [flat(each) for each in outputs]
        whole = torch.empty(sum(each.numel() for each in rooms), dtype=rooms[0].dtype)
        sent, received = [each.numel() for each in parts], [each.numel() for each in rooms]
        self._alltoall_uneven(torch.cat(parts), whole, sent, received)
        hand_out(outputs, torch.split(whole, received))

    def _alltoall(self, x: Tensor, whole: Tensor) -> None:
        size = self._size
        if x.numel():
            self._call("alltoall", x.detach().view(size, -1), whole.view(size, -1))
        else:
            self._call("barrier", None, None)

    def _alltoall_uneven(self, x: Tensor, out: Tensor, sent: Any, received: Any) -> None:
        """Exchange blocks of lengths that each rank knows of its own only."""
        size = self._size
        own = torch.tensor([*sent, *received], dtype=torch.int64)
        every = torch.empty((size, 2 * size), dtype=torch.int64)
        self._call("allgather", own, every)
        table = every.tolist()
        counts = tuple(tuple(row[:size]) for row in table)
        wanted = tuple(tuple(row[size:]) for row in table)
        if counts != tuple(zip(*wanted, strict=True)):
            source, target = next(
                (source, target)
                for source in range(size)
                for target in range(size)
                if counts[source][target] != wanted[target][source]
            )
            raise ArgumentError(
                f"rank {source} sends {counts[source][target]} elements to rank {target}, which "
                f"expects {wanted[target][source]}"
            )
        if len({each for row in counts for each in row}) == 1:
            self._alltoall(x, out)
        else:
            self._call("alltoall", x, out, counts=counts)

    def barrier(self, opts: Any = None, timeout: Any = None) -> Any:
        opts = _options(opts, c10d.BarrierOptions)
        return self._issue("barrier", [], partial(self._call, "barrier", None, None), [], opts)

    # -- running ----------------------------------------------------------------------------

    def _reduces(self, op: str | None, tensors: Tensors) -> bool:
        return all(
            reduces(op, each.dtype) and moves(each) and each.dtype not in self.not_reduced
            for each in tensors
        )

    def _issue(
        self, title: str, inputs: Tensors, call: Callable[[], object], results: Any, opts: Any
    ) -> Any:
        """Run a call in its turn, or queue it; torch's C++ asks for a work in any case.

        Args:
            title: the name under which torch's profiler finds it, as it finds gloo's.
            inputs: whose shapes the profiler keeps.
        """
        if profiler._is_profiler_enabled:
            return self._profile(title, inputs, call, results, opts)
        if opts.asyncOp:
            work = QueuedWork(call, list(results), self.order, self._missing)
            self.order.add(work)
            return work
        try:
            self.order.run(call)
        except CollectiveError as error:
            raise as_torch(error) from error
        return DONE

    def _profile(
        self, title: str, inputs: Tensors, call: Callable[[], object], results: Any, opts: Any
    ) -> ProfiledWork:
        """Run a call on the group's thread, under a name by which the profiler shows it."""
        title = f"{c10d.get_backend(self)}:{title}"
        work = ProfiledWork(recorded(title, inputs, call), list(results), self.order, self._missing)
        self.order.add(work)
        if not opts.asyncOp:
            work.wait()
        return work

    def _call(
        self, name: str, x: Tensor | None, out: Tensor | None, op: str = "sum", root: int = 0,
        counts: Any = None,
    ) -> None:  # fmt: skip
        """Run one of our collectives, in its turn."""
        if self._size == 1:
            if x is not None and out is not None:
                give_back(out, x)
            return
        opened = self._opened or self._open()
        opened._call(name, x, out, op, root, counts, self.algorithms[name])

    def _forward(self, name: str, *given: Any) -> Any:
        """Leave a call to the library: in its turn, or at once where it is not on the host.

        The last of `given` is where the results are, the one before the options.
        """
        *arguments, opts, results = given
        how = getattr(self.library, name)
        tensors = _leaves(arguments)
        if any(not each.is_cpu for each in tensors):
            return how(*arguments, opts)
        said = f"{name} of the library, {tensors[0].dtype if tensors else None}"

        def call() -> None:
            self._agree(said)
            how(*arguments, opts).wait()

        return self._issue(name, tensors, call, results, opts)

    def _agree(self, said: str) -> None:
        """Return where all ranks leave this call to the library; collective.

        Raises:
            ArgumentError: on all ranks, where one of them does not.
        """
        if self._size == 1:
            return
        opened = self._opened or self._open()
        digest = blake2b(said.encode(), digest_size=8).digest()
        if not opened.plans.matches(digest):
            opened.plans.agree(ArgumentError(f"this rank calls {said}, and others something else"))

    def _open(self) -> Any:
        self._opened = self.over(self)
        options = self._get_backend(torch.device("cpu")).options
        self._opened.deadline = options._timeout.total_seconds()
        return self._opened

    def _missing(self) -> str:
        """Name the ranks that keep the call that is under way waiting."""
        opened = self._opened
        shared = None if opened is None else opened.transport.shared
        if shared is None or shared.mailbox is None:
            return "its group shares no memory, so nobody knows which rank is missing"
        ranks = ", ".join(map(str, shared.mailbox.missing()))
        return f"it waits for rank {ranks}" if ranks else "all ranks have called"


def _one(tensors: Any) -> Any:
    return [tensors] if isinstance(tensors, Tensor) else tensors


def _options(opts: Any, kind: Any) -> Any:
    """Return options as torch's own methods take them, or their operator in their place."""
    if opts is None:
        return kind()
    if isinstance(opts, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
        made = kind()
        made.reduceOp = opts
        return made
    return opts


def _moves(tensors: Tensors) -> bool:
    return all(map(moves, tensors))


def _leaves(given: Any) -> list[Tensor]:
    if isinstance(given, Tensor):
        return [given]
    if isinstance(given, (list, tuple)):
        return [leaf for each in given for leaf in _leaves(each)]
    return []


def _none(group: Group, like: Tensor) -> Tensor:
    return like.new_empty((group._size, 0))


def _fit(whole: Tensor, part: Tensor, size: int, large: str, small: str) -> None:
    if whole.dtype != part.dtype:
        raise ArgumentError(f"the {large} is {whole.dtype}, the {small} {part.dtype}: they agree")
    if whole.numel() != size * part.numel():
        raise ArgumentError(
            f"the {large} has {whole.numel()} elements: {size} ranks need {size} times the "
            f"{part.numel()} of the {small}"
        )


def _lengths(tensor: Tensor, x: Tensor, sizes: Any, ranks: int) -> list[int]:
    """Return the elements for each rank, given rows of the first axis."""
    rows = tensor.shape[0] if tensor.dim() else 1
    given = list(sizes) if sizes else [rows // ranks] * ranks
    if len(given) != ranks or sum(given) != rows:
        raise ArgumentError(f"sizes {given} do not cut {rows} rows for {ranks} ranks")
    width = x.numel() // rows if rows else 0
    return [width * each for each in given]
