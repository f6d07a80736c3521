"""Plant faults on emulated hosts, and count what a pre-flight check finds.

    python tests/support/sick_hosts.py [--trials 20] [--seed 0] [--healthy] [--time 6]

Each trial has four faults at once on eight hosts, at random places: a link at half or a quarter of
its rate, a host whose network has half or a quarter of its rate, a host whose core two busy
processes share, and a host that answers wrong sums. All trials are one launch. Prints a line for
each trial, and the totals.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import wrong_sums

from mpicoll.hosts.emulation import Hosts
from mpicoll.measurement.ranks import Ranks, form_ranks
from mpicoll.measurement.worlds import ALL_BACKENDS
from mpicoll.p2p import preflight
from mpicoll.p2p.judging import sentence, subject
from mpicoll.p2p.options import Options

COUNT, RATE = 8, 40
"""Hosts, and Mbit/s of each link: so slow that the network is the limit, not the two cores."""
BUSY = "while kill -0 {process} 2>/dev/null; do :; done"


class Faults(NamedTuple):
    """The faults of a trial.

    Attributes:
        link: two hosts; `network`: a host; each with the share of the rate that it keeps.
        shared: a host whose core is shared with busy processes.
        wrong: a host that answers wrong sums.
    """

    link: tuple[int, int]
    link_share: float
    network: int
    network_share: float
    shared: int
    wrong: int

    @classmethod
    def at_random(cls, source: random.Random) -> Faults:
        """Return one fault of each kind, at different hosts."""
        first, second, network, shared, wrong = source.sample(range(COUNT), 5)
        ends = min(first, second), max(first, second)
        return cls(
            ends, source.choice((0.5, 0.25)), network, source.choice((0.5, 0.25)), shared, wrong
        )

    def names(self) -> set[str]:
        """Return the names of the sick hosts and of the sick link."""
        hosts = {f"host{host}" for host in (self.network, self.shared, self.wrong)}
        return hosts | {"link host{} host{}".format(*self.link)}


@contextmanager
def planted(hosts: Hosts, faults: Faults, rank: int) -> Iterator[None]:
    """Plant the faults that this rank has; rank 0 changes the network for all."""
    cores, busy = os.sched_getaffinity(0), list[subprocess.Popen[bytes]]()
    if rank == 0:
        hosts.limit_pair(*faults.link, f"{RATE * faults.link_share:g}mbit")
        hosts.limit(faults.network, f"{RATE * faults.network_share:g}mbit")
    if rank == faults.shared:
        os.sched_setaffinity(0, {min(cores)})
        command = ("sh", "-c", BUSY.format(process=os.getpid()))
        busy = [subprocess.Popen(command) for _ in range(2)]
    if rank == faults.wrong:
        wrong_sums.plant()
    try:
        yield
    finally:
        if rank == 0:
            hosts.limit(faults.network, f"{RATE}mbit")
            hosts.join(*faults.link)
        os.sched_setaffinity(0, cores)
        for process in busy:
            process.kill()
            process.wait()
        if rank == faults.wrong:
            wrong_sums.heal()


def trial(ranks: Ranks, hosts: Hosts, faults: Faults | None, seconds: float) -> Counter[str]:
    """Check all hosts once; print on rank 0 what was missed or wrongly blamed."""
    everyone, began = ranks.everyone, time.monotonic()
    options = Options(
        ("mpi4py",), (), (8,), "cpu", seconds, None, None, "table", False, 0, 60.0, None,
        preflight=True,
    )  # fmt: skip
    named_hosts = preflight.Hosts.of(ranks)
    if faults is None:
        report = preflight.Check(options, ranks, named_hosts).run()
    else:
        with planted(hosts, faults, everyone.rank):
            everyone.barrier()
            report = preflight.Check(options, ranks, named_hosts).run()
    blamed = {
        f"host{finding.hosts[0]}" if len(finding.hosts) == 1
        else subject(finding, named_hosts.names)
        for finding in report.findings
    }  # fmt: skip
    planted_names = faults.names() if faults else set()
    missed, wrong = planted_names - blamed, blamed - planted_names
    if everyone.rank == 0:
        load = os.getloadavg()[0]
        print(
            f"{faults or 'healthy'}: {time.monotonic() - began:.0f} s, load {load:.0f}, "
            f"missed {missed or 'none'}, blamed wrongly {wrong or 'none'}",
            flush=True,
        )
        if missed or wrong:
            print("\n".join(report.remarks), flush=True)
            print("\n".join(sentence(each, named_hosts.names) for each in report.findings))
    return Counter(trials=1, right=not missed | wrong, missed=len(missed), blamed=len(wrong))


def run_ranks(flags: Namespace) -> int:
    """Run all trials on these ranks."""
    ranks = form_ranks(("mpi4py",), ALL_BACKENDS, 300.0)
    hosts = Hosts(COUNT, f"{RATE}mbit")
    hosts.prefix = flags.prefix
    totals: Counter[str] = Counter()
    for number in range(flags.trials):
        source = random.Random(f"{flags.seed} {number}")
        faults = None if flags.healthy else Faults.at_random(source)
        totals += trial(ranks, hosts, faults, flags.time)
    ranks.print(str(dict(totals)))
    return int(totals["right"] != totals["trials"])


def main() -> int:
    """Start emulated hosts and a launch on them, or run the trials as one of its ranks."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time", type=float, default=6.0)
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--prefix", help="of the namespaces; the ranks are started with it")
    flags = parser.parse_args()
    if flags.prefix:
        return run_ranks(flags)
    program = [str(Path(__file__).resolve()), *sys.argv[1:]]
    with Hosts(COUNT, f"{RATE}mbit") as hosts:
        command = hosts.command([*program, "--prefix", hosts.prefix])
        variables = {**os.environ, **hosts.environment()}
        return subprocess.run(command, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
