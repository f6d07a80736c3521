"""Models of the time of a message: Hockney's and LogGP, with one port or k.

A model gives the times of a message of n bytes, in seconds:

- It arrives `latency` + n `beta` after its start.
- It keeps a port of its sender and one of its receiver busy for `hold` + n `beta`.
- A rank has `servers` ports in each direction. They are limited (`has_port_limit`), or else only
  the bytes share the rank's one link.
- A rank folds a message in n `gamma`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mpicoll.errors import ArgumentError
from mpicoll.text.numbers import count_text

LONGEST = 1e9
"""Seconds: longer times are refused, as their sums would overflow."""
_OF_A_BYTE = ("beta", "gamma", "G")


class AlphaBeta(NamedTuple):
    """The time of a message in seconds: `alpha` to start it, `beta` for each byte.

    >>> print(AlphaBeta(2e-6, 1e-10))
    alpha 2 us, beta 0.1 ns/B
    """

    alpha: float
    beta: float

    def __str__(self) -> str:
        return _times_text(**self._asdict())


@dataclass(frozen=True)
class Hockney:
    """A message takes ``alpha + n beta``, and folding it ``n gamma`` (Hockney 1994).

    >>> model = Hockney(alpha=2e-6, beta=1e-10)
    >>> model.latency, model.hold, model.servers, model.has_port_limit
    (2e-06, 2e-06, 1, True)

    Attributes:
        alpha, beta, gamma: seconds of a message, of a byte, and to fold a byte.
        ports: a rank drives so many messages at once in each direction, each of them at full
            speed, and the others wait. None: start-ups overlap without limit, and bytes share
            the one link of the rank.

    Raises:
        ArgumentError: a time is negative, or there are no ports.
    """

    alpha: float
    beta: float
    gamma: float = 0.0
    ports: int | None = 1

    def __post_init__(self) -> None:
        _check(self.ports, alpha=self.alpha, beta=self.beta, gamma=self.gamma)

    @property
    def latency(self) -> float:
        """Seconds until an empty message has arrived."""
        return self.alpha

    @property
    def hold(self) -> float:
        """Seconds for which an empty message keeps its ports busy."""
        return self.alpha if self.has_port_limit else 0.0

    @property
    def servers(self) -> int:
        """Messages that a rank drives at once in each direction."""
        return self.ports or 1

    @property
    def has_port_limit(self) -> bool:
        """Whether a rank starts only so many messages at once."""
        return self.ports is not None

    def __str__(self) -> str:
        ports = count_text(self.servers, "port") if self.ports else "start-ups overlap"
        return (
            f"Hockney: {_times_text(alpha=self.alpha, beta=self.beta, gamma=self.gamma)}, {ports}"
        )


@dataclass(frozen=True)
class LogGP:
    """A message takes ``L + 2o + n G``, and the next may follow ``max(g, o) + n G`` after it.

    So the p of LogGP's name comes from the schedule, and a round of one message each way takes
    ``2o + n G + L`` (Alexandrov, Ionescu, Schauser and Scheiman 1995).

    >>> model = LogGP(L=1e-6, o=5e-7, g=1e-6, G=1e-10)
    >>> model.latency, model.hold, model.beta, model.servers, model.has_port_limit
    (2e-06, 1e-06, 1e-10, 1, True)

    Attributes:
        L: seconds on the way.
        o: seconds of the processor at either end.
        g: the least gap between the starts of messages of one port.
        G: seconds of a byte.
        gamma: seconds to fold a byte.
        ports: a rank has so many ports in each direction.

    Raises:
        ArgumentError: a time is negative, or there are no ports.
    """

    L: float
    o: float
    g: float
    G: float
    gamma: float = 0.0
    ports: int = 1

    def __post_init__(self) -> None:
        _check(self.ports, L=self.L, o=self.o, g=self.g, G=self.G, gamma=self.gamma)

    @property
    def latency(self) -> float:
        """Seconds until an empty message has arrived."""
        return self.L + 2 * self.o

    @property
    def beta(self) -> float:
        """Seconds of a byte."""
        return self.G

    @property
    def hold(self) -> float:
        """Seconds for which an empty message keeps its ports busy."""
        return max(self.g, self.o)

    @property
    def servers(self) -> int:
        """Messages that a rank drives at once in each direction."""
        return self.ports

    @property
    def has_port_limit(self) -> bool:
        """Whether a rank starts only so many messages at once: always."""
        return True

    def __str__(self) -> str:
        times = _times_text(L=self.L, o=self.o, g=self.g, G=self.G, gamma=self.gamma)
        return f"LogGP: {times}, {count_text(self.ports, 'port')}"


Model = Hockney | LogGP


def check_times(**times: float) -> None:
    """Raise ArgumentError for a time that is negative, too long or no number."""
    for name, value in times.items():
        if not 0 <= value <= LONGEST:
            raise ArgumentError(
                f"{name} must be a number of seconds, from 0 to {LONGEST:g}, not {value:g}"
            )


def _check(ports: int | None, **times: float) -> None:
    check_times(**times)
    if ports is not None and ports < 1:
        raise ArgumentError(f"a rank has at least one port, not {ports}")


def _times_text(**times: float) -> str:
    """Return times as text, those of a byte in nanoseconds."""
    return ", ".join(
        f"{name} {1e9 * value:g} ns/B" if name in _OF_A_BYTE else f"{name} {1e6 * value:g} us"
        for name, value in times.items()
    )


DEFAULT = Hockney(alpha=2e-6, beta=4e-11, gamma=5e-11)
"""An ordinary cluster: 2 us a message, 25 GB/s, and folds at 20 GB/s."""
