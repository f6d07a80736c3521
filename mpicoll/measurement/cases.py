"""Choose the cases to run, and the groups in which they are measured side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from mpicoll import defaults
from mpicoll.algorithms.registry import find
from mpicoll.backend import TRANSPORTS
from mpicoll.collectives import Collectives, names
from mpicoll.errors import ArgumentError, CollectiveError, UnknownName
from mpicoll.notation.contract import Collective, collective
from mpicoll.notation.elements import DTYPES, OPS, check_op, itemsize, kind_of, reduce_op
from mpicoll.selection.auto import CHOOSERS
from mpicoll.text.names import with_all

DEFAULT_SIZES = (64, 4096, 65536, 1048576)
DEFAULT_ALGORITHMS = {
    "barrier": ("dissemination", "tree"),
    "broadcast": ("binomial", "scatter_ring"),
    "reduce": ("binomial", "rabenseifner"),
    "allreduce": ("recursive_doubling", "ring", "rabenseifner"),
    "gather": ("naive", "binomial"),
    "allgather": ("bruck", "ring"),
    "scatter": ("naive", "binomial"),
    "reduce_scatter": ("recursive_halving", "ring"),
    "alltoall": ("naive", "pairwise"),
    "scan": ("recursive_doubling", "linear"),
    "exscan": ("recursive_doubling", "linear"),
}
BASELINES = ("native",)
PLAN, METHOD, NEW_ARRAYS = "plan", "method", "method, new arrays"
"""How a case is called: by a plan; by the method, as ``c.allreduce(x, out=y)``, for ``native`` the
library's own; by the method with other arrays in every call, from a pool of them."""
CALLS = ("plans", "methods", "both")
CPU, CUDA = "cpu", "cuda"
"""Where the arrays lie."""


