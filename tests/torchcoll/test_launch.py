"""Every way to start ranks over torch.distributed, with real processes."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joining import CHILD, forget_launcher, together, told
from launcher import LIMIT, QUIRKS, ROOT, free_port, mpirun, python, ranks

pytest.importorskip("torch")
import torch.distributed as dist

from mpicoll import ArgumentError
from torchcoll import LaunchError, UnknownName, launch, world
from torchcoll.rendezvous.mpi import is_equal
from torchcoll.rendezvous.secret import private_directory
from torchcoll.rendezvous.store import Rendezvous

LOOPBACK = "0100007F"
needs_mpirun = pytest.mark.skipif(mpirun() is None, reason="no mpirun")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the launcher that started the tests themselves."""
    forget_launcher(monkeypatch)


def check(said: list[dict[str, Any]], size: int, *, only_loopback: bool = True) -> None:
    assert [each["rank"] for each in said] == list(range(size))
    for each in said:
        assert (each["size"], each["nodes"]) == (size, 1)
        assert each["sum"] == each["ring"] == size * (size + 1) // 2
        assert each["interface"] == "lo"
        if only_loopback:
            assert size == 1 or each["listening"]
            assert set(each["listening"]) <= {LOOPBACK}


def rendezvous(form: str, folder: Path) -> tuple[str | None, dict[str, str]]:
    if form == "file":
        return f"file://{folder}/meet", {}
    if form == "tcp":
        return f"tcp://127.0.0.1:{free_port()}", {}
    return "env://", {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}


@pytest.mark.launches
@pytest.mark.parametrize(
    ("form", "by"), [("env", "arguments"), ("tcp", "arguments"), ("file", "environment")]
)
def test_processes_that_meet_as_told(form: str, by: str, tmp_path: Path) -> None:
    method, shared = rendezvous(form, tmp_path)
    options: list[dict[str, Any]] = [{"init_method": method} for _ in range(2)]
    environments = [dict(shared) for _ in range(2)]
    for rank in range(2):
        if by == "arguments":
            options[rank] |= {"rank": rank, "size": 2}
        else:
            environments[rank] |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    done = together(options, environments)
    assert [code for code, _ in done] == [0, 0], done
    check(told("".join(output for _, output in done)), 2)
    assert not list(tmp_path.iterdir())


@pytest.mark.launches
def test_plain_environment_needs_no_argument() -> None:
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    done = together([{}, {}], [{**shared, "RANK": str(rank)} for rank in range(2)])
    assert [code for code, _ in done] == [0, 0], done
    check(told("".join(output for _, output in done)), 2)


@pytest.mark.launches
def test_one_process_alone() -> None:
    ((code, output),) = together([{}])
    assert code == 0, output
    check(told(output), 1)


@pytest.mark.launches
def test_torchrun() -> None:
    done = python("-m", "torch.distributed.run", "--nproc-per-node", "2", CHILD)
    assert done.returncode == 0, done.stdout
    check(told(done.stdout), 2)


@pytest.mark.launches
@needs_mpirun
@pytest.mark.parametrize("with_mpi4py", [True, False])
def test_mpirun(with_mpi4py: bool, tmp_path: Path) -> None:
    """MPI listens as it likes; without it, nothing but the loopback is open, and no file stays."""
    if with_mpi4py and importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no mpi4py")
    environment = {"WITHOUT_MPI4PY": "" if with_mpi4py else "1", "TMPDIR": str(tmp_path)}
    done = ranks(2, CHILD, environment=environment)
    assert done.returncode == 0, done.stdout
    said = told(done.stdout)
    assert all(each["mpi4py"] == with_mpi4py for each in said)
    check(said, 2, only_loopback=not with_mpi4py)
    assert not list(tmp_path.glob("torchcoll-*/*"))


