"""The link between two GPUs, from a fake driver."""

from __future__ import annotations

from typing import Any

import pytest
from fake_nvml import FOUR_GPUS, driver, pair

from mpicoll.machine.gpu_links import gpu_link, gpu_links
from mpicoll.machine.links import LinkClass


@pytest.mark.parametrize(
    ("ends", "link"),
    [
        ((0, 1), LinkClass("NVLink x2")),
        ((2, 3), LinkClass("NVLink x2")),
        ((1, 2), LinkClass("PCIe across sockets (SYS)")),
        ((0, 2), LinkClass("PCIe across sockets (SYS)",
                      "no peer access: copies go through host memory")),
        ((1, 1), LinkClass("same GPU")),
    ],
)  # fmt: skip
def test_classes_of_gpus(ends: tuple[int, int], link: LinkClass) -> None:
    assert gpu_link(FOUR_GPUS, *(f"GPU-{number}" for number in ends)) == link


@pytest.mark.parametrize(
    ("level", "word"), [(0, "one board"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"),
                        (50, "SYS"), (60, "level 60")],
)  # fmt: skip
def test_levels_of_pcie(level: int, word: str) -> None:
    assert word in gpu_link(driver({pair(0, 1): level}), "GPU-0", "GPU-1").name


def test_a_switch_joins_all_gpus() -> None:
    nvml = driver(wires={0: ["switch"] * 4, 1: ["switch"] * 3})
    assert gpu_link(nvml, "GPU-0", "GPU-1").name == "NVLink x3 through a switch"


def test_what_the_driver_does_not_tell_is_not_guessed() -> None:
    hidden = gpu_link(FOUR_GPUS, "GPU-0", "0000:07:00.0")
    assert hidden.name == "unknown" and "Not Found" in hidden.detail

    def missing() -> Any:
        raise ImportError("No module named 'pynvml'")

    links = gpu_links(((0, 1), (2,)), 0, ["GPU-0", "GPU-1", "GPU-0"], missing)
    assert links[0, 2] == LinkClass("network")
    assert links[0, 1].name == "unknown" and "pynvml" in links[0, 1].detail
