"""The check of hosts before a job: its report, and whole runs with planted faults."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from launcher import LIMIT, ROOT, SUPPORT, mpirun, ranks

import mpicoll
from mpicoll import Collectives, RankLost
from mpicoll.cli.progress import ProgressBar
from mpicoll.hosts.emulation import Hosts as EmulatedHosts
from mpicoll.hosts.emulation import missing
from mpicoll.measurement.ping_pong import PingPong, Trial
from mpicoll.measurement.ranks import form_ranks
from mpicoll.p2p.judging import BANDWIDTH, Finding, judge_links, sentence
from mpicoll.p2p.options import Options
from mpicoll.p2p.preflight import Check, Hosts, Report, lines, unexplained
from mpicoll.p2p.probe import Probe

WHY = missing()
HOSTS = Hosts([(0, 1), (2, 3), (4, 5), (6,)], ["n1", "n2", "n3", "n4"])


def slow(*hosts: int) -> Finding:
    """Return the finding of a slow host or link."""
    return Finding(hosts, quantity=BANDWIDTH, amount=0.5, typical=1.0)


# -- the report --------------------------------------------------------------------------------


def test_a_healthy_report_needs_no_lists() -> None:
    assert lines(Report([], ["figures"]), HOSTS) == [
        "figures", "healthy: no host, rank or link is sick"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        (
            [slow(1), slow(0, 3)],
            [
                "sick hosts: n2",
                "left out for their links: n4",
                "Slurm: --nodelist=n[1,3] or --exclude=n[2,4]",
                "MPICH: -hosts n1:2,n3:2",
                "Open MPI: --host n1:2,n3:2",
            ],
        ),
        (
            [Finding((), fault="wrong")],
            [
                "Slurm: --nodelist=n[1-4]",
                "MPICH: -hosts n1:2,n2:2,n3:2,n4:1",
                "Open MPI: --host n1:2,n2:2,n3:2,n4:1",
            ],
        ),
        (
            [slow(0), slow(1), slow(2), slow(3)],
            ["sick hosts: n[1-4]", "no host remains"],
        ),
    ],
)
def test_a_report_ends_with_lists_of_the_other_hosts(
    findings: list[Finding], expected: list[str]
) -> None:
    text = lines(Report(findings), HOSTS)
    assert text[len(findings) :] == expected
    assert all(line.startswith("SICK ") for line in text[: len(findings)])


def test_links_of_a_sick_host_are_no_findings() -> None:
    assert unexplained([slow(1), slow(1, 2), slow(0, 3)]) == [slow(1), slow(0, 3)]


def test_a_silent_link_is_named_and_the_check_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Probe._measure

    def measure_or_lose(probe: Probe, group: Collectives, pair: Any, seconds: float) -> Any:
        if pair == (0, 2):
            raise RankLost("rank 1 did not come in time", rank=1)
        return measure(probe, group, pair, seconds)

    def check(c: Collectives) -> list[str]:
        options = parse_options("threads", budget=0.5)
        ranks_of_check = form_ranks(("threads",), {"threads": lambda interface: c}, 0.0)
        named = Hosts(c.nodes, ["n1", "n2", "n3"])
        whole_check = Check(options, ranks_of_check, named)
        report = whole_check.run()
        assert whole_check.bar.completed + 1 == whole_check.bar.total
        return [sentence(finding, named.names) for finding in report.findings]

    monkeypatch.setattr(Probe, "_measure", measure_or_lose)
    for findings in mpicoll.threads(3, ranks_per_node=1)(check):
        assert "SICK link n1 n3: does not answer" in findings


@pytest.mark.parametrize("delayed", [1, 2, 3])
def test_a_delay_is_no_slow_link(monkeypatch: pytest.MonkeyPatch, delayed: int) -> None:
    """Of one look among several, whose messages it makes ten times as long."""
    sample_link = PingPong.sample

    def sample_or_sleep(ping_pong: PingPong, trial: Trial, calls: int) -> float:
        is_delayed = current[0] == delayed and ping_pong.pair == (0, 1) and trial.case.nbytes > 8
        return sample_link(ping_pong, trial, calls) + (9000.0 if is_delayed else 1000.0)

    def measure(c: Collectives) -> list[Finding]:
        ranks_of_check = form_ranks(("threads",), {"threads": lambda interface: c}, 0.0)
        probe = Probe(ranks_of_check, ProgressBar(0, has_thread=False))
        looks = []
        for look in range(1, 6):
            current[0] = look
            looks.append(probe.links([[(0, 1)], [(0, 2)], [(1, 2)]], 0.02))
        return judge_links(looks)

    current = [0]
    monkeypatch.setattr(PingPong, "sample", sample_or_sleep)
    for findings in mpicoll.threads(3, ranks_per_node=1)(measure):
        assert findings == []


def parse_options(backend: str, budget: float) -> Options:
    return Options((backend,), (), (8,), "cpu", budget, None, None, "table", False, 0, 0.0, None)


# -- whole runs --------------------------------------------------------------------------------

STARTER = """#!/bin/sh
# Called with Python and its arguments: -m mpicoll.p2p ...
if [ $(hostname) = host3 ]; then
    python=$1
    shift 3
    exec "$python" {program} "$@"
