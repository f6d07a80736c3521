"""Emulated hosts: several nodes, a real network between them, and nothing left at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from launcher import LIMIT
from study_environments import small_study

from mpicoll import LaunchError
from mpicoll.algorithms.registry import find
from mpicoll.costs import Network, price
from mpicoll.hosts.emulation import Hosts, missing
from mpicoll.records.lines import CaseRecord, Record, RunRecord
from mpicoll.records.reading import load, only

pytestmark = pytest.mark.launches

ROOT = Path(__file__).parents[2]
WHY = missing()
needs_hosts = pytest.mark.skipif(WHY is not None, reason=f"no emulated hosts: {WHY}")

STREAM = """
import time, mpicoll, numpy as np
with mpicoll.world() as c:
    x, rates = np.zeros(4 << 20, np.uint8), []
    # A machine that does something else meanwhile is slow, too: other attempts are not.
    while len(rates) < 2 or (max(rates) < 100 and len(rates) < 50):
        c.barrier()
        begin = time.perf_counter()
        c.send(x, 1) if c.rank == 0 else c.recv(x, 0)
        rates.append(len(x) * 8e-6 / max(c.exchange(time.perf_counter() - begin)))
    if c.rank == 0:
        print(max(rates[1:]))
"""

LEAVES = """
import os, sys, time
from pathlib import Path
import mpicoll, numpy as np
from mpicoll.notation.elements import user_op

def fold(left, right):
    return 1 / 0 if c.rank == 2 else left + right

c, folder = mpicoll.world(), Path(sys.argv[1])
c.deadline = 1
try:
    op = user_op(fold, commutative=True)
    plan = c.plan("allreduce", np.arange(100), op=op, algorithm="rabenseifner")
    plan.start().wait()
except (ZeroDivisionError, mpicoll.RankLost) as error:
    (folder / str(c.rank)).write_text(type(error).__name__)
end = time.monotonic() + 60
while sum(each.stat().st_size > 0 for each in folder.iterdir()) < c.size and time.monotonic() < end:
    time.sleep(0.01)  # without a call of MPI
os._exit(0)
"""


def spaces() -> list[str]:
    shown = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in shown.stdout.splitlines() if line.startswith("mpicoll-")]


def run(
    hosts: Hosts, python: list[str], per_host: int = 1, *, provider: str = "ofi"
) -> subprocess.CompletedProcess[str]:
    """Run Python on all ranks and return its output; kill all of it after `LIMIT` seconds."""
    variables = {**os.environ, **hosts.environment(provider), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        hosts.command(python, per_host), env=variables, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=LIMIT)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            for name in hosts.names:
                listed = ["ip", "netns", "pids", f"{hosts.prefix}-{name}"]
                output = subprocess.run(listed, capture_output=True, text=True, check=False)
                for number in output.stdout.split():
                    with suppress(ProcessLookupError):
                        os.kill(int(number), signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture(scope="module")
def pair() -> Iterator[Hosts]:
    """Two hosts at 200 Mbit/s."""
    with Hosts(2, "200mbit") as hosts:
        yield hosts


@needs_hosts
@pytest.mark.parametrize("provider", ["ofi", "ucx"])
def test_the_link_is_the_limit(pair: Hosts, provider: str) -> None:
    """Faster would be the memory that the hosts share; slower, more than the protocols take."""
    process = run(pair, ["-c", STREAM], provider=provider)
    assert process.returncode == 0, process.stderr
    # The bucket lets its burst through at once: 2 of 32 Mbit.
    assert 100 < float(process.stdout) < 220


@needs_hosts
def test_two_levels_are_right_on_several_hosts(pair: Hosts, tmp_path: Path) -> None:
    """Both backends see the hosts, and the harness states the error of its clock."""
    output = tmp_path / "records.jsonl"
    process = run(
        pair,
        ["-m", "mpicoll.bench", "allreduce", "broadcast", "barrier", "--algorithms",
         "native,two_level,auto", "--sizes", "4K", "-n", "3", "-J", str(output)],
        2,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    all_records = load(output)
    (run_record,) = only(RunRecord, all_records)
    assert run_record.run.hosts == ["host0", "host0", "host1", "host1"]
    assert all("symmetric" in names for names in run_record.run.transports.values())
    records = only(CaseRecord, all_records)
    assert {record.nodes for record in records} == {2}
    ran = [record for record in records if not record.message]
    assert {record.backend for record in ran} == {"mpi4py", "torch"}
    levels = [record for record in ran if record.algorithm.startswith("two_level")]
    assert {record.collective for record in levels} >= {"allreduce", "broadcast"}
    assert all(record.transport == "symmetric+point-to-point" for record in levels)
    assert all(record.correct is not False for record in ran)
    assert all(0 < record.sync_error_us < 1e6 for record in ran)


@needs_hosts
def test_programs_of_mpi4py_run_schedules_on_several_hosts(
    pair: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank chooses the form of its buffers."""
    monkeypatch.setenv("MPICOLL_ALGORITHM", "allreduce=two_level,bcast=two_level,allgather=bruck")
    program = str(ROOT / "tests/support/random_buffers.py")
    process = run(pair, ["-m", "mpicoll.run", program, "1", "150"], 2)
    assert process.returncode == 0, process.stderr
    plans = re.findall(r"150 calls are right, (\d+) plans", process.stdout)
    assert len(plans) == 4
    assert len(set(plans)) == 1
    assert int(plans[0]) > 10