@dataclass(frozen=True)
class Group:
    """One collective on one size: everything that is measured in the same blocks.

    Attributes:
        allocated: its arrays lie in shared memory; `device`: or on `CPU` or `CUDA`.
        width: elements of a vector, or of one row of a row-wise collective.
        bytes_total: S as nccl-tests counts it; `bytes_per_rank`: one vector or row.
    """

    contract: Collective
    dtype: str
    op: str
    root: int
    in_place: bool
    allocated: bool
    device: str
    width: int
    bytes_total: int
    bytes_per_rank: int

    def __str__(self) -> str:
        parts = [self.contract.name]
        if self.contract.unit != "none":
            parts += [f"{self.bytes_total} B", self.dtype]
        parts += [self.op] if self.contract.reduces else []
        parts += [f"root {self.root}"] if self.contract.rooted else []
        parts += ["in place"] if self.in_place else []
        parts += ["on GPU"] if self.device == CUDA else []
        return " ".join([*parts, *(["allocated"] if self.allocated else [])])

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that its records are identified by, None where one has no meaning."""
        return {
            "collective": self.contract.name,
            "device": self.device,
            "dtype": self.dtype if self.contract.unit != "none" else None,
            "op": self.op if self.contract.reduces else None,
            "root": self.root if self.contract.rooted else None,
            "in_place": self.in_place,
            "allocated": self.allocated,
            "bytes_total": self.bytes_total,
        }


@dataclass(frozen=True)
class Case:
    """One algorithm of one backend in a group; `call` is `PLAN`, `METHOD` or `NEW_ARRAYS`."""

    group: Group
    backend: str
    algorithm: str
    call: str = PLAN

    @property
    def name(self) -> str:
        """The algorithm, and how it is called if not by a plan."""
        return self.algorithm if self.call == PLAN else f"{self.algorithm} by {self.call}"

    def __str__(self) -> str:
        return f"{self.group.contract.name} {self.name} ({self.backend}, {self.group})"


@dataclass(frozen=True)
class Wanted:
    """The choice that the command line states; empty means the default.

    Attributes:
        places: whether input and output share memory; both are measured where both are given.
        calls: one of `CALLS`; ``both`` is plans, and the methods of native and auto.
    """

    collectives: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    sizes: tuple[int, ...] = DEFAULT_SIZES
    dtypes: tuple[str, ...] = ("float32",)
    ops: tuple[str, ...] = ("sum",)
    roots: tuple[str, ...] = ("0",)
    places: tuple[bool, ...] = (False,)
    transports: tuple[str, ...] = ()
    allocate: bool = False
    device: str = CPU
    calls: str = "plans"
    skipped: list[str] = field(default_factory=list)


def groups(wanted: Wanted, size: int) -> Iterator[Group]:
    """Yield every group for `size` ranks; reasons for leaving some out go to ``wanted.skipped``."""
    seen = set()
    for contract in collectives(wanted):
        for dtype, op, root, nbytes, in_place in product(
            dtypes(wanted) if contract.unit != "none" else ("uint8",),
            ops(wanted) if contract.reduces else ("sum",),
            roots(wanted, size) if contract.rooted else (0,),
            wanted.sizes if contract.unit != "none" else (0,),
            _places(contract, wanted),
        ):
            if contract.reduces and (reason := _misfit(op, dtype, contract)):
                if reason not in wanted.skipped:
                    wanted.skipped.append(reason)
                continue
            group = _group(contract, dtype, op, root, wanted, nbytes, in_place, size)
            if group not in seen:
                seen.add(group)
                yield group


def _places(contract: Collective, wanted: Wanted) -> tuple[bool, ...]:
    """Return whether each measurement is in place.

    A broadcast has one buffer in MPI. Only where both are asked for it is measured out of place.
    """
    if contract.unit == "none":
        return (False,)
    is_alone = len(wanted.places) == 1
    return (True,) if is_alone and contract.name == "broadcast" else wanted.places


def collectives(wanted: Wanted) -> list[Collective]:
    """Return the collectives asked for, all by default."""
    chosen = with_all(wanted.collectives or ("all",), names())
    return list(dict.fromkeys(collective(name) for name in chosen))


def dtypes(wanted: Wanted) -> tuple[str, ...]:
    """Return the dtypes asked for, in every spelling of nccl-tests."""
    chosen = with_all([_NCCL_TYPES.get(name, name) for name in wanted.dtypes], DTYPES)
    for name in chosen:
        kind_of(name)
    return chosen


def ops(wanted: Wanted) -> tuple[str, ...]:
    """Return the names of the operators asked for."""
    return tuple(reduce_op(name).name for name in with_all(wanted.ops, tuple(OPS)))


def roots(wanted: Wanted, size: int) -> tuple[int, ...]:
    """Return the roots asked for."""
    every = tuple(map(str, range(size)))
    chosen = with_all(wanted.roots, every)
    for root in chosen:
        if root not in every:
            raise ArgumentError(f"root {root} is not a rank: this job has ranks 0 to {size - 1}")
    return tuple(map(int, chosen))


_NCCL_TYPES = {"half": "float16", "float": "float32", "double": "float64", "char": "int8"}


def _misfit(op: str, dtype: str, contract: Collective) -> str | None:
    try:
        check_op(reduce_op(op), dtype, contract)
    except ArgumentError as error:
        return f"{contract.name}: {error}"
    return None


def _group(
    contract: Collective, dtype: str, op: str, root: int, wanted: Wanted, nbytes: int,
    in_place: bool, size: int,
) -> Group:  # fmt: skip
    """Round a size down to whole elements on every rank, but not to none."""
    if contract.unit == "none":
        return Group(contract, dtype, op, root, False, False, CPU, 0, 0, 0)
    rows = 1 if contract.unit == "vector" else size
    width = max(nbytes // (rows * itemsize(dtype)), 1 if nbytes else 0)
    per_rank = width * itemsize(dtype)
    total = per_rank * rows
    return Group(
        contract, dtype, op, root, in_place, wanted.allocate, wanted.device, width, total, per_rank
    )


def cases(group: Group, worlds: dict[str, Collectives], wanted: Wanted) -> list[Case]:
    """Return the candidates of a group; each backend's native call is always among them."""
    chosen = wanted.algorithms or (_BY_METHOD if wanted.calls == "methods" else ())
    return [
        Case(group, backend, name, call)
        for backend, world in worlds.items()
        for name in algorithms(
            group.contract, world, chosen or _by_default(group, world), wanted.transports
        )
        for call in _calls(group, name, wanted.calls)
    ]


