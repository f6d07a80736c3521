"""What joins two ranks, from the system's files and from a fake driver of GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FOUR_GPUS, driver, pair

from mpicoll.machine.gpu_links import gpu_link, gpu_links
from mpicoll.machine.links import Core, LinkClass, host_links, physical_cores


def topology(folder: Path, cores: dict[int, tuple[int, int]]) -> Path:
    for cpu, (socket, core) in cores.items():
        here = folder / f"cpu{cpu}" / "topology"
        here.mkdir(parents=True)
        (here / "physical_package_id").write_text(f"{socket}\n")
        (here / "core_id").write_text(f"{core}\n")
    return folder


def test_cores_are_read_from_the_system(tmp_path: Path) -> None:
    system = topology(tmp_path, {0: (0, 0), 1: (0, 0), 2: (1, 0), 3: (-1, 0)})
    assert physical_cores([0, 1], system) == [Core(0, 0)]
    assert physical_cores([1, 2], system) == [Core(0, 0), Core(1, 0)]
    assert physical_cores([3], system) == physical_cores([7], system) == []


def test_classes_of_host_pairs() -> None:
    bound = [[Core(0, 0)], [Core(0, 0)], [Core(0, 1)], [Core(1, 0)], [Core(0, 0), Core(1, 0)]]
    links = host_links(((0, 1, 2, 3, 4), (5,)), [*bound, [Core(0, 0)]])
    names = {pair: link.name for pair, link in links.items()}
    assert len(names) == 15
    assert names[0, 1] == "same core"
    assert names[0, 2] == "same socket"
    assert names[2, 3] == "across sockets"
    assert names[0, 4] == "same node"
    assert {names[rank, 5] for rank in range(5)} == {"network"}


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
