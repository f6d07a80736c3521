"""The backend and the GPU that each rank takes."""

from __future__ import annotations

import warnings
from functools import partial
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
from torchcoll import LaunchError, devices
from torchcoll.devices import choose_backend, own_gpus
from torchcoll.rendezvous import Member


def hosts(*gpus: list[str]) -> list[Member]:
    return [Member("here", each, "too old") for each in gpus]


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after each test which GPU it has made this process's."""
    monkeypatch.setattr(devices, "_chosen", None)


@pytest.mark.parametrize(
    ("everyone", "backend", "chosen"),
    [
        (hosts([], []), None, "gloo"),
        (hosts(["a", "b"], ["a", "b"]), None, "cpu:gloo,cuda:nccl"),
        (hosts(["a"], ["b"]), None, "cpu:gloo,cuda:nccl"),
        (hosts(["a", "b"], ["a", "b"]), "gloo", "gloo"),
    ],
)
def test_backend(
    everyone: list[Member], backend: str | None, chosen: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    import torch

    taken: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(devices, "_seen_gpus", lambda: everyone[1].gpus)
    assert choose_backend(everyone, 1, backend) == chosen
    assert taken == [len(each) - 1 for each in [everyone[1].gpus] if each]


@pytest.mark.parametrize(
    ("seen", "taken"),
    [
        (["ab", "ba"], ["a", "b"]),
        (["abcd", "bcda", "cdab", "dabc"], ["a", "b", "c", "d"]),
        (["ab", "a"], ["b", "a"]),
        (["a", "ab", "ab"], ["a", "b", "a"]),
        (["ab", "", "ab", "b"], ["a", "", "a", "b"]),
    ],
)
def test_ranks_that_see_other_gpus_take_one_each(
    seen: list[str], taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA_VISIBLE_DEVICES may differ in order and in number."""
    import torch

    found: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", found.append)
    for rank, gpus in enumerate(seen):
        monkeypatch.setattr(devices, "_seen_gpus", partial(list, gpus))
        choose_backend(hosts(*map(list, seen)), rank, "gloo")
        assert [gpus[each] for each in found] == [*taken[rank]]
        assert not found or devices.turn(5) == found[0]
        found.clear()
        devices._chosen = None
    assert devices.turn(5) == 5


def test_instances_of_a_gpu_have_its_address() -> None:
    """Two of them are one for NCCL, whatever their UUIDs."""
    whole = {"pci_domain_id": 0, "pci_bus_id": 0xB4, "pci_device_id": 0}
    first, second = (SimpleNamespace(uuid=each, **whole) for each in "ab")
    assert devices._identity(first) == devices._identity(second) == "0:b4:0"
    assert devices._identity(SimpleNamespace(uuid="c")) == "c"
    assert devices._identity(SimpleNamespace(uuid="d", **dict.fromkeys(whole, 0))) == "d"


@pytest.mark.parametrize(("used", "gpus", "taken"), [(True, ["c"], 2), (False, ["a", "b", "c"], 1)])
def test_a_gpu_that_a_rank_uses_already_stays_its_own(
    used: bool, gpus: list[str], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    now = [2]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: now[-1])
    monkeypatch.setattr(torch.cuda, "set_device", now.append)
    monkeypatch.setattr(devices, "uses_gpu", lambda: used)
    monkeypatch.setattr(devices, "_seen_gpus", lambda: ["a", "b", "c"])
    assert own_gpus() == gpus
    chosen = choose_backend(hosts(["a", "b", "c"], gpus), 1, None)
    assert (chosen, now[-1]) == ("cpu:gloo,cuda:nccl", taken)


def test_shared_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(devices, "_seen_gpus", lambda: ["a"])
    with pytest.warns(UserWarning, match=r"ranks \[0, 1\] share one GPU: gloo is used. too old"):
        assert choose_backend(hosts(["a"], ["a"]), 0, None) == "gloo"
    with pytest.raises(LaunchError, match=r"ranks \[0, 1\] share one GPU: use gloo. too old"):
        choose_backend(hosts(["a"], ["a"]), 0, "nccl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_backend(hosts(["a"], ["a"]), 0, "gloo") == "gloo"


def test_nccl_for_ranks_that_may_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(devices, "_seen_gpus", lambda: ["a"])
    alike = [Member("here", ["a"]), Member("here", ["a"])]
    assert choose_backend(alike, 0, None) == "cpu:gloo,cuda:nccl"
    with pytest.warns(UserWarning, match="too old"):  # some rank has another NCCL
        assert choose_backend([alike[0], *hosts(["a"])], 0, None) == "gloo"


def test_no_gpu_for_nccl() -> None:
    with pytest.raises(LaunchError, match="see no GPU"):
        choose_backend(hosts([], []), 0, "nccl")
