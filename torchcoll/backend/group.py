"""The process group: torch.distributed's calls, served by our schedules.

torch's C++ reaches a group in Python only by the names that this class overrides. All other calls
go to the library beneath: messages between two ranks, and calls that need a name of their own.
Other calls that are not ours, because of a device, a dtype or an operator, go there in their turn
(`Group._forward`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import profiler
from torch.distributed import distributed_c10d

from mpicoll.backend import Nodes
from mpicoll.c_extension import _compiled
from mpicoll.errors import ArgumentError, CollectiveError
from torchcoll.backend import autograd
from torchcoll.backend.autograd import Operator
from torchcoll.backend.calls import SpanningTensorCalls, TensorCalls, Tensors
from torchcoll.backend.channels import OneNode
from torchcoll.backend.choice import choose
from torchcoll.backend.compiling import uncompiled_methods
from torchcoll.backend.interrupting import postpone_handlers, uninterrupted_methods
from torchcoll.backend.modes import autograd_mode, run_unseen, unseen
from torchcoll.backend.opening import (
    come,
    deadline_of,
    open_on_node,
    open_over_gloo,
    wait_for_all,
)
from torchcoll.backend.order import Call, Order
from torchcoll.backend.spanning import SpanningCalls
from torchcoll.backend.tensors import Tensor, is_watched, moves, op_name, reduces
from torchcoll.backend.works import (
    COMPLETE_WORK,
    IssuedWork,
    ProfiledWork,
    QueuedWork,
    as_torch,
    record_of,
    recorded,
)
from torchcoll.groups import method_of

Open = Callable[[Any], Any]
# torch's stubs lack its names for options, and one of the two constructors.
c10d: Any = distributed_c10d
FLAT, ROWS = _compiled.FLAT, _compiled.ROWS
INPUT_ROWS, OUTPUT_ROWS = _compiled.INPUT_ROWS, _compiled.OUTPUT_ROWS
"""Which arrays of a collective are rows, one for each rank."""
_ProcessGroup: Any = dist.ProcessGroup
_GLOO = dist.ProcessGroup.BackendType.GLOO
_NOTHING: dict[str, Any] = {}
_FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}
"""Of the options, where torch's own methods take them by name."""
_OF_THE_GROUP = timedelta(0)
"""A timeout in a call's options that is not longer leaves it to the group's."""


