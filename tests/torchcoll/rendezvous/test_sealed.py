"""The store of a run, in which every value carries the seal of a rank."""

from __future__ import annotations

import pytest
from joining import KEY

pytest.importorskip("torch")
import torch.distributed as dist

from torchcoll import LaunchError
from torchcoll.rendezvous.sealed import SealedStore


def test_ranks_that_never_connect_are_not_waited_for() -> None:
    store = SealedStore(dist.HashStore(), KEY)
    with pytest.raises(LaunchError, match=r"^1 of 3 ranks have connected in 0\.1 s$"):
        store.wait_for_all("world", 3, 0.1)
    store.wait_for_all("world", 2, 0.1)


def test_an_overwritten_value_is_refused() -> None:
    plain = dist.HashStore()
    store = SealedStore(plain, KEY)
    store.set("address", "here")
    assert store.get("address") == b"here" and store.check(["address"])
    plain.set("address", "there")
    with pytest.raises(LaunchError, match=r"writer of 'address'.*does not know this run's secret"):
        store.get("address")
    plain.set("address", plain.get("address"))
    store.set("other", "there")
    plain.set("address", plain.get("other"))
    with pytest.raises(LaunchError, match="does not know"):
        store.get("address")
