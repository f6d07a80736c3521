"""All of torch.distributed: sends and receives, and the library's own collectives.

Its counterpart, line by line, is `mpicoll.mpi.transport`.
"""

from __future__ import annotations

import atexit
import ctypes
import pickle
import threading
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from mpicoll.errors import Deadlock, Unavailable
from mpicoll.gpu.driver import Driver
from mpicoll.gpu.natives import on_host
from mpicoll.gpu.staging import PIECE, Copies, Mirror
from mpicoll.interfaces import (
    DIRECT,
    STAGED,
    Array,
    Gpu,
    Message,
    Messages,
    Native,
    NativeCall,
    Request,
    SharedMemory,
    Thunk,
)
from mpicoll.machine.network import host_identity
from mpicoll.machine.nodes import group_by_node, stated_node
from mpicoll.memory.segments import open_memory
from mpicoll.notation.contract import Collective
from torchcoll.arrays import TorchArrays, as_bytes, vector
from torchcoll.staging import TorchCopies
from torchcoll.windows import Files

_OPS = {
    "sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX, "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR,
}  # fmt: skip
_OPS_ON_BOOL = {
    **_OPS, "band": dist.ReduceOp.MIN, "land": dist.ReduceOp.MIN,
    "bor": dist.ReduceOp.MAX, "lor": dist.ReduceOp.MAX,
}  # fmt: skip
_NOT_REDUCED = ("int16", "uint16", "uint32", "uint64")
_BITWISE = (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR)
_GLOO_ON_GPU = ("broadcast", "allreduce")
"""What gloo takes CUDA tensors for: it copies them to the host itself."""
_EQUAL_ONLY = ("gather", "allgather", "scatter", "reduce_scatter")

# torch 2.13 renamed these two and warns at the old names.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

_PLANS = 1 << 20
"""Above every tag of a user: the messages of plans and of users never mix."""

Group = Any
Post = Callable[..., Any]


