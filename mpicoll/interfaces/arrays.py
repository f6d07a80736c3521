"""A backend's arrays, and the streams of its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from mpicoll.notation.elements import ReduceOp
from mpicoll.programs.fusing import Steps

Array = Any
Thunk = Callable[[], Any]
Memory = memoryview
"""Bytes that this process can write."""


class Arrays(Protocol):
    """The few operations on memory that the front and the plans need."""

    def owns(self, x: object) -> bool:
        """Whether `x` is an array of this backend."""

    def unfit(self, x: Array, *, written: bool) -> str | None:
        """Return why `x` cannot be read (or `written`); None where it can."""

    def dtype(self, x: Array) -> str:
        """Return the dtype's name, as in `mpicoll.notation.elements`.

        Raises:
            UnknownName: no backend carries this dtype.
        """

    def flat(self, x: Array) -> Array:
        """Return a one-dimensional view.

        Raises:
            ArgumentError: `x` is not C-contiguous.
        """

    def span(self, x: Array) -> tuple[int, int]:
        """Return the first address of `x` and the one past its end."""

    def form(self, x: object) -> Hashable:
        """Return a key that arrays have in common which pass the same checks, or fail them.

        None where that cannot be told in a microsecond or two.
        """

    def layout(self) -> tuple[Array, object] | None:
        """Return an array, and the table by which the compiled executor reads those of its type.

        For NumPy's the dtypes that it may meet, each with its itemsize and DLPack's code; for
        others DLPack's exchange table. None where there is none.
        """

    def empty(self, shape: tuple[int, ...], dtype: str, like: Array | None = None) -> Array:
        """Allocate, on the device of `like`.

        Raises:
            UnknownName: this backend has no such dtype.
        """

    def copier(self, target: Array, source: Array) -> Thunk:
        """Bind a copy between flat arrays of one length."""

    def copy(self, target: Array, source: Array) -> None:
        """Copy between C-contiguous arrays of one shape, once."""

    def folder(self, op: ReduceOp, left: Array, right: Array, out: Array) -> Thunk:
        """Bind ``out = left op right`` on flat arrays; `out` may be either operand."""

    def fuser(
        self, op: ReduceOp, operands: Sequence[Array], steps: Steps, out: Array
    ) -> Thunk | None:
        """Bind a chain of folds into `out` as one call; return None where there is none."""

    def divider(self, x: Array, divisor: int) -> Thunk:
        """Bind a division in place."""

    def to_host(self, x: Array) -> Any:
        """Return the values as a NumPy array (bfloat16 as float32)."""

    def from_host(self, x: Array, values: Any) -> None:
        """Write NumPy values into `x`, converting to its dtype."""

    def synchronize(self, x: Array) -> None:
        """Wait until the device has finished the work that produces `x`."""

    def is_on_host(self, x: Array | None) -> bool:
        """Whether `x` is not on a GPU."""

    def gpu(self, x: Array) -> int:
        """Return the number of the GPU that `x` is on, as the driver counts them."""

    def gpu_name(self, x: Array) -> str:
        """Return the model of the GPU that `x` is on."""

    def over(self, memory: Memory, dtype: str, shape: tuple[int, ...]) -> Array:
        """Return an array of this shape over the first bytes of `memory`.

        Raises:
            UnknownName: this backend has no such dtype.
        """

    def on_gpu(self, turn: int) -> Array:
        """Return an empty array on this thread's GPU, for others to be made like it.

        A thread that uses none yet takes the one of this number, modulo how many there are.

        Raises:
            Unavailable: this process sees no GPU.
        """

    def stopwatch(self) -> Stopwatch:
        """Return a stopwatch for the work on the caller's stream."""

    def current_stream(self, gpu: int) -> Stream:
        """Return the caller's stream on a GPU, by its number."""

    def at(self, address: int, dtype: str, count: int, like: Array) -> Array:
        """Return a flat array over GPU memory that another object owns, on the GPU of `like`."""


class Stream(Protocol):
    """A stream of one GPU; equal to another object for the same stream.

    Attributes:
        handle: what the driver knows it by.
    """

    @property
    def handle(self) -> Any: ...

    def use(self) -> AbstractContextManager[Any]:
        """Return a context in which it is the caller's stream on its GPU."""

    def follow(self, other: Stream) -> None:
        """Let work put on it from now on wait for the work already on another one."""

    def is_capturing(self) -> bool:
        """Whether a CUDA graph records the work put on it, instead of running it."""


class Stopwatch(Protocol):
    """Two events of a GPU's stream."""

    def start(self) -> None:
        """Record the start on the caller's stream."""

    def stop(self) -> None:
        """Record the end on the caller's stream, and wait for it."""

    def nanoseconds(self) -> int:
        """Return the nanoseconds that passed on the GPU."""