fi
exec "$@"
"""


def start_on(hosts: EmulatedHosts, starter: Sequence[str], *flags: str) -> Any:
    """Run a check on all hosts."""
    python = ("-m", "mpicoll.p2p", "--preflight", "--backends", "mpi4py", "-T", "120", *flags)
    return subprocess.run(
        hosts.command(python, starter=starter), text=True, timeout=LIMIT, stdin=subprocess.DEVNULL,
        env={**os.environ, **hosts.environment(), "PYTHONPATH": str(ROOT)}, capture_output=True,
    )  # fmt: skip


@pytest.mark.launches
@pytest.mark.skipif(WHY is not None, reason=f"no emulated hosts: {WHY}")
def test_a_slow_link_and_wrong_sums_are_named(tmp_path: Path) -> None:
    """Between four hosts, of which one adds wrongly. The others are left for a job."""
    starter, hostfile = tmp_path / "start", tmp_path / "hosts"
    starter.write_text(STARTER.format(program=SUPPORT / "wrong_sums.py"))
    starter.chmod(0o755)
    with EmulatedHosts(4, "80mbit") as hosts:
        hosts.limit_pair(0, 1, "8mbit")
        for _ in range(3):  # where other processes take the cores, a whole host can seem slow
            result = start_on(hosts, [str(starter)], "--time", "4", "--hostfile", str(hostfile))
            if "was busy" not in result.stderr or "SICK link" in result.stdout:
                break
    assert result.returncode == 4, result.stdout + result.stderr
    assert "6 of 6 links in 3 rounds" in result.stdout
    assert "SICK link host0 host1: moves 0.00" in result.stdout, result.stdout + result.stderr
    assert "SICK rank 3 on host3: this rank adds whole numbers wrongly" in result.stdout
    assert "SICK host host3: wrong results: allreduce by recursive_doubling" in result.stdout
    assert "Slurm: --nodelist=" in result.stdout
    remaining = hostfile.read_text().split()
    assert "host0" in remaining and not {"host1", "host3"} & {*remaining}


# A rank that stops once the ranks have met.
STOPPED = """
import os, signal
from mpicoll.measurement.worlds import ALL_BACKENDS
from mpicoll.p2p import preflight
from mpicoll.p2p.command import main

class Stopping(preflight.Check):
    def run(self):
        if self.ranks.everyone.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().run()

preflight.Check = Stopping
main(obj=ALL_BACKENDS)
"""


@pytest.mark.launches
@pytest.mark.skipif(mpirun() is None, reason="no mpirun here")
def test_a_rank_that_does_not_answer_is_named(tmp_path: Path) -> None:
    program = tmp_path / "stopped.py"
    program.write_text(STOPPED)
    result = ranks(3, str(program), "--preflight", "--backends", "mpi4py", "-T", "8",
                   environment={"MPICOLL_RANKS_PER_NODE": "1"})  # fmt: skip
    # The launcher may tell how it ended the stopped rank instead.
    assert result.returncode not in (0, 1, 2, 3), result.stdout
    assert "SICK rank 1 on " in result.stdout and "does not answer: " in result.stdout
    assert "Slurm: --nodelist=" in result.stdout
