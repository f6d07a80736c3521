"""A store whose values prove that a rank of this run wrote them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from mpicoll.errors import LaunchError
from mpicoll.machine.background import background, is_done
from mpicoll.machine.waited import comes
from torchcoll.rendezvous.secret import seal, unseal
from torchcoll.rendezvous.store import LONGEST_NAP, Store, store_lost

Connected = TypeVar("Connected")
_REFUSED, _ACKNOWLEDGED = "refused/why", "refused/heard"
_HEARD_WITHIN = 2.0
"""Seconds that a rank which refuses waits for the others to hear of it: rank 0 has the store."""
_LOOKS = 0.1
"""Seconds between two looks at whether another rank has refused."""


class SealedStore(dist.Store):  # type: ignore[name-defined,misc]
    """Another store, through which a group connects: gloo and NCCL read addresses from it.

    Whoever reaches a store of torch can list and overwrite it. What others wrote is refused, on all
    ranks; that they delete or count up cannot be told from a rank's own doing, and ends in an error
    or in a timeout.

    torch keeps the part in C++ only, and calls this one as long as a group may connect: whoever has
    made it keeps it until the group has ended.
    """

    def __init__(self, store: Store, key: bytes) -> None:
        super().__init__()
        self._store, self.key = store, key

    def close(self) -> None:
        """Close the connection to the store, and on rank 0 the store."""
        self._store = None

    def keep_for_ever(self) -> None:
        """Never free it.

        gloo's thread may drop its part in C++ last, which needs the interpreter's lock: while the
        interpreter ends, that thread waits for ever or is ended, by std::terminate.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    # -- what torch calls -------------------------------------------------------------

    def set(self, key: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._store.set(key, seal(self.key, key, data))

    def get(self, key: str) -> bytes:
        """Return a value, once it is there.

        Raises:
            LaunchError: it is of somebody who does not know the key, or another rank has refused
                this launch.
        """
        self.wait([key])
        data = unseal(self.key, key, self._store.get(key))
        if data is None:
            raise LaunchError(
                f"the writer of {key!r} in the store does not know this run's secret: another "
                "process has overwritten it"
            )
        return data

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Return when the keys are there.

        A store of torch serves one call at a time: others must be able to look meanwhile.

        Raises:
            LaunchError: another rank has refused this launch.
            torch.distributed.DistStoreError: they do not come within `timeout`.
        """
        within = timeout or self._store.timeout
        if not self._comes(lambda: self.check(keys), within.total_seconds()):
            raise dist.DistStoreError(f"{', '.join(keys)} did not come within {within}")

    def check(self, keys: list[str]) -> bool:
        return bool(self._store.check(keys))

    def add(self, key: str, amount: int) -> int:
        return int(self._store.add(key, amount))

    def delete_key(self, key: str) -> bool:
        return bool(self._store.delete_key(key))

    def num_keys(self) -> int:
        return int(self._store.num_keys())

    def set_timeout(self, timeout: timedelta) -> None:
        self._store.set_timeout(timeout)

    # -- connecting -------------------------------------------------------------------

    def connect(
        self, connects: Callable[[], Connected], name: str, rank: int, size: int, timeout: float
    ) -> Connected:
        """Return the result of `connects`; raise on every rank where it fails on one.

        gloo waits for a rank that has failed until its own timeout, half an hour, and cannot be
        interrupted. It therefore waits in a separate thread, which such an error leaves behind. Or
        it finds that rank's port open, and knows of nothing: so all ranks count those that have
        connected.

        Args:
            name: of the group, which no other group of this store has.
            rank, size: of this process, and of all processes that connect.
            timeout: seconds for which this rank waits for the others after it has connected.

        Raises:
            LaunchError: another rank could not connect, with its reason; or the store is gone.
            Exception: what `connects` raised on this rank.
        """
        future = background(connects, f"torchcoll connecting {name}")
        try:
            while not is_done(future, _LOOKS):
                self._is_refused()
            if (failed := future.exception()) is None:
                self.wait_for_all(name, size, timeout)
        except BaseException as error:
            self.keep_for_ever()
            if isinstance(error, LaunchError) or not isinstance(error, RuntimeError):
                raise
            raise store_lost(rank, size) from None
        if failed is not None:
            self.keep_for_ever()
            with suppress(LaunchError, RuntimeError):
                self._refuse(rank, size - 1, failed)
        return future.result()

    def wait_for_all(self, name: str, size: int, timeout: float) -> None:
        """Return when `size` ranks have called this.

        Raises:
            LaunchError: another rank has refused this launch, or they have not come within
                `timeout` seconds.
        """
        key = f"connecting/{name}"
        self.add(key, 1)
        if not self._comes(lambda: self.add(key, 0) >= size, timeout):
            come = self.add(key, 0)
            raise LaunchError(f"{come} of {size} ranks have connected in {timeout:g} s")

    def _comes(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Whether something is there within so many seconds, while no rank refuses the launch."""
        return comes(lambda: is_there() or self._is_refused(), seconds, LONGEST_NAP)

    def _refuse(self, rank: int, peers: int, error: BaseException) -> None:
        """Tell the other ranks why this one does not connect, and wait until they have heard."""
        if self.check([_REFUSED]):
            self.add(_ACKNOWLEDGED, 1)
            return
        self.set(_REFUSED, f"rank {rank}: {error}")
        comes(lambda: self.add(_ACKNOWLEDGED, 0) >= peers, _HEARD_WITHIN, LONGEST_NAP)

    def _is_refused(self) -> bool:
        """Return False; raise LaunchError where another rank has refused this launch."""
        if self.check([_REFUSED]):
            why = self.get(_REFUSED).decode(errors="replace")
            self.add(_ACKNOWLEDGED, 1)
            raise LaunchError(f"another rank has refused this launch: {why}")
        return False
