"""Serve the collectives of one process group of one node by a channel."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from mpicoll.c_extension import _compiled
from mpicoll.calls.channel_calls import forms_of
from mpicoll.calls.recording import Recording
from mpicoll.engine.channels import ALLGATHER, Forms, GroupChannel, open_units
from mpicoll.errors import Unavailable
from mpicoll.flight.groups import join
from mpicoll.machine.nodes import Cores, host_identity, is_oversubscribed, own_cores
from mpicoll.memory.files import is_switched_off
from torchcoll.arrays import TorchArrays

Tensor = torch.Tensor


class _Member(NamedTuple):
    """What a rank tells the others of itself.

    Attributes:
        may: it can use a channel.
    """

    may: bool
    host: str
    process: int
    cores: Cores


class OneNode(GroupChannel):
    """Our collectives on one process group of one node, opened by `open_channel`.

    Args:
        units, processes, shares_cores, keep: as `GroupChannel` takes them.

    Attributes:
        channel: also the queue of calls that do not block.
    """

    def __init__(
        self, forms: Forms, rank: int, units: Sequence[int], processes: Sequence[int],
        deadline: float, flight: Any, *, shares_cores: bool, keep: object,
    ) -> None:  # fmt: skip
        super().__init__(
            forms, rank, units, processes, deadline, flight, shares_cores=shares_cores,
            keep=keep,
        )  # fmt: skip
        self.recording = Recording(flight)
        self.free = self.close

    @property
    def deadline(self) -> float:
        """Seconds for which a call waits for another rank."""
        seconds: float = self.channel.deadline
        return seconds

    @deadline.setter
    def deadline(self, seconds: float) -> None:
        self.channel.deadline = seconds

    def agree(self, digest: int) -> bool:
        """Whether all ranks give the same number of 64 bits; collective."""
        local = digest.to_bytes(8, "little", signed=True)
        items = self.channel.exchange(ALLGATHER, 0, local)
        return all(item in (None, local) for item in items)

    def missing(self) -> tuple[int, ...]:
        """Return the ranks that this one waits for."""
        rank = self.channel.waits_for
        return () if rank < 0 else (rank,)


def open_channel(
    exchange: Callable[..., list[Any]], rank: int, size: int, name: str, deadline: float
) -> OneNode | None:
    """Return the collectives of a group, None where its ranks share no memory; collective.

    Args:
        exchange: returns every rank's item of a type, in rank order.
        deadline: of waits, in seconds.
    """
    forms = forms_of(TorchArrays())
    may = not is_switched_off() and forms is not None and 1 < size <= _compiled.MOST_MEMBERS
    local = _Member(may, host_identity(), os.getpid(), own_cores())
    members: list[_Member] = exchange(local, _Member)
    if forms is None or not all(member.may and member.host == local.host for member in members):
        return None
    try:
        segment, units = open_units(exchange, rank, range(size))
    except Unavailable:
        return None
    flight = join(exchange, rank, size, writers=_compiled, name=name)
    return OneNode(
        forms, rank, units, [member.process for member in members], deadline, flight,
        shares_cores=is_oversubscribed([member.cores for member in members]), keep=segment,
    )  # fmt: skip
