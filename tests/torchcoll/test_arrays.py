"""The GPU of a tensor, and the stream that a graph captures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from mpicoll.errors import ArgumentError

pytest.importorskip("torch")


@pytest.mark.parametrize("current", [0, 1])
def test_whether_a_graph_is_captured_is_asked_of_the_streams_own_gpu(
    current: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from torchcoll.arrays import TorchStream

    now = [current]

    @contextmanager
    def use(stream: Any) -> Iterator[None]:
        now.append(stream.device_index)
        yield
        now.pop()

    monkeypatch.setattr(torch.cuda, "stream", use)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: now[-1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now[-1] == 1)
    stream: Any = SimpleNamespace(device_index=1)
    assert TorchStream(stream).is_capturing()
    assert now == [current]


@pytest.mark.parametrize(("used", "taken"), [(True, 2), (False, 1)])
def test_tensors_lie_on_the_gpu_that_a_thread_uses_already(
    used: bool, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from torchcoll.arrays import TorchArrays

    now = [2]
    monkeypatch.setattr("mpicoll.gpu.current.uses_gpu", lambda: used)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", now.append)
    monkeypatch.setattr(torch, "empty", lambda *_shape, **_options: now[-1])
    assert TorchArrays().on_gpu(4) == taken


def test_a_sparse_tensor_is_refused_by_its_layout() -> None:
    import torch

    from torchcoll.arrays import HostTensors

    with pytest.raises(ArgumentError, match=r"the layout torch.sparse_coo: give x.to_dense\(\)"):
        HostTensors().flat(torch.eye(3).to_sparse())
