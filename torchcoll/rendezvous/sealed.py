"""A store whose values prove that a rank of this run wrote them."""

from __future__ import annotations

import ctypes
from datetime import timedelta

import torch.distributed as dist

from mpicoll.errors import LaunchError
from torchcoll.rendezvous.secret import seal, unseal
from torchcoll.rendezvous.store import Store


class SealedStore(dist.Store):  # type: ignore[name-defined,misc]
    """Another store, through which a group connects: gloo and NCCL read addresses from it.

    Whoever reaches a store of torch can list and overwrite it. What others wrote is refused; that
    they delete or count up cannot be told from a rank's own doing, and ends in an error or in a
    timeout.
    """

    def __init__(self, store: Store, key: bytes) -> None:
        super().__init__()
        self._store, self.key = store, key
        # torch keeps the part in C++ only, and calls this one as long as the process lives. gloo's
        # thread may drop it last, which needs the interpreter's lock: while the interpreter ends,
        # that thread waits for ever or is ended, by std::terminate. So it is never freed.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def close(self) -> None:
        """Close the connection to the store, and on rank 0 the store."""
        self._store = None

    def set(self, key: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._store.set(key, seal(self.key, key, data))

    def get(self, key: str) -> bytes:
        """Return a value.

        Raises:
            LaunchError: it is of somebody who does not know the key.
        """
        data = unseal(self.key, key, self._store.get(key))
        if data is None:
            raise LaunchError(
                f"the writer of {key!r} in the store does not know this run's secret: another "
                "process has overwritten it"
            )
        return data

    def wait(self, keys: list[str], *timeout: timedelta) -> None:
        self._store.wait(keys, *timeout)

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
