"""The GPU of a rank, and the link between two: NVLink, one board, switches, sockets.

The driver's library is an argument: `load` finds the real one, tests give a fake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mpicoll.backend import Nodes
from mpicoll.machine.links import NETWORK, LinkClass, LinkClasses

Nvml = Any
"""The module ``pynvml`` of the package nvidia-ml-py, initialised."""

SAME_GPU = "same GPU"
_UNKNOWN = "unknown"
_LEVELS = {
    0: "PCIe on one board",
    10: "PCIe through one switch (PIX)",
    20: "PCIe through several switches (PXB)",
    30: "PCIe through a host bridge (PHB)",
    40: "PCIe across host bridges (NODE)",
    50: "PCIe across sockets (SYS)",
}
# pynvml's own NVML_P2P_CAPS_INDEX_READ is a tuple by a slip of the comma.
_READ, _PERMITTED, _TO_SWITCH = 0, 0, 2


def load() -> Nvml:
    """Return the driver's library, initialised.

    Raises:
        Exception: the package or the driver is missing.
    """
    import pynvml

    pynvml.nvmlInit()
    return pynvml


class OwnGpu(NamedTuple):
    """The GPU of a rank.

    Attributes:
        number: as its process counts them.
        identity: the driver's UUID, or its bus address.
        free: the bytes that are free, for all processes that use it.
    """

    number: int
    identity: str
    free: int


def own_gpu(backends: Iterable[str]) -> OwnGpu:
    """Return this rank's GPU, as it is now."""
    if "torch" in backends:
        from torch import cuda

        number = cuda.current_device()
        identity = f"GPU-{cuda.get_device_properties(number).uuid}"
        return OwnGpu(number, identity, cuda.mem_get_info()[0])
    from cupy.cuda import runtime

    number = runtime.getDevice()
    return OwnGpu(number, runtime.deviceGetPCIBusId(number), runtime.memGetInfo()[0])


def gpu_links(
    nodes: Nodes, rank: int, gpus: list[str], driver: Callable[[], Nvml] = load
) -> LinkClasses:
    """Return the links from the GPU of a rank to those of the higher ranks.

    Args:
        gpus: of every rank, as ``GPU-`` and a UUID or as a PCI bus address.
    """
    own_node = next(node for node in nodes if rank in node)
    peers = range(rank + 1, len(gpus))
    links = {(rank, peer): LinkClass(NETWORK) for peer in peers if peer not in own_node}
    try:
        nvml = driver()
    except Exception as error:  # the driver's library raises exceptions of its own
        missing = LinkClass(_UNKNOWN, f"no NVML: {type(error).__name__}: {error}")
        return links | {(rank, peer): missing for peer in peers if peer in own_node}
    return links | {
        (rank, peer): gpu_link(nvml, gpus[rank], gpus[peer]) for peer in peers if peer in own_node
    }


def gpu_link(nvml: Nvml, gpu: str, peer: str) -> LinkClass:
    """Return the link between two GPUs of one machine."""
    if gpu == peer:
        return LinkClass(SAME_GPU)
    try:
        pair = _handle(nvml, gpu), _handle(nvml, peer)
        access = nvml.nvmlDeviceGetP2PStatus(*pair, _READ) == _PERMITTED
        detail = "" if access else "no peer access: copies go through host memory"
        return LinkClass(_nvlink(nvml, *pair) or _pcie(nvml, *pair), detail)
    except nvml.NVMLError as error:
        return LinkClass(_UNKNOWN, f"NVML: {error}")


def _handle(nvml: Nvml, gpu: str) -> Any:
    if gpu.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(gpu)
    return nvml.nvmlDeviceGetHandleByPciBusId(gpu)


def _pcie(nvml: Nvml, gpu: Any, peer: Any) -> str:
    level = int(nvml.nvmlDeviceGetTopologyCommonAncestor(gpu, peer))
    return _LEVELS.get(level, f"PCIe at level {level}")


def _nvlink(nvml: Nvml, gpu: Any, peer: Any) -> str:
    """Return the NVLinks from one GPU to the other, empty for none."""
    ends = _ends(nvml, gpu), _ends(nvml, peer)
    direct = ends[0].count(_address(nvml.nvmlDeviceGetPciInfo(peer).busId))
    if direct:
        return f"NVLink x{direct}"
    # Through switches every GPU of the fabric is reached by all links.
    switched = min(end.count("switch") for end in ends)
    return f"NVLink x{switched} through a switch" if switched else ""


def _ends(nvml: Nvml, gpu: Any) -> list[str]:
    """Return where each active NVLink of a GPU ends: at a bus address, or at a switch."""
    ends = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(gpu, link) != nvml.NVML_FEATURE_ENABLED:
                continue
            is_switch = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link) == _TO_SWITCH
            remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link).busId
        except nvml.NVMLError:
            # A GPU without this link, or without any, says so by an error.
            continue
        ends.append("switch" if is_switch else _address(remote))
    return ends


def _address(bus: bytes | str) -> str:
    """Return a PCI bus address in one spelling: domains are written with 4 or 8 digits.

    >>> _address(b"00000000:3B:00.0"), _address("0000:3b:00.0")
    ('0:3b:00.0', '0:3b:00.0')
    """
    text = bus.decode() if isinstance(bus, bytes) else bus
    domain, _, tail = text.lower().partition(":")
    return f"{int(domain, 16):x}:{tail}"
