"""The memory that is left: what the control groups of containers and jobs leave of it."""

from __future__ import annotations

import resource
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from mpicoll.machine.memory import (
    available_memory,
    container_memory,
    free_in_process,
    too_small_to_start,
)

GIB = 1 << 30
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")


def group(folder: Path, names: tuple[str, str, str], limit: str, used: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"file 5\n{names[2]} {cached}\n")


def free_bytes(tmp_path: Path, groups: str) -> list[int]:
    (tmp_path / "own").write_text(groups)
    return container_memory(str(tmp_path / "own"), str(tmp_path))


def test_every_group_around_the_process_counts(tmp_path: Path) -> None:
    group(tmp_path / "job/step", V2, str(4 * GIB), 3 * GIB, GIB // 2)
    group(tmp_path / "job", V2, str(2 * GIB), 2 * GIB, GIB // 4)
    group(tmp_path / "other", V2, "0", 0, 0)
    assert free_bytes(tmp_path, "0::/job/step\n") == [3 * GIB // 2, GIB // 4]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("inside", [True, False], ids=["mounted whole", "as in a container"])
def test_a_container_sees_its_own_group_as_the_root(
    version: int, inside: bool, tmp_path: Path
) -> None:
    names = {1: V1, 2: V2}[version]
    mounted = tmp_path / "memory" if version == 1 else tmp_path
    group(mounted, names, "9000", 3000, 500)
    if inside:
        group(mounted / "job", names, "max", 100, 0)
        group(mounted / "job" / "step", names, "1000", 800, 100)
    groups = {1: "5:cpu,memory:/job/step\n3:cpuset:/\n", 2: "0::/job/step\n"}[version]
    assert free_bytes(tmp_path, groups) == ([300, 6500] if inside else [6500])


def test_version_1_has_a_folder_for_memory(tmp_path: Path) -> None:
    """A container may see its own group as the root of all, under another path."""
    group(tmp_path / "memory", V1, str(GIB), GIB // 2, 0)
    assert free_bytes(tmp_path, "5:cpu,cpuacct:/a\n4:memory:/docker/0123\n0::/\n") == [GIB // 2]


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", "", "broken"])
def test_no_limit(tmp_path: Path, limit: str) -> None:
    group(tmp_path, V2, limit, 0, 0)
    group(tmp_path / "memory", V1, limit, 0, 0)
    assert free_bytes(tmp_path, "4:memory:/\n0::/\n") == []


def test_a_limit_that_was_lowered_leaves_nothing(tmp_path: Path) -> None:
    group(tmp_path, V2, str(GIB), 2 * GIB, 0)
    assert free_bytes(tmp_path, "0::/\n") == [0]


def test_systems_without_groups(tmp_path: Path) -> None:
    assert container_memory(str(tmp_path / "none"), str(tmp_path)) == []


def test_never_more_than_the_machine_has() -> None:
    assert 0 < available_memory() <= psutil.virtual_memory().total


def test_limits_of_the_process_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert free_in_process() is None
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 50, 1 << 50))
    assert 0 < (free_in_process() or 0) < 1 << 50
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    assert free_in_process() == 0


def test_a_small_shm_is_named_before_mpi_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    status = SimpleNamespace(f_blocks=1 << 10, f_frsize=4 << 10)
    monkeypatch.setattr("os.statvfs", lambda _path: status)
    assert too_small_to_start(2) is None
    message = too_small_to_start(8)
    assert message is not None
    assert "/dev/shm has 4M" in message
    assert "--shm-size=1g" in message
    assert "size=12g" in str(too_small_to_start(2000))
