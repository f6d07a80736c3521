"""The front: one object, every collective, whatever the backend."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self, TypeVar

from mpicoll import defaults
from mpicoll.algorithms.registry import Algorithm, algorithms, aliases, find
from mpicoll.errors import (
    ArgumentError,
    CollectiveError,
    Unavailable,
    UnknownName,
    Unsupported,
)
from mpicoll.gpu.ipc import IPC, GpuMemory, open_gpu_memory
from mpicoll.interfaces import DIRECT, STAGED, Array, Call, Nodes, Thunk, Transport
from mpicoll.interfaces import Request as Pending
from mpicoll.memory.segments import CMA, PREFER_ATTACH, SYMMETRIC
from mpicoll.memory.waiting import check_deadline
from mpicoll.notation.contract import COLLECTIVES, ReduceOp, collective
from mpicoll.notation.schedule import Round, Schedule
from mpicoll.programs.messages import lower
from mpicoll.programs.shared_memory import share
from mpicoll.runtime import arguments as asked
from mpicoll.runtime.arguments import Request, itemsize
from mpicoll.runtime.compositions import COMPOSITIONS, compose
from mpicoll.runtime.plan import (
    NO_MESSAGES,
    BoundRound,
    Plan,
    Posts,
    Resources,
    Turn,
    bind,
    buffers_for,
    native_plan,
    scheduled,
    scratch_for,
)
from mpicoll.runtime.tags import Tags
from mpicoll.selection import auto as choice
from mpicoll.simulator import is_ordered

Op = str | ReduceOp | Callable[[Any, Any], Any]

TRANSPORTS = ("point-to-point", SYMMETRIC, CMA, IPC, DIRECT, STAGED)
_ON_GPU = (IPC, DIRECT, STAGED)
_CACHED_PLANS = 32
_CACHED_SCHEDULES = 64
_COLORS, _KEYS = range(1 << 31), range(-(1 << 31), 1 << 31)
_UNSETTLED = b"unsettle"
"""In place of a digest, from a rank that must hear from the others first what to do."""

Checked = TypeVar("Checked")


class Cached(NamedTuple):
    """A plan over arrays of its own, which serves every call of one signature.

    Attributes:
        number: how many were made before it; ranks that run one plan know it by one number.
        request: what it was made for.
    """

    number: int
    request: Request
    plan: Plan


class Collectives:
    """Collective communication among the ranks of one group.

    Every method is collective: all ranks call it with matching arguments, and bad
    input raises the same clear error on every rank before any data is sent.
    Arrays are NumPy or CuPy under mpi4py, tensors under torch.distributed, C-contiguous.
    Results for arrays on a GPU are ready on the caller's stream.

    Common arguments:
        x: this rank's input. ``vector`` collectives take any shape. For scatter,
            reduce_scatter and alltoall the first axis is one row per rank; with
            ``counts`` the rows of one rank lie together on the first axis.
        out: where the result goes; a new array by default. In place: ``out=x``, or for
            gather and allgather ``x=out[rank]``, for scatter and reduce_scatter
            ``out=x[rank]``.
        op: sum, prod, min, max, avg, band, bor, bxor, land, lor, or an associative
            ``function(left, right)``; bare functions count as not commutative
            (`mpicoll.user_op` says otherwise). Ranks compare what a function is called and
            whether it commutes: two different ones of one name are not told apart.
        counts: rows per rank, the same on every rank; for alltoall a matrix,
            ``counts[source][target]``.
        algorithm: ``native``, ``native_persistent``, ``native:reduce+broadcast`` and the
            like, a schedule such as ``knomial(radix=4)``, or ``auto``: what the decision
            table of this machine says (`mpicoll.tune`), else what the cost model does.
            ``mpich_default`` and ``openmpi_default`` run what these libraries would take
            (`mpicoll.defaults`).
            A schedule takes the fastest way to each rank; ``ring@point-to-point``,
            ``ring@symmetric`` and ``ring@cma`` say which, and for arrays on a GPU ``ring@ipc``
            and ``ring@staged`` or ``ring@direct``.

    Raises:
        ArgumentError: bad input; `Disagreement` where ranks ask for different things.
        Unsupported: the algorithm cannot serve this size or operator.
        Unavailable: the library has no such native call, or this group no such transport.
        RankLost: a rank that others wait for has ended, or did not come within `deadline`.

    What a user's function raises is raised on the rank that folds. Those that wait for it get
    `RankLost` in the end; over messages, whose library knows no deadline, they wait for ever.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.rank, self.size = transport.rank, transport.size
        self.chooser = choice.Chooser(transport)
        self._plans: OrderedDict[Any, Cached] = OrderedDict()
        self._planned = 0
        self._broken: list[Plan] = []
        self._schedules: dict[tuple[Callable[..., Schedule], str, int, Any], list[Round]] = {}
        self._tags = Tags(transport.exchange)
        self._gpus: tuple[GpuMemory | None, str] | None = None

    # -- what this group is ---------------------------------------------------------

    @property
    def backend(self) -> str:
        """``mpi4py`` or ``torch``."""
        return self.transport.backend

    @property
    def library(self) -> str:
        """The library below and its version."""
        return self.transport.library

    @property
    def nodes(self) -> Nodes:
        """The ranks of each node, in order."""
        return self.transport.nodes

    @property
    def transports(self) -> list[str]:
        """How schedules may travel here: ``point-to-point``, ``symmetric``, ``cma``."""
        names, shared = [self.transport.name], self.transport.shared
        if shared is not None:
            names += [SYMMETRIC] if shared.unattached else [SYMMETRIC, CMA]
        return names

    def gpu(self) -> Array:
        """Make a GPU of this node the current one, and return an empty array there.

        The ranks of a node take its GPUs in turn, as ``CUDA_VISIBLE_DEVICES`` shows them.

        Raises:
            Unavailable: CuPy or torch finds none.
        """
        node = next(each for each in self.nodes if self.rank in each)
        return self.transport.arrays.on_gpu(node.index(self.rank))

    def gpu_transports(self) -> dict[str, str]:
        """Return the transports of GPU arrays, each with why it cannot be had; collective.

        Every rank takes the GPU that `gpu` gives it. What can be had has an empty reason.
        """
        ways = dict.fromkeys(_ON_GPU, "")
        other = STAGED if self.transport.way == DIRECT else DIRECT
        ways[other] = f"GPU arrays travel {self.transport.way} here"
        like, why = None, ""
        try:
            like = self.gpu()
        except Unavailable as error:
            why = f"rank {self.rank}: {error}"
        reasons = list(filter(None, self.transport.exchange(why)))
        if reasons:
            return dict.fromkeys(_ON_GPU, reasons[0])
        try:
            self._device_store(like)
        except Unavailable as error:
            ways[IPC] = str(error)
        return ways

    @property
    def deadline(self) -> float:
        """Seconds after which a rank that waits in shared memory gives up (default 300).

        The environment variable ``MPICOLL_DEADLINE`` sets it too.
        """
        shared = self.transport.shared
        return shared.wait_policy.deadline if shared else math.inf

    @deadline.setter
    def deadline(self, seconds: float) -> None:
        seconds = check_deadline(seconds)
        if self.transport.shared is not None:
            self.transport.shared.wait_policy.deadline = seconds

    def algorithms(self, name: str) -> list[str]:
        """Return every algorithm name of a collective that this backend takes."""
        what = collective(name).name
        natives = ["native", *(f"native:{text}" for text in COMPOSITIONS.get(what, ()))]
        if self.backend == "mpi4py":
            natives.insert(1, "native_persistent")
        return [*natives, *map(str, algorithms(what))]

    def allocate(self, shape: int | Sequence[int], dtype: Any = "float64") -> Array:
        """Return an array, uninitialised, that the other ranks of this node can read.

        Schedules over shared memory never copy it in. Collective; every rank may ask for a
        shape of its own. Where ranks share no memory it is an ordinary array.

        Raises:
            ArgumentError: no such shape or dtype.
        """
        arrays, shared = self.transport.arrays, self.transport.shared
        lengths, name = self._unanimous(
            lambda: (asked.check_shape(shape), asked.check_dtype(dtype))
        )
        if shared is None:
            return arrays.empty(lengths, name)
        return shared.allocate(lengths, name, math.prod(lengths) * itemsize(name))

    def _unanimous(self, check: Callable[[], Checked]) -> Checked:
        """Return what `check` does, unless it fails on some rank: then fail on all."""
        try:
            checked, error = check(), None
        except ArgumentError as refused:
            error = refused
        asked.raise_any(error, self.transport.exchange(error and str(error)))
        return checked

    # -- the collectives ------------------------------------------------------------

    def barrier(self, *, algorithm: str = "auto") -> None:
        """Return when every rank has called."""
        self._run("barrier", None, None, algorithm=algorithm)

    def broadcast(
        self, x: Array | None, root: int = 0, *, out: Array | None = None, algorithm: str = "auto"
    ) -> Array:
        """Return the root's `x` on every rank; elsewhere `x` may be None or tells the shape."""
        return self._run("broadcast", x, out, root=root, algorithm=algorithm)

    def reduce(
        self, x: Array, op: Op = "sum", root: int = 0, *, out: Array | None = None,
        algorithm: str = "auto",
    ) -> Array | None:  # fmt: skip
        """Return the fold of all ranks' `x` on the root, None elsewhere."""
        return self._run("reduce", x, out, op=op, root=root, algorithm=algorithm)

    def allreduce(
        self, x: Array, op: Op = "sum", *, out: Array | None = None, algorithm: str = "auto"
    ) -> Array:
        """Return the fold of all ranks' `x`."""
        return self._run("allreduce", x, out, op=op, algorithm=algorithm)

    def gather(
        self, x: Array, root: int = 0, *, counts: Sequence[int] | None = None,
        out: Array | None = None, algorithm: str = "auto",
    ) -> Array | None:  # fmt: skip
        """Return every rank's `x` as rows ``(size, *x.shape)`` on the root, None elsewhere."""
        return self._run("gather", x, out, root=root, counts=counts, algorithm=algorithm)

    def allgather(
        self, x: Array, *, counts: Sequence[int] | None = None, out: Array | None = None,
        algorithm: str = "auto",
    ) -> Array:  # fmt: skip
        """Return every rank's `x` as rows ``(size, *x.shape)``."""
        return self._run("allgather", x, out, counts=counts, algorithm=algorithm)

    def scatter(
        self, x: Array | None, root: int = 0, *, counts: Sequence[int] | None = None,
        out: Array | None = None, algorithm: str = "auto",
    ) -> Array:  # fmt: skip
        """Return row ``rank`` of the root's `x`; elsewhere `x` is ignored and may be None."""
        return self._run("scatter", x, out, root=root, counts=counts, algorithm=algorithm)

    def reduce_scatter(
        self, x: Array, op: Op = "sum", *, counts: Sequence[int] | None = None,
        out: Array | None = None, algorithm: str = "auto",
    ) -> Array:  # fmt: skip
        """Return row ``rank`` of the fold of all ranks' `x`, of shape ``(size, ...)``."""
        return self._run("reduce_scatter", x, out, op=op, counts=counts, algorithm=algorithm)

    def alltoall(
        self, x: Array, *, counts: Sequence[Sequence[int]] | None = None,
        out: Array | None = None, algorithm: str = "auto",
    ) -> Array:  # fmt: skip
        """Send row i of `x` to rank i; return row i from rank i."""
        return self._run("alltoall", x, out, counts=counts, algorithm=algorithm)

    def scan(
        self, x: Array, op: Op = "sum", *, out: Array | None = None, algorithm: str = "auto"
    ) -> Array:
        """Return the fold of the `x` of ranks 0 to this one."""
        return self._run("scan", x, out, op=op, algorithm=algorithm)

    def exscan(
        self, x: Array, op: Op = "sum", *, out: Array | None = None, algorithm: str = "auto"
    ) -> Array:
        """Return the fold of the `x` of the ranks before this one; undefined on rank 0."""
        return self._run("exscan", x, out, op=op, algorithm=algorithm)

    # -- plans ----------------------------------------------------------------------

    def plan(
        self, name: str, x: Array | None = None, *, op: Op = "sum", root: int = 0,
        counts: Any = None, out: Array | None = None, algorithm: str = "auto",
    ) -> Plan:  # fmt: skip
        """Bind a collective to its arrays, to run many times; collective, like MPI-4's ``_init``.

        ``plan.algorithm`` and ``plan.transport`` say what really runs, ``plan.out`` is the
        array that holds the result after each run.
        """
        checked = self._check(name, x, out, op=op, root=root, counts=counts, algorithm=algorithm)
        return self._build(self._settle(checked))

    def _check(self, name: str, x: Any, out: Any, **given: Any) -> Request | CollectiveError:
        options = {"op": "sum", "root": 0, "counts": None, "algorithm": "auto", **given}
        try:
            request = asked.check(
                self.transport.arrays, self.rank, self.size, name, x, out=out, **options
            )
            self._check_algorithm(request)
        except CollectiveError as error:
            return error
        return request

    def _settle(self, checked: Request | CollectiveError) -> Request:
        error = isinstance(checked, CollectiveError)
        said = str(checked) if error else checked.signature  # type: ignore[union-attr]
        return asked.settle(checked, self.transport.exchange(said))

    def _run(self, name: str, x: Any, out: Any, **given: Any) -> Any:
        """Run a collective once: agree, then take a cached plan over arrays of its own."""
        checked = self._check(name, x, out, **given)
        if not isinstance(checked, Request) or not checked.is_complete:
            self.transport.agree(_UNSETTLED)
            return self._once(checked)
        key = checked.key
        cached = self._plans.get(key)
        if not self.transport.agree(checked.digest(cached and cached.number)):
            if cached is not None:
                self._plans.pop(key).plan.free()
            return self._once(checked)
        try:
            cached = cached or self._keep(key, checked)
            self._plans.move_to_end(key)
            return self._through(cached, checked)
        except BaseException:
            # Other ranks may still read its memory, or write there.
            if key in self._plans:
                self._broken.append(self._plans.pop(key).plan)
            raise

    def _once(self, checked: Request | CollectiveError) -> Any:
        """Run what not all ranks know, or have a plan for: agree in full, and keep nothing."""
        with self._build(self._settle(checked)) as plan:
            plan.run()
            return plan.out

    def _keep(self, key: Any, request: Request) -> Cached:
        """Make a plan to be cached, in place of the one that was used least recently."""
        if len(self._plans) == _CACHED_PLANS:
            self._plans.popitem(last=False)[1].plan.free()
        self._planned += 1
        own = replace(request, x=self._like(request), out=None, in_place=False)
        self._plans[key] = Cached(self._planned, own, self._build(own))
        return self._plans[key]

    def _like(self, request: Request) -> Array | None:
        return None if request.x is None else self.empty(request, tuple(request.x.shape))

    def empty(self, request: Request, shape: tuple[int, ...]) -> Array:
        """Allocate an array of the request's dtype, on the device of its arrays."""
        assert request.dtype is not None
        like = request.x if request.x is not None else request.out
        if like is None and request.device == "gpu":
            like = self.gpu()
        return self.transport.arrays.empty(shape, request.dtype, like)

    def _through(self, cached: Cached, request: Request) -> Array | None:
        """Run a cached plan for a caller's arrays."""
        arrays, own, plan = self.transport.arrays, cached.request, cached.plan
        if request.x is not None:
            arrays.copier(arrays.flat(own.x), arrays.flat(request.x))()
        plan.run()
        if plan.out is None:
            return None
        out = request.out
        if out is None:
            out = self.empty(request, request.shape("output"))
        if request.collective.after(request.place()):
            arrays.copier(arrays.flat(out), arrays.flat(plan.out))()
        return out

    # -- choosing and building ------------------------------------------------------

    def _check_algorithm(self, request: Request) -> None:
        text, what = request.algorithm, request.collective
        if not isinstance(text, str):
            raise ArgumentError(f"algorithm is a name, not {text!r}")
        if text == "native_persistent" and self.backend != "mpi4py":
            raise Unavailable(f"{self.backend} has no persistent collectives; use 'native'")
        text, _, transport = text.partition("@")
        if transport and transport not in TRANSPORTS:
            raise UnknownName("transport", transport, TRANSPORTS)
        if text in defaults.NAMES:
            return
        if transport and (text == "auto" or text.startswith("native")):
            raise ArgumentError(f"{text} chooses its own transport: leave out @{transport}")
        if text in ("auto", "native", "native_persistent"):
            return
        if text.startswith("native:"):
            if text[7:] not in COMPOSITIONS.get(what.name, ()):
                known = [f"native:{each}" for each in COMPOSITIONS.get(what.name, ())]
                raise UnknownName(f"{what.name} composition", text, known)
            return
        try:
            chosen = find(what.name, text)
        except UnknownName:
            names = [*self.algorithms(what.name), *choice.CHOOSERS, *aliases(what.name)]
            raise UnknownName(f"{what.name} algorithm", text, names) from None
        # What only some ranks' schedules refuse must be known to all before anything is bound.
        self._rounds(chosen, request)
        self._check_order(chosen, request)
        self._route(request, transport)

    def _check_order(self, chosen: Algorithm, request: Request) -> None:
        chosen.serve(self.size)
        if request.op.commutative or not request.collective.reduces:
            return
        if not self._is_ordered(chosen, request.root):
            safe = [
                each.name
                for each in algorithms(request.collective.name)
                if each.needs.holds(self.size) and self._is_ordered(each, request.root)
            ]
            raise Unsupported(
                f"{request.collective.name} algorithm {chosen} does not keep rank order on "
                f"{self.size} ranks with root {request.root}, which op {request.op.name!r} needs: "
                f"{', '.join(safe)} would"
            )

    def _rounds(self, chosen: Algorithm, request: Request) -> list[Round]:
        """Return this rank's schedule, made once."""
        root, counts = request.root, request.counts if chosen.takes("counts") else None
        key = chosen.generator, str(chosen), root, counts
        if key not in self._schedules:
            if len(self._schedules) == _CACHED_SCHEDULES:
                self._schedules.clear()
            self._schedules[key] = chosen.rounds(self.rank, self.size, root, self.nodes, counts)
        return self._schedules[key]

    def _is_ordered(self, chosen: Algorithm, root: int) -> bool:
        try:
            return is_ordered(chosen, self.size, root, self.nodes)
        except Unsupported:
            return False

    def _build(self, request: Request) -> Plan:
        request = self._with_out(request)
        text = request.algorithm
        if text == "auto":
            return self._automatic(request)
        if text in ("native", "native_persistent"):
            return self._native(request, persistent=text == "native_persistent")
        if text.startswith("native:"):
            return compose(self, request, text)
        name, _, transport = text.partition("@")
        if name in defaults.NAMES:
            return self._by_default(request, name, transport)
        return self._schedule(request, find(request.collective.name, name), transport)

    def _with_out(self, request: Request) -> Request:
        needs = request.collective.gets_output(self.rank, request.root)
        if not needs or request.out is not None:
            return request
        out = self.empty(request, request.shape("output"))
        return replace(request, out=out)

    def _automatic(self, request: Request) -> Plan:
        """Bind the first of the preferred algorithms that can serve the request."""
        refused: CollectiveError | None = None
        for text in self.chooser.preferred(request):
            trial = replace(request, algorithm=text)
            try:
                self._check_algorithm(trial)
                return self._build(trial)
            except (Unavailable, Unsupported, UnknownName) as error:
                refused = error
        assert refused is not None
        raise refused

    def _by_default(self, request: Request, library: str, transport: str) -> Plan:
        """Bind the schedule that stands for what a library would take."""
        name, schedule, note = choice.default(library, request, self.nodes)
        trial = replace(request, algorithm=f"{schedule}@{transport}".rstrip("@"))
        self._check_algorithm(trial)
        plan = self._build(trial)
        plan.note = f"{name}: {note}" if note else name
        return plan

    def _finish(self, request: Request) -> list[Thunk]:
        """Return what follows the messages: a mean is a sum, divided at the end."""
        if request.op.name != "avg" or request.op.function or request.out is None:
            return []
        if not request.collective.reduces:
            return []
        arrays = self.transport.arrays
        return [arrays.divider(arrays.flat(request.out), self.size)]

    def subplan(self, request: Request, name: str, x: Array | None, out: Array | None) -> Plan:
        """Bind the native collective `name` on a request's operator and root."""
        part = asked.check(
            self.transport.arrays, self.rank, self.size, name, x,
            out=out, op=request.op, root=request.root, counts=None, algorithm="native",
        )  # fmt: skip
        return self._native(part, persistent=False)

    def _native(self, request: Request, *, persistent: bool) -> Plan:
        call = Call(
            request.collective, request.x, request.out, request.op,
            request.root, request.counts, request.in_place, self.rank,
        )  # fmt: skip
        bound = self.transport.native(call, persistent=persistent)
        name = "native_persistent" if persistent else "native"
        return native_plan(
            name, request.out, bound, [] if bound.averages else self._finish(request)
        )

    def _schedule(self, request: Request, chosen: Algorithm, transport: str = "") -> Plan:
        arrays, what = self.transport.arrays, request.collective
        blocks = chosen.blocks(self.size)
        place, sizes = request.place(blocks), request.sizes(blocks)
        rounds = self._rounds(chosen, request)
        staged = request.in_place and what.unit == "pairs"
        x = request.x
        if staged:
            x = self._like(request)
            entry = arrays.copier(arrays.flat(x), arrays.flat(request.x))
            first = BoundRound((entry,), NO_MESSAGES)
        in_place = request.in_place and not staged
        blocks_in, blocks_out = what.before(place), list(what.after(place))
        dtype, buffers = request.dtype or "uint8", buffers_for(arrays, x, request.out)
        route, store = self._route(request, transport), None
        if route in ("", IPC) and request.device == "gpu":
            route, store = self._gpu_route(request, route)
        tag = self._tags.take()
        if route in (self.transport.name, DIRECT, STAGED):
            program = lower(rounds, sizes, blocks_in, blocks_out, in_place=in_place)
            buffers |= scratch_for(arrays, program.scratch, dtype, x, request.out)
            bound = bind(program, buffers, request.op, self.transport, tag)
            resources: Resources = Posts(bound)
            turns: list[Turn] = [lambda: bound]
        else:
            shared = self.transport.shared
            assert shared is not None
            reach = store.reach(buffers, dtype) if store else shared.reach(route, buffers, dtype)
            both = share(rounds, sizes, blocks_in, blocks_out, reach, in_place=in_place)
            meets = what.synchronizes and request.counts is None and all(sizes.values())
            resources, turns = shared.bind(
                both, buffers, dtype, request.op, self.transport, tag,
                what=f"{what.name} {chosen}", meets=meets, store=store,
            )  # fmt: skip
            if len(shared.near) < self.size:
                route = f"{route}+{self.transport.way if store else self.transport.name}"
        self._tags.hold(tag, resources)
        if staged:
            turns = [_behind(first, turn) for turn in turns]
        return scheduled(str(chosen), route, request.out, turns, self._finish(request), resources)

    def _route(self, request: Request, transport: str) -> str:
        """Return how the messages of a schedule travel.

        Raises:
            Unavailable: not as it was asked for, and why.
        """
        shared, name = self.transport.shared, self.transport.name
        if request.device == "gpu":
            return self._check_gpu_route(transport)
        if transport in _ON_GPU:
            if request.device is None and request.collective.unit != "none":
                return transport  # a rank that gives no array learns from the others where it is
            raise Unavailable(f"no {transport} transport for arrays on the host")
        if self.size == 1 or transport == name or (not transport and shared is None):
            return name
        if shared is None:
            raise Unavailable(f"no {transport} transport: {self.transport.unshared}")
        if transport == CMA and shared.unattached:
            raise Unavailable(f"no {CMA} transport: {shared.unattached}")
        attaches = not shared.unattached and request.bytes_per_row >= PREFER_ATTACH
        return transport or (CMA if attaches else SYMMETRIC)

    def _check_gpu_route(self, transport: str) -> str:
        """Return how messages of GPU arrays travel; empty for the best that `_gpu_route` finds."""
        way = self.transport.way
        if transport in (SYMMETRIC, CMA):
            raise Unavailable(f"no {transport} transport for arrays on a GPU: {IPC} is theirs")
        if transport in (DIRECT, STAGED) and transport != way:
            raise Unavailable(f"GPU arrays travel {way} here, not {transport}")
        if transport in (way, self.transport.name) or self.size == 1:
            return way
        return transport

    def _gpu_route(self, request: Request, transport: str) -> tuple[str, GpuMemory | None]:
        """Return ``ipc`` and its memory where it can be had; collective."""
        like = request.x if request.x is not None else request.out
        try:
            return IPC, self._device_store(like)
        except Unavailable:
            if transport:
                raise
            return self.transport.way, None

    def _device_store(self, like: Array) -> GpuMemory:
        """Open the node's GPU memory, once; collective."""
        if self._gpus is None:
            self._gpus = open_gpu_memory(self.transport, like)
        store, why = self._gpus
        if store is None:
            raise Unavailable(f"no {IPC} transport: {why}")
        return store

    # -- point to point -------------------------------------------------------------

    def send(self, x: Array, peer: int, tag: int = 0) -> None:
        """Send `x` to `peer`."""
        self.isend(x, peer, tag).wait()

    def recv(self, out: Array, peer: int, tag: int = 0) -> Array:
        """Receive into `out` from `peer` and return it."""
        self.irecv(out, peer, tag).wait()
        return out

    def isend(self, x: Array, peer: int, tag: int = 0) -> Pending:
        """Start sending `x`; leave it alone until the request is complete."""
        return self.transport.isend(*self._message("x", x, peer, tag))

    def irecv(self, out: Array, peer: int, tag: int = 0) -> Pending:
        """Start receiving into `out`."""
        return self.transport.irecv(*self._message("out", out, peer, tag))

    def sendrecv(
        self, x: Array, to: int, out: Array, source: int | None = None, tag: int = 0
    ) -> Array:
        """Send `x` to rank `to` while receiving `out` from `source` (`to` by default)."""
        receiving = self.irecv(out, to if source is None else source, tag)
        sending = self.isend(x, to, tag)
        receiving.wait()
        sending.wait()
        return out

    def _message(self, label: str, array: Any, peer: Any, tag: Any) -> tuple[Array, int, int]:
        flat = asked.check_array(self.transport.arrays, label, array)
        self.transport.arrays.dtype(array)
        if not isinstance(tag, int) or not 0 <= tag < 32768:
            raise ArgumentError(f"tag is a number from 0 to 32767, not {tag!r}")
        return flat, asked.check_rank(peer, self.size, "peer"), tag

    # -- groups ---------------------------------------------------------------------

    def split(self, color: int | None, key: int | None = None) -> Collectives | None:
        """Return the group of the ranks with the same `color`, ordered by `key`, then rank.

        ``color=None`` takes part in none and gets None. Collective.

        Raises:
            ArgumentError: `color` is not None or a number from 0 to 2^31-1, or `key` no number of
                32 bits; `Disagreement` on the other ranks.
        """
        color, key = self._unanimous(
            lambda: (
                asked.check_number("color", color, _COLORS),
                asked.check_number("key", key, _KEYS),
            )
        )
        part = self.transport.split(color, self.rank if key is None else key)
        return None if part is None else Collectives(part)

    def exchange(self, item: Any) -> list[Any]:
        """Return every rank's small, picklable item, in rank order."""
        return self.transport.exchange(item)

    def free(self) -> None:
        """Release the cached plans and the group itself."""
        for plan in (*self._broken, *(each.plan for each in self._plans.values())):
            plan.free()
        self._broken.clear()
        self._plans.clear()
        self._gpus = None
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # Freeing is collective: a rank that fails alone must not wait here for the others.
        if exception[0] is None:
            self.free()

    def __repr__(self) -> str:
        return f"<Collectives rank {self.rank} of {self.size} over {self.library}>"


def _behind(first: BoundRound, turn: Turn) -> Turn:
    return lambda: [first, *turn()]


def names() -> list[str]:
    """Return the names of all collectives."""
    return list(COLLECTIVES)