class TorchTransport:
    """`mpicoll.interfaces.Transport` over a process group, the default one if None is given."""

    backend = "torch"

    def __init__(self, group: Group = None, *, owned: bool = False) -> None:
        self.group: Group = dist.group.WORLD if group is None else group
        _ALIVE.add(self.group)
        self.owned = owned
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.ranks = dist.get_process_group_ranks(self.group)
        by_device = _backends(self.group)
        self.nccl = "nccl" in by_device.values()
        control = "cpu" if "cpu" in by_device else "cuda"
        self.arrays = TorchArrays(torch.device("cuda") if control == "cuda" else None)
        self.copies: Copies = TorchCopies()
        self.library = " ".join(["torch", torch.__version__, *_libraries(by_device)])
        self.name = "point-to-point"
        self.loopback = _Loopback()
        self._signal = torch.zeros(1, dtype=torch.uint8, device=control)
        self._mine = torch.empty(2, dtype=torch.int64, device=control)
        self.shared: SharedMemory | None = None
        told = self.exchange((host_identity(), stated_node(dist.get_rank())))
        self.nodes, obstacle = group_by_node([host for host, _ in told], [node for _, node in told])
        self.shared, self.unshared = open_memory(
            self.rank, self.nodes, self.arrays, self.exchange, obstacle,
            lambda node: Files(self.exchange, self.rank, node),
        )  # fmt: skip

    # -- messages -------------------------------------------------------------------

    @property
    def way(self) -> str:
        return DIRECT if self.nccl else STAGED

    def driver(self) -> Gpu:
        return Driver()

    def messages(self, sends: Sequence[Message], receives: Sequence[Message], tag: int) -> Messages:
        """Bind one round to `send` and `recv` calls, or to one batch of NCCL."""
        before: list[Thunk] = []
        posts: list[Post] = []
        land: list[Thunk | None] = []
        batch: list[dist.P2POp] = []
        for peer, data in receives:
            pieces, mirror = self._reachable(data)
            before += [mirror.settle_all] if mirror else []
            for index, memory in enumerate(pieces):
                self._post(dist.irecv, memory, peer, tag + _PLANS, posts, batch)
                land.append(partial(mirror.upload, index) if mirror else None)
        for peer, data in sends:
            pieces, mirror = self._reachable(data)
            before += [mirror.download] if mirror else []
            for index, memory in enumerate(pieces):
                self._post(dist.isend, memory, peer, tag + _PLANS, posts, batch)
                if mirror:
                    posts[-1] = partial(_behind, partial(mirror.settle, index), posts[-1])
        if batch:
            posts.insert(0, partial(dist.batch_isend_irecv, batch))
        posted = _Posted(posts, (), polls=len(posts) == bool(batch), land=land if any(land) else ())
        return Messages((*before, posted.start), (posted.wait,), posted.test, posted.free)

    def _post(
        self, how: Any, memory: Array | None, peer: int, tag: int, posts: list[Post],
        batch: list[dist.P2POp],
    ) -> None:  # fmt: skip
        # A receive must not land in the byte that a send reads: each signal has its own.
        data = self._signal.clone() if memory is None else as_bytes(memory)
        if data.is_cuda:
            batch.append(dist.P2POp(how, data, self.ranks[peer], self.group, tag))
        else:
            call = self.group.send if how is dist.isend else self.group.recv
            posts.append(partial(call, [data], peer, tag))

    def _reachable(self, data: Array | None) -> tuple[list[Array | None], Mirror | None]:
        """Return memory that this group can read: the tensor's own, or pieces of its mirror."""
        if not self._is_far(data):
            return [data], None
        mirror = Mirror(data, self.copies, PIECE)
        return [each.host for each in mirror.pieces], mirror

    def _is_far(self, x: Array | None) -> bool:
        """Whether a tensor is on a GPU and the group has gloo only."""
        return not (self.nccl or self.arrays.is_on_host(x))

    # -- natives --------------------------------------------------------------------

    def lacks(self, what: Collective, *, uneven: bool = False) -> str | None:
        """torch.distributed has no prefix reductions, and counts for alltoall only."""
        if what.name in ("scan", "exscan"):
            return f"torch.distributed has no {what.name}: use a schedule, or 'auto'"
        if uneven and what.name in _EQUAL_ONLY:
            return (
                f"torch.distributed has no {what.name} of unequal counts: use a schedule, or 'auto'"
            )
        return None

    def native(self, call: NativeCall, *, persistent: bool = False) -> Native:
        """Bind torch.distributed's own collective."""
        missing = self.lacks(call.collective, uneven=call.counts is not None)
        if persistent:
            missing = "torch.distributed has no persistent collectives: use 'native'"
        if missing:
            raise Unavailable(missing)
        far = self._is_far(call.x) or self._is_far(call.out)
        if far and call.collective.name not in _GLOO_ON_GPU:
            return on_host(call, self.arrays, self.copies, self.native)
        post, before, after = self._arguments(_detached(call))
        polls = call.collective.name != "reduce_scatter" or self.nccl

        def run() -> None:
            for thunk in before:
                thunk()
            post()
            for thunk in after:
                thunk()

        def start() -> Request:
            for thunk in before:
                thunk()
            return _Posted([partial(post, async_op=True)], after, polls=polls).start()

        return Native(run, start, lambda: None, self._way(call, far), self._averages(call))

    def _averages(self, call: NativeCall) -> bool:
        """Whether a call is NCCL's own mean; elsewhere a mean is a sum, divided at the end."""
        by_nccl = self.nccl and not self.arrays.is_on_host(call.x)
        return by_nccl and call.op.name == "avg" and call.op.function is None

    def _way(self, call: NativeCall, far: bool) -> str:
        array = call.x if call.x is not None else call.out
        return "native" if far or self.arrays.is_on_host(array) else DIRECT

    def _op(self, call: NativeCall) -> Any:
        """Return the ReduceOp of a call.

        Raises:
            Unavailable: torch.distributed, gloo or NCCL lacks it for this dtype.
        """
        assert call.x is not None
        dtype, name = self.arrays.dtype(call.x), call.op.name
        library = "NCCL" if call.x.is_cuda else "gloo"
        if call.op.function is not None:
            raise Unavailable(f"torch.distributed takes no user operator ({name}): use a schedule")
        if dtype in _NOT_REDUCED:
            raise Unavailable(f"{library} reduces no {dtype}: use int32, int64, or a schedule")
        if name == "prod" and dtype.startswith("complex"):
            raise Unavailable(f"torch.distributed has no product of {dtype}: use a schedule")
        if self._averages(call):
            return dist.ReduceOp.AVG
        op = (_OPS_ON_BOOL if dtype == "bool" else _OPS).get(name)
        if op is None:
            raise Unavailable(
                f"torch.distributed has no op {name!r} on {dtype}: use bool, or a schedule"
            )
        if call.x.is_cuda and op in _BITWISE:
            raise Unavailable(f"NCCL has no op {name!r} on {dtype}: use a schedule")
        return op

    def _arguments(self, call: NativeCall) -> tuple[Post, list[Thunk], list[Thunk]]:
        """Return the bound call, and copies that must come before and after it."""
        name, x, out, root = call.collective.name, call.x, call.out, self.ranks[call.root]
        bind = partial(_bound, self.group)
        copy = self.arrays.copier
        if name == "barrier":
            return bind(dist.barrier), [], []
        if name == "broadcast":
            if x is None or call.in_place:
                return bind(dist.broadcast, as_bytes(out), root), [], []
            return bind(dist.broadcast, as_bytes(x), root), [], [copy(out, x)]
        if name in ("allreduce", "reduce"):
            # torch folds in place, and reduce may write on every rank: never in the input.
            target = torch.empty_like(x) if out is None else out  # type: ignore[arg-type]
            first = [] if call.in_place else [copy(target, x)]
            if name == "reduce":
                return bind(dist.reduce, target, root, self._op(call)), first, []
            return bind(dist.all_reduce, target, self._op(call)), first, []
        if name == "reduce_scatter":
            return bind(_reduce_scatter, vector(out), vector(x), self._op(call)), [], []
        if name == "gather":
            return bind(dist.gather, as_bytes(x), _rows(out, self.size), root), [], []
        if name == "allgather":
            return bind(_all_gather, as_bytes(out), as_bytes(x)), [], []
        if name == "scatter":
            return bind(dist.scatter, as_bytes(out), _rows(x, self.size), root), [], []
        return self._alltoall(call)

    def _alltoall(self, call: NativeCall) -> tuple[Post, list[Thunk], list[Thunk]]:
        """Bind an alltoall; in place it reads a copy of what it overwrites."""
        assert call.x is not None
        source = torch.empty_like(call.x) if call.in_place else call.x
        first = [self.arrays.copier(source, call.x)] if call.in_place else []
        splits: tuple[Any, Any] = (None, None)
        if call.counts is not None:
            width = prod(source.shape[1:]) * source.element_size()
            sent = [rows * width for rows in call.counts[call.rank]]
            received = [rows[call.rank] * width for rows in call.counts]
            splits = received, sent
        function = dist.all_to_all_single
        bound = _bound(self.group, function, as_bytes(call.out), as_bytes(source), *splits)
        return bound, first, []

    # -- control --------------------------------------------------------------------

    def exchange(self, item: Any) -> list[Any]:
        if self.shared is not None and self.shared.mailbox is not None:
            return self.shared.mailbox.exchange(item)
        data = torch.frombuffer(bytearray(pickle.dumps(item)), dtype=torch.uint8)
        length = torch.tensor([data.numel()], device=self._signal.device)
        lengths = length.new_empty(self.size)
        _all_gather(lengths, length, group=self.group)
        counts = lengths.tolist()
        mine = self._signal.new_zeros(max(counts))
        mine[: data.numel()] = data.to(mine.device)
        every = mine.new_empty((self.size, mine.numel()))
        _all_gather(every.view(-1), mine, group=self.group)
        rows = every.cpu().numpy()
        return [pickle.loads(row[:n].tobytes()) for row, n in zip(rows, counts, strict=True)]

    def agree(self, digest: bytes) -> bool:
        """Compare through shared memory, or one MAX of the number and of its complement."""
        if self.shared is not None and self.shared.mailbox is not None:
            return self.shared.mailbox.agree(digest)
        number = int.from_bytes(digest, "little", signed=True)
        self._mine[0], self._mine[1] = number, ~number
        dist.all_reduce(self._mine, dist.ReduceOp.MAX, group=self.group)
        return bool(self._mine[0] == number and self._mine[1] == ~number)

    def isend(self, x: Array, peer: int, tag: int) -> Request:
        if peer == self.rank:
            return self.loopback.send(x, tag)
        return _Started(self.messages([Message(peer, x)], [], tag - _PLANS))

    def irecv(self, x: Array, peer: int, tag: int) -> Request:
        if peer == self.rank:
            return self.loopback.receive(x, tag)
        return _Started(self.messages([], [Message(peer, x)], tag - _PLANS))

    def split(self, color: int | None, key: int) -> TorchTransport | None:
        said = self.exchange((color, key))
        _SPLITS[self.group.group_name] += 1
        if color is None:
            return None
        members = [rank for rank in range(self.size) if said[rank][0] == color]
        members.sort(key=lambda rank: said[rank][1])
        name = f"{self.group.group_name}/{_SPLITS[self.group.group_name]}:{color}"
        part = _new_group([self.ranks[rank] for rank in members], self.group, name)
        return TorchTransport(part, owned=True)

    def close(self) -> None:
        if self.shared is not None:
            self.shared.close()
            self.shared = None
        group, self.group = self.group, None
        if self.owned and group in c10d._world.pg_map:
            dist.destroy_process_group(group)


