"""The link between two ranks of the host, from the system's files."""

from __future__ import annotations

from pathlib import Path

from mpicoll.machine.links import Core, host_links, physical_cores


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
