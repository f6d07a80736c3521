"""Files of ended runs: found where no process uses them, and removed where they are ours."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mpicoll.doctor import leftovers
from mpicoll.doctor.__main__ import main
from mpicoll.doctor.probes import PROBES


@pytest.fixture
def shm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in memory, in place of /dev/shm, with one file of each kind that nobody uses."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        monkeypatch.setattr(leftovers, "SHM", name)
        folder = Path(name)
        for file_name in ("mpich_shm_1a2b_0", "mpicoll-0123", "mine", "sem.mpich_shm"):
            (folder / file_name).write_bytes(bytes(8192))
        yield folder


FREE = ["mpich_shm_1a2b_0", "mpicoll-0123"]


def names(items: list[leftovers.Leftover]) -> list[str]:
    return [item.path.name for item in items]


def test_files_that_nobody_uses_are_found_and_removed(shm: Path) -> None:
    assert names(leftovers.find()) == FREE
    assert names(leftovers.remove_own()) == FREE
    assert sorted(file.name for file in shm.iterdir()) == ["mine", "sem.mpich_shm"]
    assert not leftovers.remove_own()


USES = """
import mmap, os, sys
handle = os.open(sys.argv[1], os.O_RDWR)
if sys.argv[2] == "mapped":
    memory = mmap.mmap(handle, 8192)
    os.close(handle)
print("in use", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_files_in_use_stay(shm: Path, how: str) -> None:
    path = shm / "mpich_shm_1a2b_0"
    with subprocess.Popen(
        [sys.executable, "-c", USES, str(path), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"in use\n"
        assert names(leftovers.find()) == ["mpicoll-0123"]
        assert names(leftovers.remove_own()) == ["mpicoll-0123"]
        assert path.exists()
        process.communicate()
    assert names(leftovers.remove_own()) == [path.name]


def test_a_file_that_this_process_maps_stays(shm: Path) -> None:
    with open(shm / "mpicoll-0123", "r+b") as file:
        memory = mmap.mmap(file.fileno(), 8192)
    assert names(leftovers.find()) == ["mpich_shm_1a2b_0"]
    memory.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_files_of_other_users_stay(shm: Path) -> None:
    """Root sees them; and removes its own alone."""
    os.chown(shm / "mpicoll-0123", 54321, -1)
    assert [item.owner for item in leftovers.find()] == [0, 54321]
    assert names(leftovers.remove_own()) == ["mpich_shm_1a2b_0"]
    assert "1 of user 54321" in leftovers.summary(leftovers.find())


def test_links_and_pipes_are_not_followed(shm: Path) -> None:
    (shm / "mpich_shm_link_0").symlink_to(shm / "mine")
    os.mkfifo(shm / "mpich_shm_pipe_0")
    (shm / "mpich_shm_folder_0").mkdir()
    assert names(leftovers.find()) == FREE
    assert names(leftovers.remove_own()) == FREE
    assert (shm / "mine").exists()


def test_a_name_that_now_is_another_file_stays(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may begin between the look and the removal."""
    is_leased = leftovers._is_leased

    def begin(handle: int) -> bool:
        for name in FREE:
            (shm / name).unlink(missing_ok=True)
            (shm / name).write_text("new")
        return is_leased(handle)

    monkeypatch.setattr(leftovers, "_is_leased", begin)
    assert not leftovers.remove_own()
    assert {path.read_text() for path in map(shm.joinpath, FREE)} == {"new"}


@pytest.mark.usefixtures("shm")
def test_the_page_lists_them_and_the_option_removes_them() -> None:
    assert "2 files of ended runs" in PROBES["left by runs"]()
    for message in ("removed 2 files of ended runs", "nothing to remove"):
        result = CliRunner().invoke(main, ["--clean"])
        assert (result.exit_code, result.output[: len(message)]) == (0, message)
    assert PROBES["left by runs"]().startswith("no file")


def test_other_options_are_refused() -> None:
    result = CliRunner().invoke(main, ["--remove"])
    assert result.exit_code == 2
