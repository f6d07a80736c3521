"""Read the buffers of a call of mpi4py as flat arrays.

C views memory without gaps. MPI packs all other buffers into bytes, and unpacks their results.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_char
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

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

    Args:
        rank, size: of the communicator.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.packings: list[Packing] = []

    def run(
        self, name: str, x: Any, out: Any, root: Any, call: Callable[[Any, Any], bool | None]
    ) -> bool | None:  # fmt: skip
        """Run a call on flat arrays; True where MPI is to run it.

        What is moved is bytes, and what is folded has a dtype. A buffer with a count for each rank
        becomes a list of its array and the bytes of its blocks.

        Args:
            name: of mpi4py's method, in small letters.
            out: of a reduce_scatter a list of the output and the counts, as is what `call` takes.
            call: takes input and output, None where this rank gives none; returns what this does.
        """
        try:
            try:
                x, out = self._flat(name, x, out, root)
            except Exception:  # whatever is wrong, mpi4py's own method says it
                return True
            _compiled.postpone_handlers()
            for local in self.packings:
                local.pack()  # what a call does not write stays in its output
            is_mpi = call(x, out)
            for local in () if is_mpi else self.packings:
                if local.is_written:
                    local.unpack()
            return is_mpi
        finally:
            for local in self.packings:
                local.free()

    def _flat(self, name: str, x: Any, out: Any, root: Any) -> tuple[Any, Any]:
        counts = None
        if name == "reduce_scatter":
            out, counts = out
            counts = numbers(counts, self.size)
        views = _compiled.read_buffers(
            prepare_forms().compiled, self.rank, self.size, self._pack, name, x, out, root
        )
        x, out = (_array(view, is_folded=name in FOLDS) for view in views)
        if name in FOLDS and x is not None and out is not None:
            self._check_fold(name, x, out, counts)
        return x, [out, counts] if name == "reduce_scatter" else out

    def _check_fold(self, name: str, x: Any, out: Flat, counts: list[int] | None) -> None:
        """Raise `Unreadable` where the input and the output of a fold do not fit each other."""
        in_place = x is MPI.IN_PLACE
        whole = out if in_place else x
        if whole.dtype != out.dtype:
            raise Unreadable(f"{whole.dtype} of input, {out.dtype} of output")
        if name == "reduce_scatter_block":
            counts = [whole.size // self.size if in_place else out.size] * self.size
        if counts is None:
            is_fit = whole.size == out.size
        else:
            is_fit = whole.size == sum(counts) and (in_place or out.size == counts[self.rank])
        if not is_fit:
            raise Unreadable(f"{whole.size} elements of input, {out.size} of output")

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


def _array(view: Any, *, is_folded: bool) -> Any:
    """Return the memory that C has viewed as an array; what is none as it is."""
    if not isinstance(view, tuple):
        return view
    address, nbytes, kind, lengths = view
    dtype = prepare_forms().dtypes[kind] if is_folded else "u1"
    array: Flat = np.frombuffer(memoryview((c_char * nbytes).from_address(address)), dtype)
    return array if lengths is None else [array, lengths]