class _Posted:
    """Works under way, kept until waited for: gloo drops the message of a dropped Work.

    Attributes:
        polls: whether `Work.is_completed` can be trusted. It can for NCCL, and for gloo's
            collectives but reduce_scatter; that, sends and receives complete in `Work.wait`
            only.
        land: what follows each work, if anything does.
    """

    def __init__(
        self, posts: Sequence[Post], after: Sequence[Thunk], *, polls: bool,
        land: Sequence[Thunk | None] = (),
    ) -> None:  # fmt: skip
        self.posts, self.after, self.polls, self.land = posts, after, polls, land
        self.works: list[Any] = []
        self.under_way = False
        self._watch: _Watch | None = None

    def start(self) -> _Posted:
        self.under_way = True
        for post in self.posts:
            work = post()
            self.works += work if isinstance(work, list) else [work]
        return self

    def wait(self) -> None:
        if not self.under_way:
            return
        if self._watch is not None:
            self._watch.finish()
        for work, land in zip_longest(self.works, self.land) if self.land else ():
            work.wait()
            if land is not None:
                land()
        if self._watch is None and not self.land:
            _wait(self.works)
        self.works, self._watch, self.under_way = [], None, False
        for thunk in self.after:
            thunk()

    def test(self) -> bool:
        if self.under_way and self._is_complete():
            self.wait()
        return not self.under_way

    def _is_complete(self) -> bool:
        if self.polls:
            return all(work is None or work.is_completed() for work in self.works)
        if self._watch is None:
            self._watch = _Watch(self.works)
        return not self._watch.is_alive()

    def free(self) -> None:
        self.posts = ()


