"""The interface of both packages: one object, every collective, whatever the backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, Self

from mpicoll.backend import Array, Nodes, Transport
from mpicoll.c_extension import _compiled
from mpicoll.calls.agreement import check_on_all
from mpicoll.calls.allocation import readable
from mpicoll.calls.arguments import check_number
from mpicoll.calls.method_calls import MethodCalls
from mpicoll.calls.planner import Planner
from mpicoll.calls.point_to_point import PointToPoint
from mpicoll.calls.recording import Recording
from mpicoll.calls.routes import Routes
from mpicoll.engine.plan import Plan
from mpicoll.errors import ArgumentError
from mpicoll.machine.settings import check_deadline
from mpicoll.notation.contract import COLLECTIVES, collective
from mpicoll.notation.elements import ReduceOp
from mpicoll.selection.auto import AutoChooser

Op = str | ReduceOp | Callable[[Any, Any], Any]
_COLORS, _KEYS = range(1 << 31), range(-(1 << 31), 1 << 31)


class Collectives(PointToPoint):
    """Collective communication among the ranks of one group.

    Every method is collective: all ranks call it with matching arguments, and bad
    input raises the same clear error on every rank before any data is sent.
    Arrays are NumPy or CuPy under mpi4py, tensors under torch.distributed, C-contiguous.
    Results for arrays on a GPU are ready on the caller's stream.

    >>> import mpicoll, numpy as np
    >>> mpicoll.threads(4)(lambda c: c.allreduce(np.full(2, c.rank)))[0]
    array([6, 6])

    Common arguments:
        x: this rank's input. ``vector`` collectives take any shape. For scatter,
            reduce_scatter and alltoall the first axis is one row per rank; with
            ``counts`` the rows of one rank lie together on the first axis.
        out: where the result goes; a new array by default. In place: ``out=x``, or for
            gather and allgather ``x=out[rank]``, for scatter and reduce_scatter
            ``out=x[rank]``.
        op: sum, prod, min, max, avg, band, bor, bxor, land, lor, or an associative
            ``function(left, right)``; bare functions count as not commutative
            (`mpicoll.user_op` makes commutative ones). Ranks compare the name of a function and
            whether it commutes: they cannot distinguish two functions of one name.
        counts: rows per rank, the same on every rank; for alltoall a matrix,
            ``counts[source][target]``.
        algorithm: ``native``, ``native_persistent``, ``native:nccl`` (CuPy arrays over mpi4py), a
            composition of natives such as ``native:reduce+broadcast``, a schedule such as
            ``knomial(radix=4)``, or ``auto``: the choice of this machine's decision table
            (`mpicoll.tune`), else of the shipped table. On one node, methods with ``auto`` need no
            plan, and so run any length alike. ``mpich_default`` and ``openmpi_default``
            run the choice of these libraries (`mpicoll.defaults`).
            A schedule takes the fastest transport to each rank; ``ring@point-to-point``,
            ``ring@symmetric`` and ``ring@cma`` name one, and for arrays on a GPU ``ring@ipc``
            and ``ring@staged`` or ``ring@direct``.

    Raises:
        ArgumentError: bad input; `Disagreement` where ranks ask for different things.
        Unsupported: the algorithm cannot serve this size or operator.
        Unavailable: the library has no such native call, or this group no such transport.
        RankLost: a rank that others wait for has ended, did not come within `deadline`, or has left
            the call by an error of its own: in a user's function, or an interrupt.

    After an error in the middle of a run the group serves further calls, but not that plan. After
    one while ranks agree on a new call or make a plan, every further call says that the group has
    ended.
    """

    def __init__(self, transport: Transport, name: str = "world") -> None:
        self.process, self.name, self.parts = os.getpid(), name, 0
        self.routes = Routes(transport)
        self.chooser = AutoChooser(transport)
        self.planner = Planner(transport, self.routes, self.chooser)
        from mpicoll.flight.groups import join  # importing mpicoll is quicker without

        self.flight = join(
            transport.exchange, transport.rank, transport.size, name=name, writers=_compiled,
            threads=transport.backend == "threads",
        )  # fmt: skip
        super().__init__(transport, Recording(self.flight))
        self.plans = MethodCalls(transport, self.planner, self._slow, self.flight)
        self._call = self.plans.table

    # -- the group --------------------------------------------------------------------

    @property
    def backend(self) -> str:
        """``mpi4py``, ``torch`` or ``threads``.

        >>> import mpicoll
        >>> mpicoll.threads(2)(lambda c: c.backend)
        ['threads', 'threads']
        """
        return self.transport.backend

    @property
    def library(self) -> str:
        """The library below and its version.

        >>> import mpicoll
        >>> mpicoll.threads(2)(lambda c: c.library)[0].partition(" ")[0]
        'threads'
        """
        return self.transport.library

    @property
    def nodes(self) -> Nodes:
        """The ranks of each node, in order.

        >>> import mpicoll
        >>> mpicoll.threads(4, ranks_per_node=2)(lambda c: c.nodes)[0]
        ((0, 1), (2, 3))
        """
        return self.transport.nodes

    @property
    def transports(self) -> list[str]:
        """The transports of schedules here: ``point-to-point``, ``symmetric``, ``cma``.

        >>> import mpicoll
        >>> "symmetric" in mpicoll.threads(2)(lambda c: c.transports)[0]
        True
        """
        return self.routes.names()

    def gpu(self) -> Array:
        """Return an empty array on this rank's GPU, which it makes the current one.

        A thread that uses a GPU already keeps it. Otherwise the ranks of a node take its GPUs in
        turn, as ``CUDA_VISIBLE_DEVICES`` shows them.

        >>> import mpicoll
        >>> def program(c):
        ...     try:
        ...         return c.gpu().size
        ...     except mpicoll.Unavailable:  # this machine has no GPU
        ...         return 0
        >>> mpicoll.threads(2)(program)
        [0, 0]

        Raises:
            Unavailable: CuPy or torch finds none.
        """
        return self.transport.arrays.on_gpu(self.transport.gpu_turn)

    def gpu_transports(self) -> dict[str, str]:
        """Return the transports of GPU arrays, each with why it is unavailable; collective.

        Every rank takes the GPU that `gpu` gives it. An available one has an empty reason.

        >>> import mpicoll
        >>> sorted(mpicoll.threads(2)(lambda c: c.gpu_transports())[0])
        ['direct', 'ipc', 'staged']
        """
        return self.routes.on_gpu()

    @property
    def deadline(self) -> float:
        """Seconds after which a rank that waits for another gives up (default 300).

        It holds in every transport. The environment variable ``MPICOLL_DEADLINE`` sets it too. If
        it passes in a blocking call of MPI's own, as ``native`` makes, the process ends. NCCL's
        own call ends as NCCL has it.

        >>> import mpicoll
        >>> mpicoll.threads(2, deadline=10)(lambda c: c.deadline)
        [10.0, 10.0]
        """
        return self.transport.deadline

    @deadline.setter
    def deadline(self, seconds: float) -> None:
        self.transport.deadline = check_deadline(seconds)

    def algorithms(self, name: str) -> list[str]:
        """Return every algorithm name of a collective that this backend takes.

        >>> import mpicoll
        >>> "ring" in mpicoll.threads(2)(lambda c: c.algorithms("allreduce"))[0]
        True
        """
        return self.planner.algorithms(collective(name).name)

    def allocate(
        self, shape: int | Sequence[int], dtype: Any = "float64", *, like: Array | None = None
    ) -> Array:
        """Return an array, uninitialised, that the other ranks of this node can read; collective.

        Schedules over shared memory do not copy it. Each rank can give a shape of its own. If the
        ranks share no memory, the array is an ordinary one.

        >>> import mpicoll, numpy as np
        >>> def program(c):
        ...     x = c.allocate((2, 3), "float32")
        ...     x[:] = c.rank
        ...     return c.allreduce(x)[0]
        >>> mpicoll.threads(2)(program)[0]
        array([1., 1., 1.], dtype=float32)

        Args:
            shape: of the array; a number for one axis.
            dtype: by name, or as NumPy or torch has it.
            like: an array on this rank's GPU, as `gpu` returns. The new array then lies there, in
                memory that NCCL has registered as a symmetric window until the group is freed.

        Raises:
            ArgumentError: no such shape or dtype.
            Unavailable: NCCL does not serve this group, or has no windows on these GPUs.
        """
        on_gpu = like is not None and not self.transport.arrays.is_on_host(like)
        with self.recording.call("allocate"):
            make = check_on_all(
                self.transport, f"allocates an array{' on its GPU' if on_gpu else ''}",
                lambda: readable(self.transport, shape, dtype, like if on_gpu else None),
            )  # fmt: skip
            return make()

    # -- the collectives ------------------------------------------------------------

    def barrier(self, *, algorithm: str = "auto") -> None:
        """Return when every rank has called.

        >>> import mpicoll
        >>> mpicoll.threads(2)(lambda c: c.barrier())
        [None, None]
        """
        self._call("barrier", None, None, "sum", 0, None, algorithm)

    def broadcast(
        self, x: Array | None, root: int = 0, *, out: Array | None = None, algorithm: str = "auto"
    ) -> Array:
        """Return the root's `x` on every rank, of its shape and dtype.

        On the other ranks `x` may be None, or an array that gives shape and dtype.

        >>> import mpicoll, numpy as np
        >>> mpicoll.threads(2)(lambda c: c.broadcast(np.arange(3) if c.rank == 0 else None))[1]
        array([0, 1, 2])
        """
        return self._call("broadcast", x, out, "sum", root, None, algorithm)

    def reduce(
        self, x: Array, op: Op = "sum", root: int = 0, *, out: Array | None = None,
        algorithm: str = "auto",
    ) -> Array | None:  # fmt: skip
        """Return the reduction of all ranks' `x` on the root, None elsewhere.

        The result has the shape and dtype of `x`, which are the same on all ranks.

        >>> import mpicoll, numpy as np
        >>> mpicoll.threads(3)(lambda c: c.reduce(np.array([c.rank, 1]), "max", root=2))
        [None, None, array([2, 1])]
        """
        return self._call("reduce", x, out, op, root, None, algorithm)

    def allreduce(
        self, x: Array, op: Op = "sum", *, out: Array | None = None, algorithm: str = "auto"
    ) -> Array:
        """Return the reduction of all ranks' `x`, of its shape and dtype.

        >>> import mpicoll, numpy as np
        >>> mpicoll.threads(3)(lambda c: c.allreduce(np.array([c.rank, 1.0]), "avg"))[0]
        array([1., 1.])
        """
        return self._call("allreduce", x, out, op, 0, None, algorithm)

    def gather(
        self, x: Array, root: int = 0, *, counts: Sequence[int] | None = None,
        out: Array | None = None, algorithm: str = "auto",
    ) -> Array | None:  # fmt: skip
        """Return every rank's `x` as rows ``(size, *x.shape)`` on the root, None elsewhere.

        With ``counts`` rank i gives ``counts[i]`` rows, and the root gets ``(sum(counts), ...)``.

        >>> import mpicoll, numpy as np
        >>> mpicoll.threads(2)(lambda c: c.gather(np.full(2, c.rank)))[0]
        array([[0, 0],
               [1, 1]])
        """
        return self._call("gather", x, out, "sum", root, counts, algorithm)

    def allgather(
        self, x: Array, *, counts: Sequence[int] | None = None, out: Array | None = None,
        algorithm: str = "auto",
    ) -> Array:  # fmt: skip
        """Return every rank's `x` as rows ``(size, *x.shape)``.

        With ``counts`` rank i gives ``counts[i]`` rows, and every rank gets ``(sum(counts), ...)``.

        >>> import mpicoll, numpy as np
        >>> mpicoll.threads(2)(lambda c: c.allgather(np.full(c.rank + 1, c.rank), counts=[1, 2]))[0]
        array([0, 1, 1])
        """
        return self._call("allgather", x, out, "sum", 0, counts, algorithm)

    def scatter(
        self, x: Array | None, root: int = 0, *, counts: Sequence[int] | None = None,
        out: Array | None = None, algorithm: str = "auto",
    ) -> Array:  # fmt: skip
        """Return row ``rank`` of the root's `x`, of shape ``x.shape[1:]``.

        The root's `x` has the shape ``(size, ...)``; elsewhere `x` is ignored and may be None. With
        ``counts`` rank i gets ``counts[i]`` rows.

        >>> import mpicoll, numpy as np
        >>> rows = np.arange(4).reshape(2, 2)
        >>> mpicoll.threads(2)(lambda c: c.scatter(rows if c.rank == 0 else None))
        [array([0, 1]), array([2, 3])]
        """
        return self._call("scatter", x, out, "sum", root, counts, algorithm)

    def reduce_scatter(
        self, x: Array, op: Op = "sum", *, counts: Sequence[int] | None = None,
        out: Array | None = None, algorithm: str = "auto",
    ) -> Array:  # fmt: skip
        """Return row ``rank`` of the reduction of all ranks' `x`, of shape ``x.shape[1:]``.

        Every rank's `x` has the shape ``(size, ...)``. With ``counts`` rank i gets ``counts[i]``
        rows.

        >>> import mpicoll, numpy as np
        >>> mpicoll.threads(2)(lambda c: c.reduce_scatter(np.array([[1, 2], [3, 4]])))
        [array([2, 4]), array([6, 8])]
        """
        return self._call("reduce_scatter", x, out, op, 0, counts, algorithm)

    def alltoall(
        self, x: Array, *, counts: Sequence[Sequence[int]] | None = None,
        out: Array | None = None, algorithm: str = "auto",
    ) -> Array:  # fmt: skip
        """Send row i of `x` to rank i; return row i from rank i.

        `x` and the result have the shape ``(size, ...)``. With ``counts[source][target]`` rows
        move in blocks of these lengths.

        >>> import mpicoll, numpy as np
        >>> mpicoll.threads(2)(lambda c: c.alltoall(np.array([10, 11]) + 10 * c.rank))
        [array([10, 20]), array([11, 21])]
        """
        return self._call("alltoall", x, out, "sum", 0, counts, algorithm)

    def scan(
        self, x: Array, op: Op = "sum", *, out: Array | None = None, algorithm: str = "auto"
    ) -> Array:
        """Return the reduction of the `x` of ranks 0 to this one, of its shape and dtype.

        >>> import mpicoll, numpy as np
        >>> mpicoll.threads(3)(lambda c: c.scan(np.array([c.rank + 1])))
        [array([1]), array([3]), array([6])]
        """
        return self._call("scan", x, out, op, 0, None, algorithm)

    def exscan(
        self, x: Array, op: Op = "sum", *, out: Array | None = None, algorithm: str = "auto"
    ) -> Array:
        """Return the reduction of the `x` of the ranks before this one; undefined on rank 0.

        >>> import mpicoll, numpy as np
        >>> mpicoll.threads(3)(lambda c: c.exscan(np.array([c.rank + 1])))[1:]
        [array([1]), array([3])]
        """
        return self._call("exscan", x, out, op, 0, None, algorithm)

    # -- plans ------------------------------------------------------------------------

    def plan(
        self, name: str, x: Array | None = None, *op_and_root: Op | int, op: Op = "sum",
        root: int = 0, counts: Any = None, out: Array | None = None, algorithm: str = "auto",
    ) -> Plan:  # fmt: skip
        """Bind a collective to its arrays, to run many times; collective, like MPI-4's ``_init``.

        ``plan.algorithm`` and ``plan.transport`` name what runs. ``plan.out`` is the array that
        holds the result after each run.

        >>> import mpicoll, numpy as np
        >>> def program(c):
        ...     x = np.ones(2)
        ...     with c.plan("allreduce", x) as plan:
        ...         for _ in range(2):
        ...             plan.run()
        ...             x[:] = plan.out
        ...     return x
        >>> mpicoll.threads(2)(program)[0]
        array([4., 4.])

        Args:
            name: of the collective.
            op_and_root: the arguments that the method of this name takes by position after `x`.
        """
        if op_and_root:
            method = signature(getattr(type(self), collective(name).name))
            positional = method.bind(self, x, *op_and_root).arguments
            op, root = positional.get("op", op), positional.get("root", root)
        try:
            return self._plan((name, x, out, op, root, counts, algorithm))
        except ArgumentError as error:
            raise error.with_traceback(None)  # noqa: B904  as in `_slow`

    def _plan(self, call: tuple[str, Any, Any, Any, Any, Any, Any]) -> Plan:
        checked = self.planner.checked(*call)
        with self.recording.call(f"plan of {call[0]}", checked):
            arguments = self.plans.agree(checked, "makes a plan")
            plan = self.plans.build(arguments)
        self.recording.record(plan, arguments)
        return plan

    def _slow(
        self, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any, algorithm: Any,
        differs: bool = False,
    ) -> Any:  # fmt: skip
        """Run a call that is not known yet, or on which the ranks differ.

        An error of the arguments names them. All ranks print it, so it shows no inner frames.
        """
        try:
            return self._checked((name, x, out, op, root, counts, algorithm), differs)
        except ArgumentError as error:
            raise error.with_traceback(None)  # noqa: B904  it keeps its cause

    def _checked(self, call: tuple[str, Any, Any, Any, Any, Any, Any], differs: bool) -> Any:
        checked = self.planner.checked(*call)
        with self.recording.call(call[0], checked):
            return self.plans.run(checked, call, differs=differs)

    # -- groups -----------------------------------------------------------------------

    def split(self, color: int | None, key: int | None = None) -> Collectives | None:
        """Return the group of the ranks with the same `color`, ordered by `key`, then rank.

        ``color=None`` takes part in none and gets None. Collective.

        >>> import mpicoll
        >>> mpicoll.threads(4)(lambda c: c.split(c.rank % 2).size)
        [2, 2, 2, 2]

        Raises:
            ArgumentError: `color` is not None or a number from 0 to 2^31-1, or `key` no number of
                32 bits; `Disagreement` on the other ranks.
        """
        with self.recording.call("split"):
            color, key = check_on_all(
                self.transport, "splits the group",
                lambda: (check_number("color", color, _COLORS), check_number("key", key, _KEYS)),
            )  # fmt: skip
            with self.transport.poison_on_error():
                part = self.transport.split(color, self.rank if key is None else key)
        self.parts += 1
        return None if part is None else Collectives(part, f"{self.name}/{self.parts}:{color}")

    def shrink(self) -> Collectives:
        """Return the group of the remaining ranks of this one; collective among them.

        After a `RankLost` the ranks that live and call this within `deadline` and 10 s go on, in
        their order. The others have ended, are stopped, cannot be reached, or did not call. Ranks
        that end meanwhile are left out, too. This group can be freed before or afterwards.

        >>> import mpicoll
        >>> mpicoll.threads(2)(lambda c: c.shrink().size)
        [2, 2]

        Raises:
            RankLost: the others go on without this rank, as it came too late.
        """
        survivors: Collectives = self.transport.survive(Collectives)
        return survivors

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        """Return every rank's small item, in rank order.

        >>> import mpicoll
        >>> mpicoll.threads(2)(lambda c: c.exchange({"rank": c.rank}))[0]
        [{'rank': 0}, {'rank': 1}]

        Args:
            item: plain data: numbers, text, bytes, containers and records of these.
            kind: the type of all items, as msgspec takes it. With `Any`, tuples and sets become
                lists, and records dictionaries.

        Raises:
            ArgumentError: on every rank, if a rank's item is no plain data.
            Disagreement: a rank's item is not of this type.
        """
        with self.recording.call("exchange"):
            return self.transport.exchange(item, kind)

    def free(self) -> None:
        """Release the cached plans and the group itself; collective.

        A ``with`` block does so at its end. In a forked child it does nothing.

        >>> import mpicoll
        >>> mpicoll.threads(2)(lambda c: c.split(0).free())
        [None, None]
        """
        if os.getpid() != self.process:
            return
        self.plans.free()
        self.routes.free()
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # Freeing is collective: a rank that fails alone must not wait here for the others.
        if exception[0] is None:
            self.free()

    def __repr__(self) -> str:
        return f"<Collectives rank {self.rank} of {self.size} over {self.library}>"


def names() -> list[str]:
    """Return the names of all collectives."""
    return list(COLLECTIVES)