@pytest.mark.launches
@needs_mpirun
def test_mpirun_through_a_shell(tmp_path: Path) -> None:
    """Each rank has a parent of its own: what they share is the launcher above."""
    script = tmp_path / "start.sh"
    script.write_text(f'"{sys.executable}" "{CHILD}"\nexit $?\n')
    launcher = mpirun()
    assert launcher is not None
    done = subprocess.run(
        [launcher, "-n", "2", "sh", str(script)], cwd=ROOT, capture_output=True, text=True,
        timeout=LIMIT, check=False, env={**os.environ, **QUIRKS, "WITHOUT_MPI4PY": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    check(told(done.stdout), 2)


@pytest.mark.launches
def test_srun(tmp_path: Path) -> None:
    """What Slurm sets is enough: job and step give the port, no MPI is needed."""
    shared = {
        "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "here", "WITHOUT_MPI4PY": "1",
    }  # fmt: skip
    done = together([{}, {}], [{**shared, "SLURM_PROCID": str(rank)} for rank in range(2)])
    assert [code for code, _ in done] == [0, 0], done
    check(told("".join(output for _, output in done)), 2)


def test_an_unknown_interface_is_refused_before_anything_opens() -> None:
    with pytest.raises(LaunchError, match=r"no network interface 'nope0'.*lo \(127\.0\.0\.1\)"):
        world(interface="nope0")


def test_unknown_interface_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nope0")
    with pytest.raises(LaunchError, match="nope0"):
        world()


def test_unknown_backend() -> None:
    with pytest.raises(UnknownName, match="did you mean 'gloo'"):
        world(backend="glo")


@pytest.mark.parametrize(
    ("environment", "options", "said"),
    [
        ({"RANK": "3", "WORLD_SIZE": "3"}, {}, "rank 3 is out of range"),
        ({"RANK": "0"}, {}, "set both RANK and WORLD_SIZE"),
        ({"RANK": "a", "WORLD_SIZE": "3"}, {}, "RANK='a' and WORLD_SIZE='3' are not numbers"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, {}, "MASTER_ADDR is not set"),
        ({"RANK": "9" * 5000, "WORLD_SIZE": "3"}, {}, r"5002 characters\) and .* not numbers"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "9" * 5000}, {},
            "no port from 1 to 65535",
        ),
        ({}, {"rank": 1}, "give both rank and size"),
        ({}, {"rank": 0, "size": 2, "init_method": "udp://here"}, "none of env://, tcp://"),
        ({}, {"rank": 0, "size": 2, "init_method": "tcp://here"}, "no port from 1 to 65535"),
        ({}, {"rank": 0, "size": 2, "init_method": "tcp://203.0.113.1:9999"}, "cannot listen on"),
        ({}, {"init_method": "file:///tmp/meet"}, "which rank of how many"),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "4", "RANK": "0", "WORLD_SIZE": "2"}, {},
            "MPICH's mpirun says 1 of 4: unset RANK",
        ),
    ],
)  # fmt: skip
def test_wrong_launch(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], options: dict[str, Any], said: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match=said):
        world(**options)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_timeout_is_positive(seconds: float) -> None:
    with pytest.raises(ArgumentError, match="positive number of seconds"):
        world(timeout=seconds)


@pytest.mark.launches
def test_a_missing_rank_is_named() -> None:
    method = f"tcp://127.0.0.1:{free_port()}"
    options = {"init_method": method, "size": 3, "timeout": 8}
    done = together([{**options, "rank": rank} for rank in (0, 1)])
    assert [code for code, _ in done] == [1, 1]
    assert any("waited 8 s for rank 2 of 3" in output for _, output in done), done
    assert all("LaunchError" in output for _, output in done), done


@pytest.mark.launches
def test_nobody_at_the_address() -> None:
    method = f"tcp://127.0.0.1:{free_port()}"
    ((code, output),) = together([{"init_method": method, "rank": 1, "size": 2, "timeout": 1}])
    assert code == 1
    assert "is rank 0 running" in output


class Silent:
    """A store whose process is stopped: a call of it never returns."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given: threading.Event().wait()


def test_a_store_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "open_store", lambda *given: Rendezvous(Silent(), b"secret"))
    monkeypatch.setattr(launch, "_LATER", 0.05)
    monkeypatch.setattr(dist, "PrefixStore", lambda prefix, store: store)
    with pytest.raises(LaunchError, match=r"rank 1 of 2 has no answer of the store for 0\.1 s"):
        world(rank=1, size=2, timeout=0.1)


def test_a_file_that_a_stopped_rank_has_locked_is_not_waited_for(tmp_path: Path) -> None:
    with (tmp_path / "store").open("w") as file:
        (tmp_path / "store").chmod(0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LaunchError, match="store is locked by a process that is stopped"):
            world(init_method=f"file://{tmp_path}/store", rank=1, size=2, timeout=0.1)


def test_a_rank_that_is_stopped_before_ranks_meet_over_mpi_is_not_waited_for() -> None:
    comm = SimpleNamespace(rank=1, size=2)
    comm.Iallgather = lambda mine, every: SimpleNamespace(Test=lambda: False)
    with pytest.raises(LaunchError, match=r"rank 1 of 2 waited 0\.05 s for another over MPI"):
        is_equal(comm, "host", 0.05)


def test_a_stolen_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert private_directory().stat().st_mode & 0o777 == 0o700
    private_directory().chmod(0o777)
    with pytest.raises(LaunchError, match="not this user's own"):
        private_directory()
    planted = next(tmp_path.iterdir())
    planted.rmdir()
    planted.write_text("somebody's file")
    with pytest.raises(LaunchError, match=r"cannot make .*: File exists"):
        private_directory()


def test_importing_starts_nothing() -> None:
    code = "import sys, torchcoll; print(sorted({'torch', 'mpi4py'} & set(sys.modules)))"
    done = python("-c", code)
    assert done.stdout.strip() == "[]"


def test_a_forked_child_leaves_the_group_to_the_process_that_made_it() -> None:
    """The end of a gloo group waits for threads that a child does not have."""
    closed: list[int] = []
    group: Any = SimpleNamespace(store=None, close=lambda: closed.append(1))
    launch._end(group, os.getppid())
    assert not closed
    launch._end(group, os.getpid())
    assert closed
