"""Marks of the ranks that run `mpicoll.run`: other ranks read them, and no user can forge them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from mpicoll.machine import marks

NOBODY = 65534
CHILD = """
import os, socket, sys
sys.path.insert(0, {root!r})
from mpicoll.machine import marks
os.environ.update(PMI_RANK={rank!r}, PMI_SIZE="4", PMIX_NAMESPACE={job!r})
if {user}:
    os.setgroups([])
    os.setresgid({user}, {user}, {user})
    os.setresuid({user}, {user}, {user})
{action}
print("done", flush=True)
sys.stdin.read()
"""
SET = "marks.set_mark()"
OTHER_FILE = """
socket_of_mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
file = os.memfd_create("mpicoll.run/another launch/0")
socket_of_mark.bind(f"\\0mpicoll.run/{os.environ['PMIX_NAMESPACE']}/0/{os.getpid()}/{file}")
"""
NO_FILE = """
socket_of_mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
socket_of_mark.bind(f"\\0mpicoll.run/{os.environ['PMIX_NAMESPACE']}/0/{os.getppid()}/2")
"""
BROKEN = """
sockets = []
for end in ("0", "0/", "0/1", "0/1/2/3", "x/1/2", "0/-1/2", "0/1/" + "9" * 60, "0/\\n/3"):
    sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    sockets[-1].bind(f"\\0mpicoll.run/{os.environ['PMIX_NAMESPACE']}/{end}")
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a launch in which this process is rank 3."""
    name = f"test of {os.urandom(4).hex()}"
    for variable, value in (("PMI_RANK", "3"), ("PMI_SIZE", "4"), ("PMIX_NAMESPACE", name)):
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(marks, "_marks", [])
    return name


@pytest.fixture
def start(job: str) -> Iterator[Start]:
    """Return a function that starts another process and returns it after its action."""
    root = str(marks.__file__).rpartition("/mpicoll/")[0]
    processes = []

    def run(action: str, rank: int = 0, user: int = 0) -> subprocess.Popen[str]:
        code = CHILD.format(root=root, rank=str(rank), job=job, user=user, action=action)
        process = subprocess.Popen(
            [sys.executable, "-c", code], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == "done\n"
        return process

    yield run
    for process in processes:
        process.communicate()


@pytest.mark.parametrize("end", ["exit", "crash"])
def test_ranks_learn_that_the_program_of_another_one_has_ended(start: Start, end: str) -> None:
    """Its process may still wait for them, or have ended, too."""
    marks.set_mark()
    action = f"{SET}; from mpicoll.machine import exits; " + "exits._exit()" * (end == "exit")
    process = start(action, 0)
    assert marks.is_marked(0)
    if end == "crash":
        assert not marks.has_exited(0)
        process.kill()
        process.wait()
    assert marks.has_exited(0)
    assert not marks.has_exited(1)  # it has no mark on this host


def test_ranks_read_the_marks_of_others(start: Start) -> None:
    start(SET, 0)
    start(SET, 2)
    marks.set_mark()
    assert [marks.is_marked(rank) for rank in range(4)] == [True, False, True, True]


def test_a_mark_ends_with_its_process(start: Start) -> None:
    start(SET).communicate()
    assert not marks.is_marked(0)


@pytest.mark.parametrize("action", [OTHER_FILE, NO_FILE, BROKEN])
def test_a_socket_alone_is_no_mark(start: Start, action: str) -> None:
    start(action)
    start(SET, 1)
    assert [marks.is_marked(rank) for rank in (0, 1)] == [False, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a process of another user")
def test_another_user_sets_no_mark_and_prevents_none(start: Start) -> None:
    start(SET, 0, user=NOBODY)
    start(SET, 1, user=NOBODY)
    start(SET, 1)
    assert [marks.is_marked(rank) for rank in (0, 1)] == [False, True]


def test_a_late_mark_is_none(job: str) -> None:
    marks.set_mark(is_late=True)
    assert marks.must_be_marked() and not marks.is_marked(3)


@pytest.mark.parametrize("name", ["x" * 90, "x" * 300])
def test_a_name_that_is_too_long_is_no_mark(
    monkeypatch: pytest.MonkeyPatch, job: str, name: str
) -> None:
    monkeypatch.setenv("PMIX_NAMESPACE", name)
    descriptors = os.listdir("/proc/self/fd")
    marks.set_mark()
    assert marks.must_be_marked() and not marks.is_marked(3)
    assert os.listdir("/proc/self/fd") == descriptors


def test_a_mark_is_found_among_many_sockets(start: Start) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unnamed:
        unnamed.bind(b"\0mpicoll.run/")
        start(SET)
        assert marks.is_marked(0)
