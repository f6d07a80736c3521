"""Serve the collectives of one communicator of one node by a channel.

The key of a call alone decides that: what MPI demands to be the same on all ranks. MPI runs
reductions by a user's operator, or of a datatype that its operator is not defined on. What one rank
alone knows, such as a derived datatype or gaps, is packed on that rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import isinf
from typing import Any, NoReturn

from mpi4py import MPI

from mpicoll.c_extension import _compiled
from mpicoll.errors import FREED, Disagreement, RankLost
from mpicoll.flight.groups import GroupFlight
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.mpi.communicator.buffers import is_on_gpu, known_datatypes
from mpicoll.mpi.communicator.forms import flat
from mpicoll.mpi.communicator.reading import OPS, Reading
from mpicoll.text.sizes import size_text
from mpicoll.tuning import FIRST_SHARE_RANKS, SHARES_ABOVE, SPINS, YIELD_NS, YIELD_NS_SHARED

COLLECTIVES = (
    "barrier", "broadcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce",
    "scan", "exscan", "reduce_scatter", "a call that MPI serves",
)  # fmt: skip
"""Our names of the collectives, as the keys of messages number them."""
BROADCAST, GATHER, SCATTER = _compiled.BCAST, _compiled.GATHER, _compiled.SCATTER
ALLGATHER, ALLTOALL = _compiled.ALLGATHER, _compiled.ALLTOALL
_ROOTED = ("broadcast", "gather", "scatter", "reduce")
_FLAT = "flat"
"""The algorithm of a call whose arrays have been read."""
_LAYOUT: Any = NumpyArrays().layout()
_DTYPES = tuple(row for row in _LAYOUT[1] if row[0].char != "e")  # MPI has no half floats
_NAMES = tuple(dtype.name for dtype, *_ in _DTYPES)
_OPS = tuple((op, *OPS[op.handle]) for op in (
    MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX, MPI.BAND, MPI.BOR, MPI.BXOR, MPI.LAND, MPI.LOR, MPI.LXOR
))  # fmt: skip
_OP_OF_HANDLE = {op.handle: op for op, *_ in _OPS}


def _datatypes() -> tuple[tuple[MPI.Datatype, int], ...]:
    """Return MPI's datatypes, each with the place of the dtype that has its elements."""
    return tuple(
        (mpi_type, _NAMES.index(dtype.name))
        for mpi_type, dtype in known_datatypes() if dtype.name in _NAMES
    )  # fmt: skip


@cache
def _prepare() -> None:
    """Tell the compiled channels which arrays, operators and datatypes there are."""
    layout = _LAYOUT[0], _DTYPES
    _compiled.prepare_channels(layout, _NAMES, _OPS, _datatypes(), MPI.IN_PLACE, MPI.Datatype)


