"""Allocate arrays like those of a call, on the device of its arrays."""

from __future__ import annotations

from mpicoll.interfaces import Array, Transport
from mpicoll.runtime.arguments import Arguments


def own_gpu(transport: Transport) -> Array:
    """Make a GPU of this node the current one, and return an empty array there.

    The ranks of a node take its GPUs in turn, as ``CUDA_VISIBLE_DEVICES`` shows them.

    Raises:
        Unavailable: CuPy or torch finds none.
    """
    node = next(each for each in transport.nodes if transport.rank in each)
    return transport.arrays.on_gpu(node.index(transport.rank))


def empty(transport: Transport, arguments: Arguments, shape: tuple[int, ...]) -> Array:
    """Allocate an array of the call's dtype, on the device of its arrays."""
    assert arguments.dtype is not None
    like = arguments.x if arguments.x is not None else arguments.out
    if like is None and arguments.device == "gpu":
        like = own_gpu(transport)
    return transport.arrays.empty(shape, arguments.dtype, like)


def empty_like_input(transport: Transport, arguments: Arguments) -> Array | None:
    """Allocate an array like the input, None where this rank gives none."""
    if arguments.x is None:
        return None
    return empty(transport, arguments, tuple(arguments.x.shape))
