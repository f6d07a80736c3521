"""Serve the collectives of one group of one node by a channel: what both backends have alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from functools import cache
from math import gcd, isinf
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from mpicoll.c_extension import _compiled
from mpicoll.errors import FREED, Disagreement, RankLost
from mpicoll.memory.files import Files, Segment
from mpicoll.text.sizes import size_text
from mpicoll.tuning import FIRST_SHARE_RANKS, SHARES_ABOVE

if TYPE_CHECKING:
    from mpicoll.backend import Arrays
    from mpicoll.flight.groups import GroupFlight

COLLECTIVES = (
    "barrier", "broadcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce",
    "scan", "exscan", "reduce_scatter", "a call that MPI serves",
)  # fmt: skip
"""Our names of the collectives, as the keys of messages number them."""
BROADCAST, GATHER, SCATTER = _compiled.BCAST, _compiled.GATHER, _compiled.SCATTER
ALLGATHER, ALLTOALL, REDUCE = _compiled.ALLGATHER, _compiled.ALLTOALL, _compiled.REDUCE
_ROOTED = ("broadcast", "gather", "scatter", "reduce")
_ROWS = ("gather", "scatter", "allgather")
"""Those that the recorder gets the bytes of one row of."""
_FOLDS = ("reduce", "allreduce", "scan", "exscan", "reduce_scatter")


class Forms(NamedTuple):
    """What channels read of arrays and operators.

    Attributes:
        compiled: what `_compiled.prepare_channels` has returned.
        dtypes, ops: our names of them, as keys number them.
        itemsizes: of the dtypes, in bytes.
    """

    compiled: Any
    dtypes: tuple[str, ...]
    itemsizes: tuple[int, ...]
    ops: tuple[str, ...]


def forms_of(arrays: Arrays) -> Forms | None:
    """Return what channels read of arrays and operators; None where these arrays have no layout."""
    return None if arrays.layout() is None else _forms_of(type(arrays))


@cache
def _forms_of(kind: Callable[[], Arrays]) -> Forms:
    # Programs of mpi4py do not need it.
    from mpicoll.notation.elements import DTYPES, OPS, itemsize, kind_of

    arrays = kind()
    layout = arrays.layout()
    assert layout is not None
    probe, table = layout
    if isinstance(table, tuple):  # of NumPy, which has two dtypes of some names
        samples = [(dtype.name, dtype.kind, type(probe)((1,), dtype)) for dtype, *_ in table]
    else:
        samples = [(name, kind_of(name), arrays.empty((1,), name)) for name in DTYPES]
    ops = tuple((name, name, op.kinds) for name, op in OPS.items())
    names = tuple(name for name, *_ in samples)
    return Forms(
        _compiled.prepare_channels(layout, tuple(samples), ops, (), None, None, None, None), names,
        tuple(map(itemsize, names)), tuple(OPS),
    )  # fmt: skip


def open_units(
    exchange: Callable[..., list[Any]], rank: int, node: Sequence[int]
) -> tuple[Segment, list[int]]:
    """Return memory for a channel of the ranks of a node, and the addresses of its units.

    Collective.

    Args:
        exchange: returns every rank's item of a type, in rank order, also of other nodes.

    Raises:
        Unavailable: on all ranks, where one cannot map it.
    """
    segment = Files(exchange, rank, node).map(_compiled.UNIT_BYTES)
    start, nbytes = addressof(c_char.from_buffer(segment.mapped)), len(segment.parts[0])
    units = [start + place * nbytes for place in range(len(node))]
    _compiled.clear_unit(units[node.index(rank)])
    exchange(None)  # no rank reads it before
    return segment, units


class GroupChannel:
    """Our collectives on one group of one node.

    Args:
        units: the addresses of the ranks' units.
        processes: of the ranks.
        shares_cores: the ranks outnumber the cores that they may use.
        keep: what the memory belongs to.
        slow: runs a call whose arguments the channel does not read.
        library: runs a call that is the library's.
        progress: lets the library move messages of its own.
        ranks: the numbers of the members in errors; by default 0, 1, 2, and so on.

    Attributes:
        channel: runs the calls.
    """

    def __init__(
        self, forms: Forms, rank: int, units: Sequence[int], processes: Sequence[int],
        deadline: float, flight: GroupFlight | None, *, shares_cores: bool, keep: object,
        slow: Callable[..., Any] | None = None, library: Callable[..., Any] | None = None,
        progress: Callable[[], Any] | None = None, ranks: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.rank, self.size, self.flight = rank, len(units), flight
        self.ranks = ranks or range(self.size)
        self.forms, self.processes = forms, processes
        self.channel: Any = _compiled.Channel(
            forms=forms.compiled, units=tuple(units), rank=rank, processes=tuple(processes),
            slow=slow, library=library, owner=self, keep=keep, progress=progress,
            log=flight and flight.log, deadline=0.0 if isinf(deadline) else deadline,
            has_cores=not shares_cores,
            shares_above=SHARES_ABOVE, first_share_ranks=FIRST_SHARE_RANKS,
        )  # fmt: skip

    def place(
        self, key: tuple[int, ...], nbytes: int, shares: tuple[int, ...] | None
    ) -> int:  # fmt: skip
        """Return the place of a kind of call in the table of the flight recorder.

        Args:
            shares: in proportion to the ranks' blocks, powers of two; of alltoall, about the bytes
                that this rank sends and receives. None where blocks are equal.
        """
        assert self.flight is not None
        most = 1 << (nbytes - 1).bit_length() if nbytes > 0 else 0
        text = self._signature(key, most)
        if shares is not None and COLLECTIVES[key[0]] == "alltoall":
            text = "sends {} bytes, receives {} bytes".format(*shares)
        elif shares is not None:
            text += f", counts {tuple(share // gcd(*shares) for share in shares)}"
        name = COLLECTIVES[key[0]]
        rows = self.size if name in _ROWS else 1
        return self.flight.call(name, text, "slots", "symmetric", most * rows)

    def _signature(self, key: tuple[int, ...], most: int) -> str:
        """Return the arguments of a call of up to `most` bytes in words."""
        collective, is_object, op, kind, root = key
        name = COLLECTIVES[collective]
        folds = name in _FOLDS and not is_object
        parts = ["objects"] if is_object else [self.forms.dtypes[kind]] if folds else []
        if most:
            parts.append(f"up to {size_text(most)}")
        parts += [self.forms.ops[op]] if folds else []
        parts += [f"root {root}"] if name in _ROOTED and (name != "reduce" or folds) else []
        return ", ".join(parts)

    def fail(self, peer: int, reason: str, detail: Any = None) -> NoReturn:
        """Raise the error of a call that cannot be completed.

        Args:
            reason: a word of the channel's.
            detail: seconds of a wait; of a difference, the key and bytes of both calls.
        """
        if reason == "over":
            raise RuntimeError(FREED)
        rank, local = self.ranks[peer], self.ranks[self.rank]
        if reason == "failed":
            raise RankLost("an earlier call of this group has failed", rank=rank)
        who = f"rank {rank} (process {self.processes[peer]})"
        if reason == "different":
            key, nbytes, local_key, local_nbytes = detail
            lengths = self._lengths(key, nbytes, local_key, local_nbytes)
            raise Disagreement(
                f"the ranks are in different calls: rank {local} in "
                f"{self._call_text(local_key, local_nbytes)}, rank {rank} in "
                f"{self._call_text(key, nbytes)}{lengths}"
            )
        what = {
            "left": "which has left this group by an error",
            "ended": "which has ended",
            "exited": "whose program has ended",
            "deadline": f"which did not come in {detail:.3g} s",
        }[reason]
        raise RankLost(f"rank {local} waits for {who}, {what}", rank=rank)

    def _lengths(
        self, key: tuple[int, ...], nbytes: int, local_key: tuple[int, ...], local_nbytes: int
    ) -> str:  # fmt: skip
        """Return both lengths if these alone differ, to end a sentence; else nothing."""
        if key != local_key or key[1] or min(nbytes, local_nbytes) < 0:
            return ""
        folds = COLLECTIVES[key[0]] in _FOLDS
        width = self.forms.itemsizes[key[3]] if folds else 1
        unit = "elements" if folds else "bytes"
        return f": {local_nbytes // width} against {nbytes // width} {unit}"

    def _call_text(self, key: tuple[int, ...], nbytes: int) -> str:
        collective, is_object, op, kind, root = key
        name = COLLECTIVES[collective]
        is_bare = nbytes < 0 or is_object or name in ("barrier", COLLECTIVES[-1])
        details = [] if is_bare else [f"{nbytes} bytes"]
        if name in _FOLDS and not is_bare:
            details = [f"{nbytes // self.forms.itemsizes[kind]} elements"]
        if name in _FOLDS and not is_object:
            details += [self.forms.dtypes[kind], self.forms.ops[op]]
        if name in _ROOTED and (name != "reduce" or not is_object):
            details.append(f"root {root}")
        text = f"{name} of objects" if is_object else name
        return f"{text} ({', '.join(details)})" if details else text

    def close(self) -> None:
        """Leave the channel."""
        self.channel.close()