class OneNode:
    """Our collectives on one communicator of one node.

    Args:
        units: the addresses of the ranks' units.
        processes: of the ranks.
        shares_cores: the ranks outnumber the cores that they may use.
        keep: what the memory belongs to.

    Attributes:
        channel: runs a call that is given as `mpicoll.mpi.communicator.classes` does; returns True
            where MPI is to serve it.
    """

    def __init__(
        self, comm: MPI.Intracomm, units: Sequence[int], processes: Sequence[int],
        deadline: float, flight: GroupFlight | None, *, shares_cores: bool, keep: object,
    ) -> None:  # fmt: skip
        self.rank, self.size, self.flight = comm.rank, comm.size, flight
        self.processes, self.name = processes, comm.name
        _prepare()
        self.channel: Any = _compiled.Channel(
            units=tuple(units), rank=comm.rank, processes=tuple(processes),
            slow=self._serve, fail=self._fail,
            progress=partial(MPI.Intracomm(comm).Iprobe, MPI.ANY_SOURCE, MPI.ANY_TAG),
            place=self._place, keep=keep, log=flight and flight.log,
            deadline=0.0 if isinf(deadline) else deadline, spins=0 if shares_cores else SPINS,
            yield_ns=YIELD_NS_SHARED if shares_cores else YIELD_NS, shares_above=SHARES_ABOVE,
            first_share_ranks=FIRST_SHARE_RANKS,
        )  # fmt: skip

    def _serve(self, *arguments: Any) -> bool | None:
        """Run a call whose arguments the channel does not read; True where MPI is to serve it."""
        is_mpi: bool | None = _compiled.uninterrupted(self._read, *arguments)
        return is_mpi

    def _read(
        self, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any, form: object
    ) -> bool | None:
        if form is _FLAT:
            return True
        _compiled.postpone_handlers()
        if isinstance(op, MPI.Op):
            op = _OP_OF_HANDLE.get(op.handle)
            if op is None:
                return True
        if is_on_gpu(x) or is_on_gpu(out):
            self.channel.skip()  # a rank with memory of the host would wait for this one
            return True
        at = Reading(self.rank, self.size)
        try:
            try:
                name, x, out = flat(at, name, x, out, op, root, self._all_counts)
            except Exception:  # whatever is wrong, mpi4py's own method says it
                return True
            at.pack()
            is_mpi: bool | None = self.channel(name, x, out, op, root, counts, _FLAT)
            if not is_mpi:
                at.unpack()
            return is_mpi
        finally:
            at.close()

    def _all_counts(self, count: int) -> list[int]:
        """Return every rank's count; collective."""
        items = self.channel.exchange(ALLGATHER, 0, count.to_bytes(8, "little"))
        return [count if item is None else int.from_bytes(item, "little") for item in items]

    def _place(self, key: tuple[int, ...], nbytes: int) -> int:
        """Return the place of a kind of call in the table of the flight recorder."""
        assert self.flight is not None
        text = self._signature(key, nbytes)
        return self.flight.call(COLLECTIVES[key[0]], text, "slots", "symmetric")

    def _signature(self, key: tuple[int, ...], nbytes: int) -> str:
        """Return the arguments of a call in words; of lengths, the next power of two."""
        collective, is_object, op, kind, root = key
        name = COLLECTIVES[collective]
        folds = name in ("reduce", "allreduce", "scan", "exscan", "reduce_scatter")
        parts = ["objects"] if is_object else [_NAMES[kind]] if folds else []
        if nbytes > 0:
            parts.append(f"up to {size_text(1 << (nbytes - 1).bit_length())}")
        parts += [_OPS[op][1]] if folds else []
        parts += [f"root {root}"] if name in _ROOTED else []
        return ", ".join(parts)

    def _fail(self, peer: int, reason: str, detail: Any = None) -> NoReturn:
        """Raise the error of a call that cannot be completed.

        Args:
            reason: a word of the channel's.
            detail: seconds of a wait; of a difference, the key and bytes of both calls.
        """
        if reason == "over":
            raise RuntimeError(FREED)
        who = f"rank {peer} (process {self.processes[peer]})"
        if reason == "different":
            key, nbytes, local_key, local_nbytes = detail
            raise Disagreement(
                f"the ranks are in different calls: rank {self.rank} in "
                f"{self._call_text(local_key, local_nbytes)}, rank {peer} in "
                f"{self._call_text(key, nbytes)}"
            )
        what = {
            "left": "which has left this communicator by an error",
            "ended": "which has ended",
            "deadline": f"which did not come in {detail:.3g} s",
        }[reason]
        raise RankLost(f"rank {self.rank} waits for {who}, {what}", rank=peer)

    def _call_text(self, key: tuple[int, ...], nbytes: int) -> str:
        collective, is_object, op, kind, root = key
        name = COLLECTIVES[collective]
        is_bare = nbytes < 0 or is_object or name in ("barrier", COLLECTIVES[-1])
        details = [] if is_bare else [f"{nbytes} bytes"]
        if name in ("reduce", "allreduce", "scan", "exscan", "reduce_scatter"):
            details += [_NAMES[kind], _OPS[op][1]]
        if name in _ROOTED:
            details.append(f"root {root}")
        text = f"{name} of objects" if is_object else name
        return f"{text} ({', '.join(details)})" if details else text

    def close(self) -> None:
        """Leave the channel."""
        self.channel.close()
