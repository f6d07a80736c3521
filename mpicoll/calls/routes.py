"""Choose the transport of a schedule's messages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mpicoll.backend import (
    CMA,
    DIRECT,
    GPU_TRANSPORTS,
    IPC,
    STAGED,
    SYMMETRIC,
    Array,
    Transport,
)
from mpicoll.calls.arguments import Arguments
from mpicoll.errors import Unavailable, first_error
from mpicoll.tuning import FETCHED_ROW

if TYPE_CHECKING:
    from mpicoll.gpu.ipc import GpuMemory

NEVER = 1 << 62
"""More bytes than any message has."""
_ONE_READER = ("alltoall", "scatter")
"""The collectives in which every row has one reader."""
_TWO_RANKS = (*_ONE_READER, "allgather", "broadcast")
"""Those of two ranks: the other rank is the only reader."""


class Routes:
    """The transports of one group of ranks."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._gpus: dict[tuple[int, ...], tuple[GpuMemory | None, str]] = {}

    def fetches_from(self, arguments: Arguments) -> int:
        """Return from how many bytes of a vector or row CMA is the default."""
        shared = self.transport.shared
        if shared is None or shared.no_cma:
            return NEVER
        fetched = _TWO_RANKS if self.transport.size == 2 else _ONE_READER
        return FETCHED_ROW if arguments.collective.name in fetched else NEVER

    def names(self) -> list[str]:
        """Return the transports of schedules on the host."""
        names, shared = [self.transport.name], self.transport.shared
        if shared is not None:
            names += [SYMMETRIC] if shared.no_cma else [SYMMETRIC, CMA]
        return names

    def check(self, arguments: Arguments, user_route: str) -> str:
        """Return the transport of a call; empty where `open_gpu` is to find it.

        Args:
            user_route: the transport that the caller named; empty for the fastest.

        Raises:
            Unavailable: the group has no such transport, and why.
        """
        shared, name = self.transport.shared, self.transport.name
        if arguments.device == "gpu":
            return self._check_gpu(user_route)
        if user_route in GPU_TRANSPORTS:
            if arguments.device is None and arguments.collective.unit != "none":
                return user_route  # a rank without an array learns from the others where theirs are
            raise Unavailable(f"no {user_route} transport for arrays on the host")
        if self.transport.size == 1 or user_route == name or (not user_route and shared is None):
            return name
        if shared is None:
            raise Unavailable(f"no {user_route} transport: {self.transport.unshared}")
        if user_route == CMA and shared.no_cma:
            raise Unavailable(f"no {CMA} transport: {shared.no_cma}")
        fetches = arguments.bytes_per_row >= self.fetches_from(arguments)
        return user_route or (CMA if fetches else SYMMETRIC)

    def _check_gpu(self, user_route: str) -> str:
        gpu_route = self.transport.gpu_transport
        if user_route in (SYMMETRIC, CMA):
            raise Unavailable(f"no {user_route} transport for arrays on a GPU: {IPC} is theirs")
        if user_route in (DIRECT, STAGED) and user_route != gpu_route:
            raise Unavailable(f"GPU arrays travel {gpu_route} here, not {user_route}")
        if user_route in (gpu_route, self.transport.name) or self.transport.size == 1:
            return gpu_route
        return user_route

    def open(self, arguments: Arguments, user_route: str) -> tuple[str, GpuMemory | None]:
        """Return the transport of a call, and the GPU memory that it needs; collective.

        Raises:
            Unavailable: the group has no such transport, and why.
        """
        route = self.check(arguments, user_route)
        if arguments.device != "gpu" or route not in ("", IPC):
            return route, None
        try:
            return IPC, self.gpu_memory(arguments.array)
        except Unavailable:
            if route:
                raise
            return self.transport.gpu_transport, None

    def gpu_memory(self, like: Array) -> GpuMemory:
        """Return the node's memory on the GPUs of arrays like these; collective.

        It is opened at the first call for these GPUs.

        Raises:
            Unavailable: the ranks cannot read each other's GPU memory, and why.
        """
        transport = self.transport
        gpus = tuple(transport.exchange(transport.arrays.gpu(like), int))
        if gpus not in self._gpus:
            from mpicoll.gpu.ipc import open_gpu_memory

            driver = partial(transport.driver, gpus[transport.rank])
            self._gpus[gpus] = open_gpu_memory(transport.shared, transport.unshared, driver, like)
        memory, why = self._gpus[gpus]
        if memory is None:
            raise Unavailable(f"no {IPC} transport: {why}")
        return memory

    def on_gpu(self) -> dict[str, str]:
        """Return the transports of GPU arrays, each with why it is unavailable; collective.

        Every rank takes the GPU that is its turn. An available one has an empty reason.
        """
        like, why = None, ""
        try:
            like = self.transport.arrays.on_gpu(self.transport.gpu_turn)
        except Unavailable as error:
            why = f"rank {self.transport.rank}: {error}"
        if reason := first_error(self.transport.exchange(why)):
            return dict.fromkeys(GPU_TRANSPORTS, reason)
        try:
            self.transport.prepare_gpu(like)
        except Unavailable as error:
            return dict.fromkeys(GPU_TRANSPORTS, str(error))
        reasons = dict.fromkeys(GPU_TRANSPORTS, "")
        unused_route = STAGED if self.transport.gpu_transport == DIRECT else DIRECT
        reasons[unused_route] = f"GPU arrays travel {self.transport.gpu_transport} here"
        try:
            self.gpu_memory(like)
        except Unavailable as error:
            reasons[IPC] = str(error)
        return reasons

    def free(self) -> None:
        """Release the GPU memory; collective."""
        for memory, _ in self._gpus.values():
            if memory is not None:
                memory.close()
        self._gpus.clear()