@needs_hosts
def test_ranks_that_have_left_serve_those_inside_of_mpi(pair: Hosts, tmp_path: Path) -> None:
    """MPICH starts a message when the other rank's MPI has answered."""
    process = run(pair, ["-c", LEAVES, str(tmp_path)], 3)
    assert "cannot be left" not in process.stderr
    errors = [(tmp_path / str(rank)).read_text() for rank in range(6)]
    assert errors == ["RankLost"] * 2 + ["ZeroDivisionError"] + ["RankLost"] * 3


def measured(hosts: Hosts, command: str, file: Path, *arguments: str) -> list[Record]:
    arguments_of_ranks = [
        "-m",
        f"mpicoll.{command}",
        "--backends",
        "mpi4py",
        "-J",
        str(file),
        *arguments,
    ]
    process = run(hosts, arguments_of_ranks)
    assert process.returncode == 0, process.stderr
    return load(file)


def prices_and_times(hosts: Hosts, folder: Path) -> Iterator[tuple[str, float, float]]:
    """Yield names, prices and times in seconds; pairs are measured first, and fitted."""
    pairs = measured(hosts, "p2p", folder / "pairs", "--sizes", "8,1M,2M", "--time", "4")
    network = Network.fitted(pairs, "mpi4py")
    times = measured(
        hosts, "bench", folder / "times", "allreduce", "broadcast", "allgather", "--sizes", "1M",
        "-n", "7", "--algorithms", "ring,recursive_doubling,binomial,chain(segments=16)",
    )  # fmt: skip
    for record in only(CaseRecord, times):
        if record.time_us and record.time_us.min and not record.algorithm.startswith("native"):
            algorithm = find(record.collective, record.algorithm)
            name = f"{record.collective} {record.algorithm}"
            yield name, price(algorithm, 3, record.bytes_total, network), 1e-6 * record.time_us.min


@needs_hosts
def test_prices_on_the_measured_network_are_right(tmp_path: Path) -> None:
    """A model that misses rounds or bytes is off by half.

    Other work on this machine adds to prices and to times: the least of several attempts are
    compared.
    """
    prices: dict[str, float] = {}
    times: dict[str, float] = {}
    with Hosts(3, "400mbit") as hosts:
        for attempt in range(6):
            (folder := tmp_path / str(attempt)).mkdir()
            for name, dear, slow in prices_and_times(hosts, folder):
                prices[name] = min(dear, prices.get(name, dear))
                times[name] = min(slow, times.get(name, slow))
            assert len(times) == 5
            ratios = sorted(prices[name] / times[name] for name in times)
            if ratios[0] > 0.7 and ratios[-1] < 1.3 and 0.85 < ratios[2] < 1.15:
                return
    raise AssertionError(f"prices over times: {ratios}")


@needs_hosts
def test_a_study_runs_on_all_hosts(tmp_path: Path) -> None:
    """It is started once, and the mpirun of each launch places the ranks on the hosts."""
    (tmp_path / "study.toml").write_text(small_study("mpich", 0.1))
    command = [sys.executable, "-m", "mpicoll.hosts", "-H", "2", "-p", "2", "--once", "--",
               "-m", "mpicoll.study", "study.toml", "-o", "study"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT
    )
    assert process.returncode == 0, process.stderr
    (launch,) = (tmp_path / "study" / "launches").iterdir()
    (run_record,) = only(RunRecord, load(launch))
    assert run_record.run.hosts == ["host0", "host1"]
    assert "2 hosts: " in (tmp_path / "study" / "findings.md").read_text()


@needs_hosts
def test_nothing_is_left_when_it_ends_or_is_terminated(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mpicoll.hosts", "-H", "2", "--", "-c"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*command, "raise SystemExit(3)"], env=environment) as process:
        assert process.wait(LIMIT) == 3
    assert not left_of(process.pid)
    ready = tmp_path / "ready"
    script = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    with subprocess.Popen([*command, script], env=environment) as process:
        until = time.monotonic() + LIMIT
        while not ready.exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert len(left_of(process.pid)) == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 143
    assert not left_of(process.pid)
    assert not list(Path("/etc/netns").glob(f"mpicoll-{process.pid}-*"))


def left_of(process: int) -> list[str]:
    """Return the network namespaces of a process: other tests may have theirs at the same time."""
    return [name for name in spaces() if name.startswith(f"mpicoll-{process}-")]


@needs_hosts
@pytest.mark.parametrize(
    ("count", "rate", "text"),
    [
        (0, "1gbit", "1 to 200 hosts"),
        (999, "1gbit", "1 to 200 hosts"),
        (1, "1foo", "illegal value"),
    ],
)
def test_impossible_hosts_are_refused(count: int, rate: str, text: str) -> None:
    original = left_of(os.getpid())
    with pytest.raises(LaunchError, match=text), Hosts(count, rate):
        pass
    assert left_of(os.getpid()) == original


def test_the_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with (
        pytest.raises(LaunchError, match="no ip, tc, unshare"),
        Hosts(2),
    ):
        pass
