"""The meeting of ranks before a group is opened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torch")


def test_a_rank_that_does_not_come_is_named_before_mpi_waits_for_it() -> None:
    """And whoever has given up is not taken to be there."""
    import torch.distributed as dist

    from mpicoll.errors import RankLost
    from torchcoll.backend.opening import exchange_values

    store = dist.HashStore()
    for rank, other in ((0, 1), (1, 0)):
        with pytest.raises(RankLost, match=f"rank {other} did not come .* timeout of 0.05 s"):
            exchange_values(store, "a", rank, 2, "", 0.05)
    store.set("torchcoll/a/1", "")
    exchange_values(store, "a", 0, 2, "", 5)


def test_threads_of_two_ranks_open_groups_in_any_order() -> None:
    """Each rank has one client of the store, for all its threads."""
    import torch.distributed as dist

    from torchcoll.backend.opening import exchange_values

    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    clients = [dist.TCPStore("127.0.0.1", own.port, wait_for_workers=False) for _ in range(2)]

    def come(rank: int, group: str) -> None:
        exchange_values(dist.PrefixStore(group, clients[rank]), "c", rank, 2, "", 60)

    with ThreadPoolExecutor(4) as threads:
        begun = [threads.submit(come, rank, group) for rank, group in ((0, "a"), (1, "b"))]
        own.wait(["a/torchcoll/c/0", "b/torchcoll/c/1"])
        begun += [threads.submit(come, rank, group) for rank, group in ((0, "b"), (1, "a"))]
        for each in begun:
            each.result()
