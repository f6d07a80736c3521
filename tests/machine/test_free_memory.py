"""The memory that is left: of the machine, of cgroups of both versions, and by limits."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from mpicoll.machine.free_memory import free_in_cgroups, free_in_process, free_on_node

FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def cgroup(folder: Path, version: int, most: str, used: int, cache: int) -> None:
    """Write the files of a cgroup."""
    folder.mkdir(parents=True, exist_ok=True)
    limit, usage, name = FILES[version]
    (folder / limit).write_text(f"{most}\n")
    (folder / usage).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{name} {cache}\n")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("inside", [True, False], ids=["mounted whole", "as in a container"])
def test_every_cgroup_that_contains_this_one_counts(
    version: int, inside: bool, tmp_path: Path
) -> None:
    own, root = tmp_path / "own", tmp_path / "root"
    own.write_text({1: "5:cpu,memory:/job/step\n3:cpuset:/\n", 2: "0::/job/step\n"}[version])
    mounted = root / "memory" if version == 1 else root
    cgroup(mounted, version, "9000", 3000, 500)
    if inside:
        cgroup(mounted / "job", version, "max", 100, 0)
        cgroup(mounted / "job" / "step", version, "1000", 800, 100)
    assert [*free_in_cgroups(root, own)] == [300, 6500] if inside else [6500]


def test_without_cgroups_only_the_machine_counts(tmp_path: Path) -> None:
    assert [*free_in_cgroups(tmp_path, tmp_path / "none")] == []
    assert 0 < free_on_node() < 1 << 50


def test_limits_of_the_process_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert free_in_process() is None
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 50, 1 << 50))
    assert 0 < (free_in_process() or 0) < 1 << 50
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    assert free_in_process() == 0
