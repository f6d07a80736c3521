"""Serve the collectives of one process group of one node by a channel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from mpicoll.c_extension import _compiled
from mpicoll.engine.channels import ALLGATHER, GroupChannel, forms_of, open_units
from mpicoll.errors import Unavailable
from mpicoll.flight.groups import GroupFlight, join_known
from mpicoll.machine.nodes import is_oversubscribed
from mpicoll.text.encoding import decode_alike, encode_for
from torchcoll.arrays import TorchArrays
from torchcoll.backend.compiling import uncompiled
from torchcoll.backend.opening import deadline_of, exchange_values, name_of

if TYPE_CHECKING:
    from mpicoll.calls.recording import Recording
    from torchcoll.backend.spanning import Member

_wait = dist.Work.wait
"""torch's own."""


class OneNode(GroupChannel):
    """Our collectives on one process group of one node, opened by `open_on_node`.

    Attributes:
        channel: also the queue of calls that do not block.
    """

    free = GroupChannel.close

    @cached_property
    def recording(self) -> Recording:
        from mpicoll.calls.recording import Recording  # rarely needed

        return Recording(self.flight)

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


def share_node(members: Sequence[Member]) -> bool:
    """Whether the ranks of a group may share memory."""
    return all(member.may_share and member.host == members[0].host for member in members)


def join_flight(group: Any) -> GroupFlight | None:
    """Return the recorder of a `Group` whose ranks share a node, None where nothing is recorded."""
    members = group.members
    flight = join_known(
        group.rank(), [member.standing for member in members],
        [(member.host, member.process) for member in members], members[0].token,
        writers=_compiled, name=name_of(group),
    )  # fmt: skip
    if flight is None:
        return None
    timed_wait = flight.recorder.ring.timed(_wait)

    @uncompiled  # torch's compiler takes no function of C for a method
    def wait(work: dist.Work, *arguments: Any, **named: Any) -> Any:
        """Wait for a message of gloo's, and add up the time."""
        return timed_wait(work, *arguments, **named)

    dist.Work.wait = wait  # type: ignore[method-assign, assignment]
    return flight


def open_on_node(group: Any, seconds: float) -> OneNode | None:
    """Return the collectives of a `Group`, None where its ranks share no memory; collective.

    Its arguments and errors are those of `torchcoll.backend.opening.open_over_gloo`.
    """
    rank, size, members, rounds = group.rank(), group.size(), group.members, count()
    if not share_node(members):
        return None

    def exchange(item: Any, kind: Any = Any) -> list[Any]:
        name, data = f"channel/{next(rounds)}", encode_for(kind, item)
        return decode_alike(exchange_values(group.store, name, rank, size, data, seconds), kind)

    try:
        segment, units = open_units(exchange, rank, range(size))
    except Unavailable:
        return None
    forms = forms_of(TorchArrays())
    assert forms is not None  # as it may share memory
    return OneNode(
        forms, rank, units, [member.process for member in members], deadline_of(group),
        group.flight, shares_cores=is_oversubscribed([member.cores for member in members]),
        keep=segment,
    )  # fmt: skip
