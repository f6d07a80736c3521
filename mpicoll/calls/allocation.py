"""Allocate the arrays of calls: on all ranks, or on none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from mpicoll.backend import Array, Transport
from mpicoll.calls.arguments import Arguments, check_dtype, check_shape
from mpicoll.errors import Unavailable, on_all
from mpicoll.notation.elements import itemsize

Result = TypeVar("Result")


def readable(
    transport: Transport, shape: int | Sequence[int], dtype: Any, on_gpu: Array | None
) -> Callable[[], Array]:
    """Return a function, collective, that makes an array readable by all ranks of this node.

    Args:
        on_gpu: an array on the GPU where the new one is to lie; None for the host.

    Raises:
        ArgumentError: no such shape or dtype.
        Unavailable: NCCL does not serve this group.
    """
    shared, window = transport.shared, transport.window
    if on_gpu is not None and window is None:
        raise Unavailable("NCCL, which registers GPU memory, does not serve this group")
    lengths, name = check_shape(shape), check_dtype(dtype)
    if on_gpu is None and shared is None:
        return partial(transport.arrays.empty, lengths, name)

    def make() -> Array:
        with transport.poison_on_error():
            if on_gpu is not None and window is not None:
                return window(lengths, name, on_gpu)
            assert shared is not None
            return shared.allocate(lengths, name, math.prod(lengths) * itemsize(name))

    return make


def empty(transport: Transport, arguments: Arguments, shape: tuple[int, ...]) -> Array:
    """Allocate an array of the call's dtype, on the device of its arrays."""
    assert arguments.dtype is not None
    like = arguments.array
    if like is None and arguments.device == "gpu":
        like = transport.arrays.on_gpu(transport.gpu_turn)
    return transport.arrays.empty(shape, arguments.dtype, like)


def empty_like_input(transport: Transport, arguments: Arguments) -> Array | None:
    """Allocate an array like the input, None where this rank gives none."""
    if arguments.x is None:
        return None
    return empty(transport, arguments, tuple(arguments.x.shape))


def with_arrays(transport: Transport, arguments: Arguments, *, copies: bool = False) -> Arguments:
    """Return a call with the output that the caller did not give; collective.

    Args:
        copies: give it arrays of its own, whatever the caller gave.

    Raises:
        Unavailable: on all ranks, where one has no memory for its arrays.
    """

    def allocate() -> Arguments:
        call = arguments
        if copies:
            call = replace(call, x=empty_like_input(transport, call), out=None, in_place=False)
        if call.out is None and call.has_output:
            call = replace(call, out=empty(transport, call, call.shape("output")))
        return call

    return with_memory(transport, allocate)


def with_memory(transport: Transport, make: Callable[[], Result]) -> Result:
    """Return the result of `make`, which takes memory; collective.

    Raises:
        Unavailable: on all ranks, where one has no memory for it. One that failed alone would
            leave the others waiting for it in the call.
    """
    problem = "there is no memory for the arrays of a call: "
    exchange = partial(transport.exchange, kind=str)
    refusals = MemoryError, RuntimeError  # NumPy's and CuPy's, and torch's
    return on_all(make, transport.rank, exchange, problem, refusals)
