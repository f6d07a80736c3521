"""A fake of NVIDIA's driver library: GPUs are numbers, their links are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


def driver(
    levels: dict[frozenset[int], int] | None = None,
    wires: dict[int, list[int | str]] | None = None,
    closed: tuple[frozenset[int], ...] = (),
) -> Any:
    """Return a fake of pynvml whose wires lead to GPUs, to a "switch", or are "down"."""
    levels, wires = levels or {}, wires or {}

    def wire(gpu: int, link: int) -> int | str:
        try:
            return wires[gpu][link]
        except (KeyError, IndexError):
            raise NVMLError("Not Supported") from None

    def handle(uuid: str) -> int:
        if not uuid.startswith("GPU-"):
            raise NVMLError("Not Found")
        return int(uuid[4:])

    return SimpleNamespace(
        NVMLError=NVMLError, NVML_NVLINK_MAX_LINKS=4, NVML_FEATURE_ENABLED=1,
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetHandleByPciBusId=handle,
        nvmlDeviceGetP2PStatus=lambda a, b, _: 1 if frozenset((a, b)) in closed else 0,
        nvmlDeviceGetTopologyCommonAncestor=lambda a, b: levels[frozenset((a, b))],
        nvmlDeviceGetPciInfo=lambda gpu: SimpleNamespace(busId=f"00000000:{gpu}:00"),
        nvmlDeviceGetNvLinkState=lambda gpu, link: int(wire(gpu, link) != "down"),
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda g, link: 2 if wire(g, link) == "switch" else 0,
        nvmlDeviceGetNvLinkRemotePciInfo=lambda gpu, link: SimpleNamespace(
            busId=b"0:ff:00" if wire(gpu, link) == "switch" else f"0:{wire(gpu, link)}:00"
        ),
    )  # fmt: skip


def pair(low: int, high: int) -> frozenset[int]:
    return frozenset((low, high))


# Two GPUs on each socket, joined by NVLink; nothing but PCIe and the sockets' bus between.
FOUR_GPUS = driver(
    levels={pair(a, b): 50 for a in range(4) for b in range(a)},
    wires={0: [1, 1, "down"], 1: [0, 0], 2: [3, 3], 3: [2, 2]},
    closed=(pair(0, 2),),
)