class _Watch(threading.Thread):
    """Waits for works beside the caller, and keeps what they raise."""

    def __init__(self, works: list[Any]) -> None:
        super().__init__(daemon=True)
        self.works = works
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            _wait(self.works)
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        self.join()
        if self.error is not None:
            raise self.error


def _behind(first: Thunk, post: Post) -> Any:
    first()
    return post()


def _wait(works: list[Any]) -> None:
    for work in works:
        if work is not None:
            work.wait()


class _Started:
    """Messages that the caller waits for."""

    def __init__(self, messages: Messages) -> None:
        self.messages = messages
        for thunk in messages.start:
            thunk()

    def wait(self) -> None:
        for thunk in self.messages.wait:
            thunk()

    def test(self) -> bool:
        return self.messages.test()


class _Loopback:
    """A rank's messages to itself, which gloo cannot carry: copied, and matched in order."""

    def __init__(self) -> None:
        self.sent: dict[int, deque[Array]] = defaultdict(deque)
        self.awaited: dict[int, deque[_Delivery]] = defaultdict(deque)

    def send(self, x: Array, tag: int) -> Request:
        if self.awaited[tag]:
            self.awaited[tag].popleft().land(x)
        else:
            self.sent[tag].append(x.clone())
        return _Delivery(x, done=True)

    def receive(self, x: Array, tag: int) -> Request:
        delivery = _Delivery(x)
        if self.sent[tag]:
            delivery.land(self.sent[tag].popleft())
        else:
            self.awaited[tag].append(delivery)
        return delivery


