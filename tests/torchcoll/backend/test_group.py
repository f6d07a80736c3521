"""The process group: the arguments of its methods."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")


def test_arguments_of_groups_go_by_their_names() -> None:
    from torch.distributed import distributed_c10d as c10d

    from torchcoll.backend.group import _options

    assert _options(c10d.BroadcastOptions, (), {"root": 1}).rootRank == 1
    assert _options(c10d.ReduceOptions, (2, c10d.ReduceOp.MAX), {}).rootRank == 2
    with pytest.raises(TypeError, match=r"async_op is no argument .* op, root, timeout"):
        _options(c10d.BroadcastOptions, (), {"async_op": True})
