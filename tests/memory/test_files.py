"""Memory that ranks share: reserved before it is used, refused to all alike, and never left."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from threading import current_thread

import numpy as np
import pytest
from launcher import ranks

from mpicoll import Collectives, Unavailable
from mpicoll.lowering import windows
from mpicoll.machine import memory
from mpicoll.memory import files, slots

pytestmark = [pytest.mark.ranks(2, 3), pytest.mark.threads_only]
LARGE = 1 << 20
"""Elements that do not fit into the first segment."""


def mapped(c: Collectives) -> int:
    """Return how many segments this rank maps."""
    assert c.transport.shared is not None
    return len(c.transport.shared.words[c.rank])


@pytest.fixture
def full(c: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node of rank 1 has 4 MiB left, and every message needs a slot."""
    monkeypatch.setattr(windows, "agree", lambda *_: None)
    monkeypatch.setattr(slots, "_ROOM", 0)
    monkeypatch.setattr(slots, "_SHARE", 0)
    monkeypatch.setattr(
        memory, "available_memory",
        lambda: 4 << 20 if current_thread().name == "rank 1" else 1 << 40,
    )  # fmt: skip


@pytest.mark.usefixtures("full")
def test_too_little_memory_on_one_rank_is_everyones_error(c: Collectives) -> None:
    with pytest.raises(Unavailable, match=r"rank 1: \d+M for the ranks of its node, where 4M"):
        c.allocate((LARGE,), "float64")
    assert mapped(c) == 2  # the second one has no memory yet
    assert c.allocate((16,), "float64").shape == (16,)


@pytest.mark.usefixtures("full")
def test_an_algorithm_without_a_named_transport_goes_by_messages(c: Collectives) -> None:
    """All ranks take them, and the next small call goes through memory again."""
    plan = c.plan("allreduce", np.full(LARGE, c.rank), algorithm="ring")
    plan.run()
    assert plan.transport == "point-to-point"
    np.testing.assert_array_equal(plan.out, np.full(LARGE, sum(range(c.size))))
    assert c.plan("allreduce", np.ones(4), algorithm="ring").transport == "symmetric"


@pytest.mark.usefixtures("full")
def test_a_transport_that_was_named_is_refused(c: Collectives) -> None:
    with pytest.raises(Unavailable, match="rank 1"):
        c.plan("allreduce", np.ones(LARGE), algorithm="ring@symmetric")


@pytest.mark.usefixtures("full")
def test_what_a_refused_plan_had_taken_is_given_back(c: Collectives) -> None:
    x = np.ones(LARGE)
    for _ in range(40):
        with pytest.raises(Unavailable):
            c.plan("allreduce", x, algorithm="ring@symmetric")
        c.plan("allreduce", np.ones(4096), algorithm="two_shot@symmetric").free()
    assert mapped(c) == 2


def test_memory_is_reserved_before_it_is_used(
    c: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file system has no room, the error says how it gets some."""

    reserve = os.posix_fallocate

    def refuse(*given: int) -> None:
        if current_thread().name == "rank 1":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reserve(*given)

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(Unavailable, match=r"rank 1.* No space left .*--shm-size"):
        c.allocate((LARGE,), "float64")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Paths in /proc lead to other files, as in a container of one rank; return the folder used."""
    other, folder, path = tmp_path / "other", tmp_path / "shm", files._File.path
    other.write_bytes(bytes(64))
    folder.mkdir()
    monkeypatch.setattr(memory, "SHM", str(folder))
    monkeypatch.setattr(
        files._File, "path",
        lambda self, *, named: path(self, named=True) if named else str(other),
    )  # fmt: skip
    return folder


def test_ranks_that_cannot_open_each_others_files_share_a_named_one(
    c: Collectives, elsewhere: Path
) -> None:
    """It has lost its name once all have mapped it, and another's file is never written to."""
    array = c.allocate((LARGE,), "int64")
    array[:] = c.rank
    assert c.allreduce(array, algorithm="one_shot@symmetric")[-1] == sum(range(c.size))
    assert not list(elsewhere.iterdir())
    assert (elsewhere.parent / "other").read_bytes() == bytes(64)


def held(c: Collectives) -> int:
    """Return the bytes of memory behind the segments, of all ranks."""
    c.barrier()
    memory = c.transport.shared
    assert memory is not None
    found = sum(os.fstat(segment.handle).st_blocks for segment in memory.segments) * 512
    c.barrier()
    return found


def test_many_lengths_take_few_segments(c: Collectives) -> None:
    """Plans of lengths that always grow take the memory of those before."""
    part = c.split(0)
    assert part is not None
    with part:
        for count in range(600, 800):
            part.allreduce(np.ones(count))
        assert mapped(part) <= 8
        assert held(part) <= 256 + 8 * c.size << 20


def test_free_memory_is_given_back(c: Collectives) -> None:
    part = c.split(0)
    assert part is not None
    with part:
        array = part.allocate((LARGE,), "float64")
        before = held(part)
        for _ in range(3):
            del array
            array = part.allocate((LARGE,), "float64")
            array[:] = 1
            assert held(part) <= before
        del array
        part.allocate((16,), "float64")
        assert held(part) <= before - c.size * 7 * LARGE


SMALL = """
import numpy as np
import mpicoll
c = mpicoll.world()
array = c.allocate((32 << 20,), "uint8")
array[:] = 1
plan = c.plan("allreduce", np.ones(2 << 20), algorithm="ring@symmetric")
plan.run()
print(f"rank {c.rank}: {c.allreduce(array)[-1]}, {plan.out[-1]}, {plan.transport}", flush=True)
"""


@pytest.fixture
def small_shm() -> tuple[str, ...]:
    """Return the start of a command that sees a /dev/shm of 3 MiB."""
    alone = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size=3m tmpfs /dev/shm; "$0" "$@"',
    )
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("cannot mount a /dev/shm of its own here")
    return alone


@pytest.mark.launches
def test_a_small_shm_is_enough(small_shm: tuple[str, ...], tmp_path: Path) -> None:
    """MPI has its own files there; what ranks share needs none."""
    script = tmp_path / "small.py"
    script.write_text(SMALL)
    done = ranks(2, str(script), before=small_shm)
    assert done.returncode == 0, done.stdout
    for rank in range(2):
        assert f"rank {rank}: 2, 2.0, symmetric" in done.stdout