class _Delivery:
    """A message from a rank to itself."""

    def __init__(self, x: Array, *, done: bool = False) -> None:
        self.x, self.done = x, done

    def land(self, data: Array) -> None:
        self.x.copy_(data)
        self.done = True

    def wait(self) -> None:
        if not self.done:
            raise Deadlock("this rank waits for a message from itself that it has not sent")

    def test(self) -> bool:
        return self.done


def _rows(x: Array | None, size: int) -> list[Array] | None:
    """Return one byte view per rank, None where this rank has no rows."""
    if x is None:
        return None
    data = as_bytes(x)
    width = data.numel() // size
    return [data[rank * width : (rank + 1) * width] for rank in range(size)]


def _detached(call: NativeCall) -> NativeCall:
    """Keep autograd out of it."""
    x, out = (None if each is None else each.detach() for each in (call.x, call.out))
    return replace(call, x=x, out=out)


def _bound(group: Group, function: Callable[..., Any], *arguments: Any) -> Post:
    return partial(function, *arguments, group=group)


_SPLITS: Counter[str] = Counter()
_ALIVE: weakref.WeakSet[Any] = weakref.WeakSet()


@atexit.register
def _keep_alive() -> None:
    """Keep the groups that somebody still holds from being taken apart by the interpreter.

    torch 2.13 aborts ("terminate called without an active exception") where a used gloo
    subgroup goes after the default group.
    """
    for group in _ALIVE:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _new_group(ranks: list[int], parent: Group, name: Any) -> Group:
    """Make a group of its members alone, in the order given.

    `dist.new_group` cannot: all ranks of the world must call it, or its name is derived
    from the number of groups that each rank happens to be in, so that ranks with different
    pasts wait for each other for ever, and a group made again finds the addresses of the old.
    """
    store = c10d._get_default_store()
    rank = ranks.index(dist.get_rank())
    backend = dist.get_backend_config(parent)
    timeout = c10d._get_default_timeout(dist.Backend(backend))
    group, _ = c10d._new_process_group_helper(
        len(ranks), rank, ranks, dist.Backend(backend), store, name, timeout=timeout
    )
    c10d._world.pg_group_ranks[group] = {each: index for index, each in enumerate(ranks)}
    return group


def _backends(group: Group) -> dict[str, str]:
    """Return which library serves which kind of device, as in ``cpu:gloo,cuda:nccl``."""
    config = dist.get_backend_config(group)
    parts = [each.partition(":") for each in config.split(",")]
    return {device: library for device, _, library in parts}


def _libraries(by_device: dict[str, str]) -> list[str]:
    """Return the names of a group's libraries, NCCL's with its version."""
    names = list(dict.fromkeys(by_device.values()))
    if "nccl" in names:
        version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        names[names.index("nccl")] = f"nccl {version}"
    return names