@uncompiled_methods
@uninterrupted_methods
class Group(_ProcessGroup):  # type: ignore[misc]
    """A process group of torch.distributed whose collectives are ours.

    Args:
        store: of this group's ranks.
        rank: of this process in the group.
        size: of the group.
        over: opens the collectives of the group, which all its ranks do at its first call.
        options: `pg_options`: see `torchcoll.backend.choice`.

    Attributes:
        library: a plain process group over gloo, for what is not ours.
        others: plain process groups for devices that another library than gloo serves.
        algorithms: the algorithm of each collective.
        not_reduced: dtypes whose reductions are left to the library.
        spanning: which calls are ours in a group on several nodes, where gloo runs the others; None
            for other groups.
    """

    def __init__(
        self, store: Any, rank: int, size: int, *, over: Open = open_over_gloo,
        options: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(rank, size)
        self.store, self.over = store, over
        self._rank, self._size = rank, size
        self.algorithms = choose(options)
        self.library = self._plain(_GLOO)
        self.device_libraries: dict[str, Any] = {}
        self.calls = TensorCalls(rank, size, self._opened_once, self.algorithms)
        self.order = Order(f"torchcoll {rank}")
        self.not_reduced: set[torch.dtype] = set()
        self.spanning: SpanningCalls | None = None
        self._opened: Any = None
        self._is_destroyed = False

    def span(self, nodes: Nodes) -> None:
        """Compare no calls, and leave those to gloo that it runs faster between these nodes."""
        self.spanning = SpanningCalls(nodes, lambda: self._opened_once(deadline_of(self)))
        self.calls = SpanningTensorCalls(self._rank, self._size, self._opened_once, self.algorithms)

    # -- what torch asks of a group beside collectives --------------------------------------

    def describe(self) -> str:
        """Return in words what serves the group's collectives."""
        parts = [f"torchcoll over {'gloo' if self.over is open_over_gloo else 'MPI'}"]
        if self.spanning is not None:
            parts.append(f"{self._size} ranks on {len(self.spanning.nodes)} nodes")
        elif self._opened is not None:
            is_shared = self._finds_missing() is not None
            parts.append(f"{self._size} ranks {'in shared memory' if is_shared else 'by messages'}")
        parts += [f"{device} by {library._get_backend(torch.device(device)).name()}"
                  for device, library in self.device_libraries.items()]  # fmt: skip
        return ", ".join(parts)

    def get_group_store(self) -> Any:
        return self.store

    def _register_backend(self, device: Any, kind: Any, backend: Any = None) -> None:
        super()._register_backend(device, kind, backend)
        if kind == _GLOO:
            self.library._register_backend(device, kind, backend)
        else:
            self.device_libraries.setdefault(device.type, self._plain(kind))
            self.device_libraries[device.type]._register_backend(device, kind, backend)

    def _plain(self, kind: Any) -> Any:
        """Return a process group of torch's own for the same ranks."""
        group = dist.ProcessGroup(self.store, self._rank, self._size)
        group._set_default_backend(kind)
        return group

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        opened = self._opened
        if opened is not None:
            opened.deadline = timeout.total_seconds()

    def shutdown(self) -> None:
        """Run the queued calls, and release the memory that the ranks share."""
        postpone_handlers()
        self.order.stop()
        self.order.begin(None)
        self._is_destroyed = True
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.free()
        super().shutdown()

    # -- collectives ------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None, *arguments: Any, **named: Any) -> Any:
        tensors, opts = _as_list(tensors), _options(c10d.AllreduceOptions, opts, arguments, named)
        x, op = tensors[0], op_name(opts.reduceOp)
        call = self.calls.allreduce, x, op
        issued = autograd.ALL_REDUCE, tensors, call, tensors, opts
        if work := self._serve(*issued, "allreduce", x, x, op):
            return work
        if (
            len(tensors) != 1
            or not self._reduces(op, tensors)
            or self._is_gloos(opts, "allreduce", x, None, op)
        ):
            return self._forward("allreduce", tensors, opts, tensors)
        return self._issue(*issued)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        opts = _options(c10d.AllreduceCoalescedOptions, opts)
        op = op_name(opts.reduceOp)
        if self.spanning or not self._reduces(op, tensors):
            return self._forward("allreduce_coalesced", tensors, opts, tensors)
        call = self.calls.repeat, tensors, self.calls.allreduce, [op] * len(tensors)
        return self._issue(autograd.ALL_REDUCE_COALESCED, tensors, call, tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None, *arguments: Any, **named: Any) -> Any:
        tensors, opts = _as_list(tensors), _options(c10d.BroadcastOptions, opts, arguments, named)
        x, root = tensors[0], opts.rootRank
        call = self.calls.broadcast, x, root
        issued = autograd.BROADCAST, tensors, call, tensors, opts
        if work := self._serve(*issued, "broadcast", x, x, "sum", root):
            return work
        if (
            len(tensors) != 1
            or not _moves(tensors)
            or self._is_gloos(opts, "broadcast", x, None, root=root)
        ):
            return self._forward("broadcast", tensors, opts, tensors)
        return self._issue(*issued)

    def reduce(self, tensors: Any, opts: Any = None, *arguments: Any, **named: Any) -> Any:
        tensors, opts = _as_list(tensors), _options(c10d.ReduceOptions, opts, arguments, named)
        x, op, root = tensors[0], op_name(opts.reduceOp), opts.rootRank
        out = x if self._rank == root else None
        call = self.calls.reduce, x, op, root
        issued = autograd.REDUCE, tensors, call, tensors, opts
        if work := self._serve(*issued, "reduce", x, out, op, root):
            return work
        if (
            len(tensors) != 1
            or not self._reduces(op, tensors)
            or self._is_gloos(opts, "reduce", x, None, op, root)
        ):
            return self._forward("reduce", tensors, opts, tensors)
        return self._issue(*issued)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, **named: Any) -> Any:
        if isinstance(inputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = _options(c10d.AllgatherOptions, opts, (), named)
        rows, x = outputs[0], inputs[0]
        call = self.calls.allgather, rows, x
        issued = autograd.ALL_GATHER, inputs, call, rows, opts
        if work := self._serve(*issued, "allgather", x, rows, "sum", 0, OUTPUT_ROWS):
            return work
        if (
            len(inputs) != 1
            or len(rows) != self._size
            or not _moves([x, *rows])
            or self._is_gloos(opts, "allgather", x, rows)
        ):
            return self._forward("allgather", outputs, inputs, opts, rows)
        return self._issue(*issued)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = _options(c10d.AllgatherOptions, opts)
        if self.spanning or not _moves([*inputs, *(tensor for row in outputs for tensor in row)]):
            return self._forward("allgather_coalesced", outputs, inputs, opts, outputs)
        call = self.calls.allgather_coalesced, outputs, inputs
        return self._issue(autograd.ALL_GATHER_COALESCED, inputs, call, outputs, opts)

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        opts = _options(c10d.AllgatherOptions, opts)
        call = self.calls.all_gather_single, output, tensor
        issued = autograd.ALL_GATHER_SINGLE, [tensor], call, [output], opts
        if work := self._serve(*issued, "allgather", tensor, output, "sum", 0, OUTPUT_ROWS):
            return work
        if not _moves((output, tensor)) or self._is_gloos(opts, "allgather", tensor, output):
            return self._forward("all_gather_single", output, tensor, opts, [output])
        _fit(output, tensor, self._size, "output", "input")
        return self._issue(*issued)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, tensors: Tensors,
                                    opts: Any = None) -> Any:  # fmt: skip
        opts = _options(c10d.AllgatherOptions, opts)
        if self.spanning or not _moves([*outputs, *tensors]):
            return self._forward("all_gather_single_coalesced", outputs, tensors, opts, outputs)
        call = self.calls.repeat, outputs, self.calls.all_gather_single, tensors
        return self._issue(autograd.ALL_GATHER_SINGLE_COALESCED, tensors, call, outputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(
        self, outputs: Any, inputs: Any, opts: Any = None, *arguments: Any, **named: Any
    ) -> Any:
        if isinstance(inputs, Tensor):
            outputs, inputs = [outputs] if outputs else [], [inputs]
        opts = _options(c10d.GatherOptions, opts, arguments, named)
        rows, x, root = outputs[0] if outputs else [], inputs[0], opts.rootRank
        out = rows if self._rank == root else None
        call = self.calls.gather, rows, x, root
        issued = autograd.GATHER, inputs, call, rows, opts
        if work := self._serve(*issued, "gather", x, out, "sum", root, OUTPUT_ROWS):
            return work
        if (
            len(inputs) != 1
            or not _moves([*inputs, *rows])
            or self._is_gloos(opts, "gather", x, out, root=root)
        ):
            return self._forward("gather", outputs, inputs, opts, rows)
        return self._issue(*issued)

    def scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, *arguments: Any, **named: Any
    ) -> Any:
        if isinstance(outputs, Tensor):
            outputs, inputs = [outputs], [inputs] if inputs else []
        opts = _options(c10d.ScatterOptions, opts, arguments, named)
        rows, out, root = inputs[0] if inputs else [], outputs[0], opts.rootRank
        x = rows if self._rank == root else None
        call = self.calls.scatter, out, rows, root
        issued = autograd.SCATTER, rows, call, outputs, opts
        if work := self._serve(*issued, "scatter", x, out, "sum", root, INPUT_ROWS):
            return work
        if (
            len(outputs) != 1
            or not _moves([*outputs, *rows])
            or self._is_gloos(opts, "scatter", out, x, root=root)
        ):
            return self._forward("scatter", outputs, inputs, opts, outputs)
        return self._issue(*issued)

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, *arguments: Any, **named: Any
    ) -> Any:
        if isinstance(outputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = _options(c10d.ReduceScatterOptions, opts, arguments, named)
        op, out, rows = op_name(opts.reduceOp), outputs[0], inputs[0]
        call = self.calls.reduce_scatter, out, rows, op
        issued = autograd.REDUCE_SCATTER, rows, call, outputs, opts
        if work := self._serve(*issued, "reduce_scatter", rows, out, op, 0, INPUT_ROWS):
            return work
        if (
            len(outputs) != 1
            or not self._reduces(op, [*outputs, *rows])
            or self._is_gloos(opts, "reduce_scatter", out, rows, op)
        ):
            return self._forward("reduce_scatter", outputs, inputs, opts, outputs)
        return self._issue(*issued)

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        opts = _options(c10d.ReduceScatterOptions, opts)
        op = op_name(opts.reduceOp)
        call = self.calls.reduce_scatter_single, output, tensor, op
        issued = autograd.REDUCE_SCATTER_SINGLE, [tensor], call, [output], opts
        if work := self._serve(*issued, "reduce_scatter", tensor, output, op, 0, INPUT_ROWS):
            return work
        if not self._reduces(op, (output, tensor)) or self._is_gloos(
            opts, "reduce_scatter", output, tensor, op
        ):
            return self._forward("reduce_scatter_single", output, tensor, opts, [output])
        _fit(tensor, output, self._size, "input", "output")
        return self._issue(*issued)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, tensors: Tensors,
                                        opts: Any = None) -> Any:  # fmt: skip
        opts = _options(c10d.ReduceScatterOptions, opts)
        op = op_name(opts.reduceOp)
        if self.spanning or not self._reduces(op, [*outputs, *tensors]):
            return self._forward("reduce_scatter_single_coalesced", outputs, tensors, opts, outputs)
        ops = [op] * len(tensors)
        call = self.calls.repeat, outputs, self.calls.reduce_scatter_single, tensors, ops
        return self._issue(autograd.REDUCE_SCATTER_SINGLE_COALESCED, tensors, call, outputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, output_sizes: Any, input_sizes: Any,
        opts: Any = None, **named: Any,
    ) -> Any:  # fmt: skip
        opts = _options(c10d.AllToAllOptions, opts, (), named)
        sizes = output_sizes, input_sizes
        call = self.calls.all_to_all_single, output, tensor, *sizes
        issued = autograd.ALL_TO_ALL_SINGLE, [tensor], call, [output], opts
        if not any(sizes):
            work = self._serve(*issued, "alltoall", tensor, output, "sum", 0, ROWS)
            if work is not None:
                return work
        if (
            not _moves((output, tensor))
            or (self.spanning and any(sizes))
            or self._is_gloos(opts, "alltoall", tensor, output)
        ):
            return self._forward("all_to_all_single", output, tensor, *sizes, opts, [output])
        return self._issue(*issued)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Tensors, tensors: Tensors, opts: Any = None) -> Any:
        opts = _options(c10d.AllToAllOptions, opts)
        call = self.calls.all_to_all, outputs, tensors
        issued = autograd.ALL_TO_ALL, tensors, call, outputs, opts
        if work := self._serve(*issued, "alltoall", tensors, outputs, "sum", 0, ROWS):
            return work
        if self.spanning or not _moves([*outputs, *tensors]):
            return self._forward("alltoall", outputs, tensors, opts, outputs)
        return self._issue(*issued)

    def barrier(self, opts: Any = None, **named: Any) -> Any:
        opts = _options(c10d.BarrierOptions, opts, (), named)
        if (
            self.device_libraries
            and opts.device is not None
            and opts.device.type in self.device_libraries
        ):
            return self.device_libraries[opts.device.type].barrier(opts)
        call = self.calls.run, "barrier", None, None
        tensors: list[Tensor] = []
        issued = autograd.BARRIER, tensors, call, tensors, opts
        if work := self._serve(*issued, "barrier", None, None):
            return work
        if is_watched() or self._is_gloos(opts, "barrier"):
            return self._forward("barrier", opts, [])
        return self._issue(*issued)

    # -- running ----------------------------------------------------------------------------

    def _reduces(self, op: str | None, tensors: Tensors) -> bool:
        return all(
            reduces(op, tensor.dtype) and moves(tensor) and tensor.dtype not in self.not_reduced
            for tensor in tensors
        )

    def _is_gloos(
        self, opts: Any, name: str, part: Any = None, whole: Any = None, op: str | None = "sum",
        root: int = 0,
    ) -> bool:  # fmt: skip
        """Whether gloo runs a call that could be ours, as the ranks lie on several nodes.

        Its arguments are those of `SpanningCalls.count`.
        """
        if self.spanning is None:
            return False
        postpone_handlers()
        if opts.asyncOp or opts.timeout > _OF_THE_GROUP:
            return True
        try:
            return not self.spanning.count(name, part, whole, op, root)
        except CollectiveError as error:  # a rank did not come to make the plan
            raise as_torch(error) from error

    def _serve(
        self, operator: Operator, inputs: Tensors, call: Call, results: Any, opts: Any,
        name: str, x: Any, out: Any, op: str | None = "sum", root: int = 0, rows: int = FLAT,
    ) -> Any:  # fmt: skip
        """Run a call by its compiled program, or issue it; None where there is none.

        Args:
            operator: torch's, as autograd and torch's profiler see it.
            inputs: the tensors that it reads.
            call: what runs it in Python, where ranks find that they call different things.
            results: the tensors that it writes.
            name: the collective, with its input and output, its operator, and its root.
            rows: which arrays are rows.
        """
        order = self.order
        if order.queue is None or (opts.asyncOp and self.spanning):
            return None
        if profiler._is_profiler_enabled or is_watched():
            return None
        if opts.timeout > _OF_THE_GROUP or (operator.copies and autograd.is_checked(results)):
            return None
        key = name, x, out, op, root, None, self.algorithms[name], rows
        work: Any = COMPLETE_WORK
        if opts.asyncOp:
            work = IssuedWork(call, results, order, self._missing)
            is_known = order.issue(work, key)
        else:
            try:
                is_known = order.run_known(key)
            except CollectiveError as error:
                raise as_torch(error) from error
        if not is_known:
            postpone_handlers()
            return None
        autograd.tell(operator, inputs, results)
        return work

    def _issue(
        self, operator: Operator, inputs: Tensors, call: Call, results: Any, opts: Any
    ) -> Any:
        """Run a call in its turn, or queue it; torch's C++ asks for a work in any case.

        Its arguments are those of `_serve`.
        """
        written = list(autograd.leaves(results))
        is_copied = operator.copies and autograd.is_checked(written)
        if is_copied:
            call = autograd.copied(call, is_in_place=operator.is_in_place)
        work = self._begin(operator, inputs, (run_unseen, *call), results, opts)
        autograd.tell(operator, inputs, written, is_copied=is_copied)
        return work

    def _begin(
        self, operator: Operator, inputs: Tensors, call: Call, results: Any, opts: Any
    ) -> Any:
        postpone_handlers()
        if opts.timeout > _OF_THE_GROUP and self._size > 1:
            call = self._within, opts.timeout.total_seconds(), *call
        if profiler._is_profiler_enabled:
            return self._profile(operator, inputs, call, results, opts)
        if opts.asyncOp:
            work = QueuedWork(call, results, self.order, self._missing)
            if is_watched():
                self.order.run(work.perform)  # a mode sees the operators of its thread alone
            else:
                self.order.add(work)
            return work
        try:
            self.order.run(*call)
        except CollectiveError as error:
            raise as_torch(error) from error
        return COMPLETE_WORK

    def _profile(
        self, operator: Operator, inputs: Tensors, call: Call, results: Any, opts: Any
    ) -> ProfiledWork:
        """Run a call on a thread of the group, under the names that torch's profiler shows."""
        title = f"{c10d.get_backend(self)}:{operator.title}"
        with record_of(f"c10d::{operator.name}", inputs):
            work = ProfiledWork(recorded(title, inputs, call), results, self.order, self._missing)
            self.order.add(work)
        if not opts.asyncOp:
            work.wait()
        return work

    def _forward(self, name: str, *parameters: Any) -> Any:
        """Leave a call to the library: in its turn, or at once where it is not on the host.

        The last of `parameters` is where the results are, the one before the options.
        """
        *arguments, opts, results = parameters
        tensors = list(autograd.leaves(arguments))
        device = next((tensor.device.type for tensor in tensors if not tensor.is_cpu), "cpu")
        library = self.device_libraries.get(device, self.library)
        how = method_of(library, name)
        if device != "cpu" or self.spanning:
            return how(*arguments, opts)
        description = f"{name} of the library, {tensors[0].dtype if tensors else None}"
        enabled, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

        def call() -> None:
            with self._recorded(name):
                run_unseen(self.calls.agree, description)
                with autograd_mode(enabled=enabled, inference=inference):
                    how(*arguments, opts).wait()

        return self._begin(Operator(name, name), tensors, (call,), results, opts)

    def _recorded(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which the flight recorder has a call of the library."""
        if self._size == 1:
            return nullcontext()
        context: AbstractContextManager[None] = self._opened_once().recording.call(
            f"{name} of gloo"
        )
        return context

    def _within(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Run a call that waits for the others for so many seconds, not for the group's timeout."""
        opened = self._opened_once(seconds)
        opened.deadline = seconds
        try:
            function(*arguments)
        finally:
            opened.deadline = deadline_of(self)

    def _opened_once(self, seconds: float | None = None) -> Any:
        """Return the group's collectives, which all its ranks open at their first call.

        Args:
            seconds: for which the first call waits for the others, and names the missing ones; None
                where the library waits for them, for the group's timeout.

        Raises:
            ArgumentError: the group has been destroyed.
        """
        if self._opened is None:
            if self._is_destroyed:
                raise ArgumentError("this process group has been destroyed: make another one")
            come(self.store, self._rank)
            if seconds is not None:
                wait_for_all(self.store, self._rank, self._size, seconds)
            with unseen():
                self._opened = self._open()
            self._opened.deadline = deadline_of(self)
            self.order.begin(getattr(self._opened, "channel", None))
        return self._opened

    def _open(self) -> Any:
        """Return the group's collectives: by a channel, unless a user chooses algorithms."""
        is_free = self.spanning is None and set(self.algorithms.values()) == {"auto"}
        return (open_on_node(self) if is_free else None) or self.over(self)

    def _finds_missing(self) -> Callable[[], Any] | None:
        """Return what finds the ranks that are missing, None where the ranks share no memory."""
        opened = self._opened
        if isinstance(opened, OneNode):
            return opened.missing
        shared = None if opened is None else opened.transport.shared
        return None if shared is None or shared.mailbox is None else shared.mailbox.missing

    def _missing(self) -> str:
        """Name the ranks that keep the call that is under way waiting."""
        find_missing = self._finds_missing()
        if find_missing is None:
            return "its group shares no memory, so nobody knows which rank is missing"
        ranks = ", ".join(map(str, find_missing()))
        return f"it waits for rank {ranks}" if ranks else "all ranks have called"


def _as_list(tensors: Any) -> Any:
    return tensors if type(tensors) is list or not isinstance(tensors, Tensor) else [tensors]


def _options(kind: Any, opts: Any, arguments: Any = (), named: Any = _NOTHING) -> Any:
    """Return options as torch's own methods take them, or an operator, root or timeout instead."""
    if type(opts) is kind:
        return opts
    if unknown := named.keys() - _FIELDS.keys():
        raise TypeError(f"{min(unknown)} is no argument of this call; use {', '.join(_FIELDS)}")
    options = kind()
    for name, value in named.items():
        setattr(options, _FIELDS[name], value)
    for value in (opts, *arguments):
        if isinstance(value, timedelta):
            options.timeout = value
        elif isinstance(value, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
            options.reduceOp = value
        elif value is not None:
            options.rootRank = value
    return options


def _moves(tensors: Tensors) -> bool:
    return all(map(moves, tensors))


def _fit(whole: Tensor, part: Tensor, size: int, large: str, small: str) -> None:
    if whole.dtype != part.dtype:
        wrong = f"the {large} is {whole.dtype}, the {small} {part.dtype}: they agree"
    elif whole.numel() != size * part.numel():
        wrong = (
            f"the {large} has {whole.numel()} elements: {size} ranks need {size} times the "
            f"{part.numel()} of the {small}"
        )
    else:
        return
    raise as_torch(ArgumentError(wrong))
