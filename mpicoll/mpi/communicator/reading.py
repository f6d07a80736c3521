"""Read the buffers of a call of mpi4py as flat arrays.

C views memory without gaps. MPI packs all other buffers into bytes, and unpacks their results.
"""

from __future__ import annotations

from ctypes import c_char
from typing import TYPE_CHECKING, Any

import numpy as np

from mpicoll.c_extension import _compiled
from mpicoll.mpi.communicator.buffers import (
    Flat,
    Unreadable,
    datatype,
    dtype_of,
    numbers,
    prepare_forms,
)

if TYPE_CHECKING:
    from mpicoll.mpi.communicator.packing import Packing

FOLDS = {"reduce", "allreduce", "scan", "exscan", "reduce_scatter", "reduce_scatter_block"}
"""Methods that fold."""


class Reading:
    """The buffers of one call on one rank, as flat arrays.

    Attributes:
        rank, size: of the communicator.
        packings: of the buffers with packed copies, whose arrays have their contents after `pack`.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.packings: list[Packing] = []

    def flat(self, name: str, x: Any, out: Any, root: Any) -> tuple[Any, Any]:
        """Return the input and output of a method as arrays; None where this rank gives none.

        What is moved is bytes, and what is folded has a dtype. A buffer with a count for each rank
        becomes a list of its array and the bytes of its blocks.

        Args:
            name: of mpi4py's method, in small letters.
            out: of a reduce_scatter a list of the output and the counts, as is what is returned.

        Raises:
            Exception: only MPI can read the arguments, or mpi4py's own method raises.
        """
        counts = None
        if name == "reduce_scatter":
            out, counts = out
        views = _compiled.read_buffers(
            prepare_forms().compiled, self.rank, self.size, self._pack, name, x, out, root
        )
        x, out = (_array(view, is_folded=name in FOLDS) for view in views)
        if counts is not None:
            counts = numbers(counts, self.size)
        if name in FOLDS and isinstance(x, np.ndarray) and out is not None:
            self.check_fold(name, x, out, counts)
        return x, [out, counts] if name == "reduce_scatter" else out

    def check_fold(self, name: str, x: Flat, out: Flat, counts: list[int] | None) -> None:
        """Raise `Unreadable` where the input and the output of a fold do not fit each other."""
        given, wanted = x.size, out.size
        if x.dtype != out.dtype:
            raise Unreadable(f"{x.dtype} of input, {out.dtype} of output")
        if counts is not None:
            is_fit = given == sum(counts) and wanted == counts[self.rank]
        elif name == "reduce_scatter_block":
            is_fit = given == wanted * self.size
        else:
            is_fit = given == wanted or name == "reduce_scatter"
        if not is_fit:
            raise Unreadable(f"{given} elements of input, {wanted} of output")

    def _pack(
        self, spec: Any, is_written: bool, is_folded: bool, is_counted: bool, blocks: int
    ) -> Any:
        """Return the packed array of a buffer that C cannot view, with the bytes of its blocks."""
        from mpicoll.mpi.communicator.packing import packing, vector_packing  # rarely needed

        if is_counted:
            local, nbytes = vector_packing(spec, self.size, is_written=is_written)
            self.packings.append(local)
            return [local.flat, nbytes]
        local = packing(spec, blocks, is_written=is_written)
        self.packings.append(local)
        dtype = dtype_of(datatype(spec)) if is_folded else local.flat.dtype
        if dtype is None:
            raise Unreadable("MPI folds no derived datatype")
        return local.flat.view(dtype)

    def pack(self) -> None:
        """Pack all buffers; what a call does not write stays in its output."""
        for local in self.packings:
            local.pack()

    def unpack(self) -> None:
        """Unpack the outputs after a call."""
        for local in self.packings:
            if local.is_written:
                local.unpack()

    def close(self) -> None:
        """Free what the packed buffers need."""
        for local in self.packings:
            local.free()


def _array(view: Any, *, is_folded: bool) -> Any:
    """Return the memory that C has viewed as an array; what is none as it is."""
    if not isinstance(view, tuple):
        return view
    address, nbytes, kind, lengths = view
    dtype = prepare_forms().dtypes[kind] if is_folded else "u1"
    array: Flat = np.frombuffer(memoryview((c_char * nbytes).from_address(address)), dtype)
    return array if lengths is None else [array, lengths]
