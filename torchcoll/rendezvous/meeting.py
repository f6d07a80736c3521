"""The first exchange of all ranks, on a store; the error names a rank that is missing or foreign.

Each rank writes a random text. All of these and the ranks' secret make the key of this run, which
nobody else has, and which makes what was written in an earlier run worthless.
"""

from __future__ import annotations

import time
from contextlib import suppress
from secrets import token_hex

import msgspec

from mpicoll.errors import LaunchError
from mpicoll.machine.nodes import host_identity
from mpicoll.machine.waited import comes
from torchcoll.place import Place
from torchcoll.rendezvous.secret import VARIABLE, derive, seal, unseal
from torchcoll.rendezvous.store import LONGEST_NAP, Store, store_lost

_MAX_BYTES = 1 << 16
"""Bytes that a rank may write about itself."""
_REFUSED = "refused"


class Member(msgspec.Struct):
    """A rank as the others need to know it.

    Attributes:
        gpus: the identities of the GPUs that it may take.
        unshared: why its NCCL takes one rank per GPU only; empty where it takes several.
    """

    host: str
    gpus: list[str]
    unshared: str = ""


class _Hello(msgspec.Struct):
    """The first entry of a rank, which anybody can write: nothing is believed of it."""

    size: int
    host: str
    random: str


def exchange_members(
    store: Store, secret: bytes, place: Place, gpus: list[str], timeout: float, unshared: str = ""
) -> tuple[list[Member], bytes]:
    """Return the `Member` of every rank, and the key that only they have.

    Raises:
        LaunchError: a rank is missing after `timeout` seconds, joined twice, has another size, or
            does not know the secret; or another rank gave up.
    """
    meeting = _Meeting(store, place, time.monotonic() + timeout, timeout)
    try:
        return meeting.exchange_members(secret, gpus, unshared)
    except LaunchError:
        with suppress(RuntimeError):
            store.set(_REFUSED, str(place.rank))
            # The store ends with rank 0.
            time.sleep(0.5 if place.rank == 0 and place.size > 1 else 0)
        raise
    except RuntimeError:
        raise store_lost(place.rank, place.size) from None


class _Meeting:
    def __init__(self, store: Store, place: Place, until: float, timeout: float) -> None:
        self.store, self.place, self.until, self.timeout = store, place, until, timeout

    def exchange_members(
        self, secret: bytes, gpus: list[str], unshared: str
    ) -> tuple[list[Member], bytes]:
        rank, ranks = self.place.rank, range(self.place.size)
        host = host_identity()
        hello = msgspec.json.encode(_Hello(self.place.size, host, token_hex(16))).decode()
        if bytes(self.store.compare_set(f"hello/{rank}", "", hello)) != hello.encode():
            raise LaunchError(
                f"rank {rank} joined twice: two processes have the same rank, "
                "or the rendezvous file is left over from an earlier run (remove it)"
            )
        texts = [self._await(f"hello/{peer}") for peer in ranks]
        if texts[rank] != hello.encode():
            raise LaunchError(f"another process has overwritten the entry of rank {rank}")
        hellos = [self._hello(peer, text) for peer, text in enumerate(texts)]
        self._check_refused()
        key = derive(secret, b"\n".join(texts).decode())
        name = "member/{}".format
        entry = msgspec.json.encode(Member(host, gpus, unshared))
        self.store.set(name(rank), seal(key, name(rank), entry))
        members = []
        for peer in ranks:
            data = unseal(key, name(peer), self._await(name(peer)))
            if data is None:
                raise LaunchError(
                    f"rank {peer} on host {hellos[peer].host!a} does not know this run's secret: "
                    "it is another user's process, left over from an earlier run, or has another "
                    f"{VARIABLE} or home folder than rank {rank}"
                )
            members.append(msgspec.json.decode(data, type=Member))
        return members, key

    def _hello(self, rank: int, text: bytes) -> _Hello:
        try:
            hello = msgspec.json.decode(text, type=_Hello)
        except (ValueError, RecursionError):
            raise LaunchError(f"rank {rank} is no rank of torchcoll") from None
        if hello.size != self.place.size:
            sizes_by_rank = sorted([(self.place.rank, self.place.size), (rank, hello.size)])
            ranks, sizes = map(list, zip(*sizes_by_rank, strict=True))
            raise LaunchError(f"ranks {ranks} were given sizes {sizes}: they must agree")
        return hello

    def _await(self, key: str) -> bytes:
        """Return a value as soon as it is there."""
        seconds = self.until - time.monotonic()
        if not comes(
            lambda: self.store.check([key]) or self._check_refused(), seconds, LONGEST_NAP
        ):
            raise LaunchError(self._missing(key.partition("/")[0]))
        value = bytes(self.store.get(key))
        if len(value) > _MAX_BYTES:
            raise LaunchError(
                f"{key!r} in the store has {len(value)} bytes, of {_MAX_BYTES} at most"
            )
        return value

    def _check_refused(self) -> bool:
        if self.store.check([_REFUSED]):
            raise LaunchError(
                f"rank {self.place.rank} of {self.place.size} ends because another rank "
                "refused this launch: see its message"
            )
        return False

    def _missing(self, kind: str) -> str:
        """Return a message that names the missing ranks."""
        place = self.place
        missing = [str(r) for r in range(place.size) if not self.store.check([f"{kind}/{r}"])]
        return (
            f"rank {place.rank} waited {self.timeout:g} s for rank {', '.join(missing)} of "
            f"{place.size}: start exactly {place.size} processes, each with a rank of its own"
        )
