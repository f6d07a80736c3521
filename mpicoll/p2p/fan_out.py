"""Time copies from one device to several devices at once, each on a separate stream.

The total bandwidth shows whether the copies share a link. If it equals that of one copy, the copies
queue for the same link.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple, Protocol

from mpicoll.measurement import clock

_REPEATS = 9
_NBYTES = 64 << 20


class Copies(Protocol):
    """Copies from one source to several peers, on a stream for each.

    Attributes:
        peers: number of reachable devices.
        nbytes: bytes of each copy.
    """

    peers: int
    nbytes: int

    def start(self, count: int) -> None:
        """Begin a copy to each of the first `count` peers, without waiting."""

    def wait(self) -> None:
        """Return when all copies have arrived."""


class Spread(NamedTuple):
    """The time of `peers` simultaneous copies, and their total bandwidth."""

    peers: int
    nbytes: int
    time_us: float
    GBps: float


def fan_out(
    copies: Copies, repeats: int = _REPEATS, now: Callable[[], int] = clock.now
) -> list[Spread]:
    """Return the times of copies to 1, 2, ... peers at once, medians over `repeats`."""
    spreads = []
    for count in range(1, copies.peers + 1):
        times = [_once(copies, count, now) for _ in range(repeats + 1)]
        # The first copy of a pair sets up its path.
        time = median(times[1:])
        total = count * copies.nbytes
        spreads.append(Spread(count, copies.nbytes, time / 1000, total / time))
    return spreads


def _once(copies: Copies, count: int, now: Callable[[], int]) -> int:
    began = now()
    copies.start(count)
    copies.wait()
    return now() - began


def spread_line(spread: Spread, single: Spread, source: int) -> str:
    """Return a sentence that compares simultaneous copies with a single one."""
    gain = spread.GBps / single.GBps
    return (
        f"rank {source} copies to {spread.peers} GPUs at once with {spread.GBps:.3g} GB/s in all, "
        f"{gain:.2g} times one copy alone"
    )


class CudaCopies:
    """Copies from this rank's GPU to the other GPUs that its process sees."""

    nbytes = _NBYTES

    def __init__(self) -> None:
        import torch

        self.torch: Any = torch
        device = torch.cuda.current_device()
        devices = [number for number in range(torch.cuda.device_count()) if number != device]
        self.peers = len(devices)
        self.source: Any = torch.empty(self.nbytes, dtype=torch.uint8, device=device)
        self.targets: list[Any] = [
            torch.empty(self.nbytes, dtype=torch.uint8, device=target) for target in devices
        ]
        self.streams: list[Any] = [self.torch.cuda.Stream(device=device) for _ in devices]
        torch.cuda.synchronize()

    def start(self, count: int) -> None:
        for target, stream in zip(self.targets[:count], self.streams, strict=False):
            with self.torch.cuda.stream(stream):
                target.copy_(self.source, non_blocking=True)

    def wait(self) -> None:
        for stream in self.streams:
            stream.synchronize()
