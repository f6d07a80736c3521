"""Launch programs with planted causes of lost time, and count the verdicts that name them.

    python tests/support/planted_causes.py --launches 100
    python tests/support/planted_causes.py --launches 20 --causes healthy,work-5 --backends torch

Prints a line for each launch, and a table of the planted kinds by the kinds of the first finding.
A launch is right if the first finding has the planted kind, and the planted rank, node or call.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from launcher import QUIRKS, ROOT, free_port, mpirun

from mpicoll.flight.reader import read_all
from mpicoll.hosts.emulation import Hosts, _run
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.judging import Verdict, judge
from mpicoll.verdict.sentences import sentences

PROGRAM = str(Path(__file__).with_name("planted_program.py"))
SIZE = 4
KINDS = {
    "healthy": None, "work": Kind.MORE_WORK, "core": Kind.SHARED_CORE, "stop": Kind.STOPPED,
    "uneven": Kind.UNEVEN_DATA, "barrier": Kind.UNNEEDED_CALL, "link": Kind.SLOW_LINK,
}  # fmt: skip
CAUSES = (
    "healthy", "work-1", "work-5", "work-20", "core", "stop", "uneven", "barrier", "link-100",
    "link-50", "link-10",
)  # fmt: skip
RATE = 200
"""Megabits per second of the links of emulated hosts."""
HARMLESS = (None, Kind.DATA_MOVEMENT)


class Planted(NamedTuple):
    """A planted cause: its name, and the rank or the host that it is planted on."""

    cause: str
    victim: int
    backend: str

    @property
    def kind(self) -> Kind | None:
        name, _, percent = self.cause.partition("-")
        return None if percent == "100" else KINDS[name]


def launch(planted: Planted, directory: Path, steps: int) -> None:
    """Run the program; its flight files stay in a directory."""
    environment = {**os.environ, **QUIRKS, "MPICOLL_FLIGHT_DIR": str(directory)}
    name, _, percent = planted.cause.partition("-")
    arguments = [PROGRAM, planted.cause, str(planted.victim), str(steps)]
    if name == "link":
        arguments[1] = "link-100000"
        with Hosts(SIZE, f"{RATE}mbit") as hosts:
            slow_down(hosts, planted.victim, int(percent))
            command = hosts.command(["-m", "mpicoll.run", *arguments])
            run(command, {**environment, **hosts.environment()})
    elif planted.backend == "torch":
        torchrun = [
            "-m", "torch.distributed.run", f"--nproc-per-node={SIZE}",
            f"--master-port={free_port()}", "-m", "torchcoll.run",
        ]  # fmt: skip
        run([sys.executable, *torchrun, *arguments], environment)
    else:
        command = [str(mpirun()), "-n", str(SIZE), sys.executable, "-m", "mpicoll.run", *arguments]
        run(command, environment)


def run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        timeout=300, check=False,
    )  # fmt: skip


def slow_down(hosts: Hosts, host: int, percent: int) -> None:
    """Limit the link of a host to a part of the rate of the others, in both directions."""
    rate = f"{RATE * percent // 100}mbit"
    ends = (
        (hosts._namespace(hosts.names[host]), "eth0"),
        (hosts._namespace("bridge"), f"port{host}"),
    )
    for namespace, device in ends:
        _run("ip", "netns", "exec", namespace, "tc", "qdisc", "change", "dev", device, "root",
             "tbf", "rate", rate, "burst", "65536", "latency", "500ms")  # fmt: skip


def is_named(finding: Finding | None, planted: Planted) -> bool:
    """Whether a finding is about the planted cause."""
    if planted.kind is None or finding is None or finding.kind is not planted.kind:
        return planted.kind is None and (finding is None or finding.kind in HARMLESS)
    if planted.kind is Kind.SLOW_LINK:
        return finding.host == f"host{planted.victim}"
    if planted.kind is Kind.UNNEEDED_CALL:
        return finding.place is not None and finding.place.collective == "barrier"
    return finding.ranks == (planted.victim,)


def try_once(planted: Planted, steps: int) -> tuple[Verdict | None, Finding | None]:
    """Launch a program, and return its verdict."""
    with tempfile.TemporaryDirectory() as directory:
        launch(planted, Path(directory), steps)
        dumps, _ = read_all(Path(directory))
        verdict = judge(dumps)
    return verdict, next(iter(verdict.findings), None)


def main() -> None:
    """Launch, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--launches", type=int, default=100)
    parser.add_argument("--causes", default=",".join(CAUSES))
    parser.add_argument("--backends", default="mpi,mpi,torch")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    table: Counter[tuple[str, str]] = Counter()
    right: Counter[str] = Counter()
    until = time.monotonic() + 60 * options.minutes
    causes, backends = options.causes.split(","), options.backends.split(",")
    for number in range(options.launches):
        if time.monotonic() > until:
            break
        cause = causes[number % len(causes)]
        backend = "mpi" if cause.startswith("link") else draw.choice(backends)
        planted = Planted(cause, draw.randrange(SIZE), backend)
        begin = time.monotonic()
        try:
            verdict, finding = try_once(planted, 25 if cause.startswith("link") else options.steps)
        except Exception as error:
            print(f"{number} {planted} failed: {error!r}", flush=True)
            continue
        name = finding.kind.value if finding else "nothing"
        is_right = is_named(finding, planted)
        table[cause, name] += 1
        right[cause] += is_right
        text = next(sentences(verdict)) if verdict else ""
        print(
            f"{number} {'right' if is_right else 'WRONG'} {cause} {planted.backend} on "
            f"{planted.victim}, {time.monotonic() - begin:.0f} s: {name}: {text}", flush=True,
        )  # fmt: skip
    show(table, right)


def show(table: Counter[tuple[str, str]], right: Counter[str]) -> None:
    """Print the planted causes by the verdicts."""
    names = sorted({name for _, name in table})
    print(f"{'planted':10}{'launches':>9}{'right':>7}  {'  '.join(names)}")
    for cause in dict.fromkeys(cause for cause, _ in table):
        counts = [table[cause, name] for name in names]
        cells = "  ".join(
            f"{count:>{len(name)}}" for count, name in zip(counts, names, strict=True)
        )
        print(f"{cause:10}{sum(counts):>9}{right[cause]:>7}  {cells}")


if __name__ == "__main__":
    main()
