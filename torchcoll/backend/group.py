"""The process group: torch.distributed's calls, served by our schedules.

torch's C++ reaches a group in Python only by the names that this class overrides. All other calls
go to the library beneath: messages between two ranks, and calls that need a name of their own.
Other calls that are not ours, because of a device, a dtype or an operator, go there in their turn
(`Group._forward`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import profiler
from torch.distributed import distributed_c10d

from mpicoll.errors import ArgumentError, CollectiveError
from mpicoll.flight.groups import GroupFlight
from torchcoll.backend import autograd
from torchcoll.backend.calls import agree, check_lengths, run_call
from torchcoll.backend.channels import OneNode, open_on_node
from torchcoll.backend.compiling import uncompiled_methods
from torchcoll.backend.interrupting import postpone_handlers, uninterrupted
from torchcoll.backend.modes import run_unseen, unseen
from torchcoll.backend.opening import deadline_of, open_over_gloo, open_over_mpi
from torchcoll.backend.order import Call, Order
from torchcoll.backend.spanning import Member, SpanningCalls
from torchcoll.backend.tensors import (
    OP_NAMES,
    Tensor,
    is_watched,
    leaves,
    moves,
    reduces,
)
from torchcoll.backend.works import (
    COMPLETE_WORK,
    IssuedWork,
    QueuedWork,
    as_torch,
    record_of,
    recorded,
)
from torchcoll.operations import BARE_ARGUMENTS, BARRIER, INPUT_ROWS, OPERATIONS, Operation, Part

# torch's stubs lack some names, and one of the two constructors.
c10d: Any = distributed_c10d
Tensors = Sequence[Tensor]
_ROOTED = ("reduce", "gather", "scatter")
"""The collectives of which a rank that is not the root has only one side."""
_ProcessGroup: Any = dist.ProcessGroup
_GLOO = dist.ProcessGroup.BackendType.GLOO
_FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}
"""Of the options, where torch's own methods take them by name."""
_OF_THE_GROUP = timedelta(0)
"""A timeout in a call's options that is not longer leaves it to the group's."""