_BY_METHOD = (*BASELINES, "auto")


def _calls(group: Group, algorithm: str, calls: str) -> Iterator[str]:
    """Yield the calls by which an algorithm is measured."""
    if calls != "methods":
        yield PLAN
    if calls == "methods" or (calls == "both" and algorithm in _BY_METHOD):
        yield METHOD
    if calls == "methods" and group.contract.unit != "none":
        yield NEW_ARRAYS


def algorithms(
    contract: Collective, world: Collectives, wanted: Sequence[str], transports: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the algorithms of a collective that were asked for, and the baselines.

    Schedules that name no transport run over each of `transports`, if any are given.
    """
    available = world.algorithms(contract.name)
    chosen = [
        _plain(contract, name)
        for name in with_all(wanted, available)
        if is_known(contract, name, available)
    ]
    ways = with_all(transports, TRANSPORTS)
    wide = [variant for name in chosen for variant in _over(name, ways)]
    return tuple(dict.fromkeys([*BASELINES, *wide]))


def _by_default(group: Group, world: Collectives) -> list[str]:
    """Return the algorithms measured by default; on a GPU, all that users may choose."""
    contract, available = group.contract, world.algorithms(group.contract.name)
    usual = ["native_persistent", "auto", *DEFAULT_ALGORITHMS.get(contract.name, ())]
    if group.device == CUDA:
        usual += (f"native:{name}" for name in world.transport.other_natives(contract.name))
    return [name for name in usual if is_known(contract, name, available)]


def _plain(contract: Collective, name: str) -> str:
    """Return one spelling for `knomial` and `knomial(radix=4)`."""
    schedule, at, transport = name.partition("@")
    try:
        return f"{find(contract.name, schedule)}{at}{transport}"
    except CollectiveError:
        return name


def _over(name: str, transports: Sequence[str]) -> list[str]:
    """Return a schedule's name once for each transport; other names as they are."""
    is_schedule = name != "auto" and not name.startswith("native")
    if not transports or not is_schedule or "@" in name:
        return [name]
    return [f"{name}@{transport}" for transport in transports]


def is_known(contract: Collective, name: str, available: Sequence[str]) -> bool:
    """Whether a collective has an algorithm of this name.

    Raises:
        ArgumentError: it has, but not with these parameters.
    """
    if name == "auto" or name in available:
        return True
    schedule, _, transport = name.partition("@")
    if transport and transport not in TRANSPORTS:
        raise UnknownName("transport", transport, TRANSPORTS)
    if schedule in defaults.NAMES:
        return True
    try:
        find(contract.name, schedule)
    except UnknownName:
        return False
    return True


def check_algorithms(wanted: Wanted, worlds: dict[str, Collectives]) -> None:
    """Raise UnknownName for a name that no collective and no backend has."""
    available = {
        contract: list(
            dict.fromkeys(n for w in worlds.values() for n in w.algorithms(contract.name))
        )
        for contract in collectives(wanted)
    }
    for name in wanted.algorithms:
        if name.lower() != "all" and not any(is_known(w, name, k) for w, k in available.items()):
            every = [name for some in available.values() for name in some]
            raise UnknownName("algorithm", name, dict.fromkeys([*every, *CHOOSERS, "all"]))