def _options(kind: Any, values: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Return options as torch's own methods take them, or an operator, root or timeout instead."""
    if unknown := named.keys() - _FIELDS.keys():
        raise TypeError(f"{min(unknown)} is no argument of this call; use {', '.join(_FIELDS)}")
    options = kind()
    for name, value in named.items():
        setattr(options, _FIELDS[name], value)
    for value in values:
        if isinstance(value, timedelta):
            options.timeout = value
        elif isinstance(value, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
            options.reduceOp = value
        elif value is not None:
            options.rootRank = value
    return options


def _method(operation: Operation) -> Any:
    """Return the method of a group that runs an operation, and lets no handler interrupt it."""
    kind, folds, arrange = operation.options, operation.folds, operation.arrange
    count, bare = len(signature(arrange).parameters), BARE_ARGUMENTS.get(arrange)
    is_rooted = hasattr(kind, "rootRank")

    @uninterrupted
    def method(group: Group, *arguments: Any, opts: Any = None, **named: Any) -> Any:
        tensors = arguments[:count]
        if opts is None and len(arguments) > count:
            opts = arguments[count]
        if type(opts) is not kind:
            opts = _options(kind, (opts, *arguments[count + 1 :]), named)
        if bare is not None and isinstance(tensors[bare], Tensor):
            tensors = tuple([side] if isinstance(side, Tensor) or side else [] for side in tensors)
        inputs, results, parts = arrange(*tensors)
        op = OP_NAMES.get(hash(opts.reduceOp)) if folds else "sum"
        root = opts.rootRank if is_rooted else 0
        try:
            return group._run(operation, tensors, inputs, results, parts, opts, op, root)
        except CollectiveError as error:
            if isinstance(error, RuntimeError):
                raise
            raise as_torch(error) from error

    return method


_barrier = _method(BARRIER)


@uncompiled_methods
class Group(_ProcessGroup):  # type: ignore[misc]
    """A process group of torch.distributed whose collectives are ours.

    Args:
        store: of this group's ranks.
        rank: of this process in the group.
        size: of the group.

    Attributes:
        is_over_mpi: MPI carries what ranks of several nodes exchange, instead of gloo.
        members: what its ranks have told of themselves.
        flight: records its calls, on one node; None where nothing does.
        library: a plain process group over gloo, for what is not ours.
        device_libraries: plain process groups for devices that another library than gloo serves.
        algorithms: the algorithm of each collective.
        spanning: which calls are ours in a group on several nodes, where gloo runs the others; None
            for other groups.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.store = store
        self._rank, self._size = rank, size
        self.is_over_mpi = False
        self.members: list[Member] = []
        self.flight: GroupFlight | None = None
        self.algorithms: dict[str, str] = {}
        self.library = self._plain(_GLOO)
        self.device_libraries: dict[str, Any] = {}
        self.order = Order(f"torchcoll {rank}")
        self.spanning: SpanningCalls | None = None
        self._opened: Any = None
        self._is_destroyed = False

    # -- what torch asks of a group beside collectives --------------------------------------

    def describe(self) -> str:
        """Return in words what serves the group's collectives."""
        parts = [f"torchcoll over {'MPI' if self.is_over_mpi else 'gloo'}"]
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

    @uninterrupted
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

    vars().update({name: _method(row) for row in OPERATIONS for name in row.methods})

    def barrier(self, opts: Any = None, **named: Any) -> Any:
        device = getattr(opts, "device", None)
        library = self.device_libraries.get(device.type) if device else None
        return _barrier(self, opts, **named) if library is None else library.barrier(opts)

    def _run(
        self, operation: Operation, arguments: Sequence[Any], inputs: Tensors, results: Any,
        parts: Sequence[Part], opts: Any, op: str | None, root: int,
    ) -> Any:  # fmt: skip
        """Run a call by the channel, or issue it; in Python, in its turn, where the channel cannot.

        torch's C++ takes a work in any case.

        Args:
            arguments: those of the operation's method, before the options.
            inputs, results, parts: what `Operation.arrange` makes of these.
            op: our name of the operator.
        """
        collective, order = operation.collective, self.order
        sizes = arguments[:1:-1] if len(arguments) > 2 else ()  # of an alltoall
        if root != self._rank and collective in _ROOTED:
            is_read = operation.rows != INPUT_ROWS
            parts = [(x, None) if is_read else (None, out) for x, out in parts]
        if not (
            order.queue is None or profiler._is_profiler_enabled or is_watched() or len(parts) != 1
            or opts.timeout > _OF_THE_GROUP or (operation.copies and autograd.is_checked(results))
            or (sizes and any(sizes))
        ):  # fmt: skip
            [(x, out)] = parts
            key = collective, x, out, op, root, None, "auto", operation.rows
            work: Any = None
            if opts.asyncOp:
                if number := order.issue(key):
                    work = IssuedWork(number, results, order, self._missing)
            elif order.run_known(key):
                work = COMPLETE_WORK
            if work is not None:
                autograd.tell(operation, inputs, results)
                return work
        postpone_handlers()
        if self._is_librarys(operation, parts, opts, op, root, sizes):
            return self._forward(operation, arguments, results, opts)
        for x, out in () if any(sizes) else parts:
            check_lengths(operation, x, out, self._size)
        written = list(leaves(results))
        is_copied = operation.copies and autograd.is_checked(written)
        call: Call = (partial(run_call, self), operation, parts, op, root, sizes)
        call = (autograd.run_on_copies, *call) if is_copied else call
        work = self._begin(operation, inputs, (run_unseen, *call), results, opts)
        autograd.tell(operation, inputs, written, is_copied=is_copied)
        return work

    def _is_librarys(
        self, operation: Operation, parts: Sequence[Part], opts: Any, op: str | None, root: int,
        sizes: Any,
    ) -> bool:  # fmt: skip
        """Whether the library runs a call, whose arguments are those of `_run`."""
        tensors = list(leaves(parts))
        if is_watched() or not all(map(moves, tensors)):
            return True
        if operation.folds and not all(reduces(op, tensor.dtype) for tensor in tensors):
            return True
        dtypes = (tensor.dtype for tensor in tensors)
        if self.is_over_mpi and operation.folds and torch.bfloat16 in dtypes:
            return True  # NumPy, whose arrays MPI takes, cannot fold it
        sides = [side for part in parts for side in part]
        if (len(parts) != 1 and not operation.is_coalesced) or any(
            len(side) != self._size for side in sides if isinstance(side, (list, tuple))
        ):
            return True
        if self.spanning is None:
            return False
        if operation.is_coalesced or opts.asyncOp or opts.timeout > _OF_THE_GROUP or any(sizes):
            return True
        part, whole = reversed(sides) if operation.rows == INPUT_ROWS else sides
        whole = whole if operation.rows else None
        return not self.spanning.count(operation.collective, part, whole, op, root)

    def _begin(
        self, operation: Operation, inputs: Tensors, call: Call, results: Any, opts: Any
    ) -> Any:
        if opts.timeout > _OF_THE_GROUP and self._size > 1:
            call = self._within, opts.timeout.total_seconds(), *call
        if profiler._is_profiler_enabled:
            return self._profile(operation, inputs, call, results, opts)
        if opts.asyncOp:
            work = QueuedWork(call, results, self.order, self._missing)
            if is_watched():
                self.order.run(work.perform)  # a mode sees the operators of its thread alone
            else:
                self.order.add(work)
            return work
        self.order.run(*call)
        return COMPLETE_WORK

    def _profile(
        self, operation: Operation, inputs: Tensors, call: Call, results: Any, opts: Any
    ) -> QueuedWork:
        """Run a call on a thread of the group, under the names that torch's profiler shows."""
        title = f"{c10d.get_backend(self)}:{operation.title}"
        with record_of(f"c10d::{operation.name}", inputs):
            work = QueuedWork(recorded(title, inputs, call), results, self.order, self._missing)
            work.max_wait = math.inf
            self.order.add(work)
        if not opts.asyncOp:
            work.wait()
        return work

    def _forward(
        self, operation: Operation, arguments: Sequence[Any], results: Any, opts: Any
    ) -> Any:
        """Leave a call to the library: in its turn, or at once where it is not on the host."""
        tensors = list(leaves(arguments))
        device = next((tensor.device.type for tensor in tensors if not tensor.is_cpu), "cpu")
        library, name = self.device_libraries.get(device, self.library), operation.method
        how = operation.of(library)
        if device != "cpu" or self.spanning:
            return how(*arguments, opts)
        description = f"{name} of the library, {tensors[0].dtype if tensors else None}"
        enabled, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

        def call() -> None:
            with torch.inference_mode(inference), torch.set_grad_enabled(enabled):
                how(*arguments, opts).wait()

        def call_on_all_ranks() -> None:
            opened = self.opened()
            with opened.recording.call(f"{name} of gloo"):
                run_unseen(agree, opened, description)
                call()

        run = call if self._size == 1 else call_on_all_ranks
        return self._begin(operation, tensors, (run,), results, opts)

    def _within(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Run a call that waits for the others for so many seconds, not for the group's timeout."""
        opened = self.opened(seconds)
        opened.deadline = seconds
        try:
            function(*arguments)
        finally:
            opened.deadline = deadline_of(self)

    def opened(self, seconds: float | None = None) -> Any:
        """Return the group's collectives, which all its ranks open at their first call.

        By a channel, unless a user chooses algorithms or the ranks lie on several nodes.

        Args:
            seconds: for which the first call waits for the others; by default the group's timeout.

        Raises:
            ArgumentError: the group has been destroyed.
            RankLost: a rank did not come.
        """
        if self._opened is None:
            if self._is_destroyed:
                raise ArgumentError("this process group has been destroyed: make another one")
            seconds = deadline_of(self) if seconds is None else seconds
            has_choices = any(member.has_choices for member in self.members)
            open_between_nodes = open_over_mpi if self.is_over_mpi else open_over_gloo
            with unseen():
                opened = None if self.spanning or has_choices else open_on_node(self, seconds)
                self._opened = opened or open_between_nodes(self, seconds)
            self._opened.deadline = deadline_of(self)
            self.order.begin(getattr(self._opened, "channel", None))
        return self._opened

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
