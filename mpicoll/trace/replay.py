"""Measure calls of a trace again, under every algorithm, by the benchmark."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from mpicoll.errors import ArgumentError, LaunchError
from mpicoll.machine.children import run_launcher
from mpicoll.machine.launches import hosts_of, mpirun
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import load, only
from mpicoll.text.numbers import count_text
from mpicoll.text.sizes import bytes_text
from mpicoll.trace.reading import Kind

_MOST_ON_A_CORE = 32


class Replayed(NamedTuple):
    """Medians in microseconds, as measured again.

    Attributes:
        ran: of what ran in the program, None where it was not measured.
        fastest: an algorithm with its transport.
    """

    kind: Kind
    ran: float | None
    fastest: str
    fastest_us: float

    def __str__(self) -> str:
        kind = self.kind
        title = f"{kind.call} of {bytes_text(kind.nbytes)} on {kind.ranks} ranks"
        if self.ran is None:
            return f"{title}: {self.fastest} {self.fastest_us:.2f} us is the fastest"
        if self.fastest_us >= self.ran:
            return f"{title}: {kind.algorithm} {self.ran:.2f} us is the fastest"
        saved = kind.seconds * (1 - self.fastest_us / self.ran)
        return (
            f"{title}: {kind.algorithm} {self.ran:.2f} us, {self.fastest} {self.fastest_us:.2f} "
            "us, "
            f"{self.ran / self.fastest_us:.2f} times as fast: {saved:.3f} s of {kind.seconds:.3f} s"
        )


def replay(kind: Kind, seconds: float) -> Replayed:
    """Measure a kind of calls under every algorithm; the benchmark prints its table.

    Args:
        seconds: for the whole run.

    Raises:
        LaunchError: there is no mpirun.
        ArgumentError: the benchmark has failed, or measured nothing.
    """
    contract = kind.contract
    assert contract is not None, "calls of objects are not measured"
    if kind.ranks > (limit := _MOST_ON_A_CORE * (os.cpu_count() or 1)):
        raise ArgumentError(
            f"{kind.call} on {kind.ranks} ranks is not measured again here: at most {limit}"
        )
    launcher = mpirun()
    if launcher is None:
        raise LaunchError("there is no mpirun to measure with")
    _check_nodes(kind)
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "records.jsonl"
        command = [
            launcher, "-n", str(kind.ranks), sys.executable, "-m", "mpicoll.bench", contract.name,
            "--backends", "mpi4py", "--algorithms", "all", "--calls", "plans", "--time",
            str(seconds), "-J", str(records),
            *(("--sizes", str(kind.nbytes)) if kind.nbytes else ()),
            *(("--datatype", kind.dtype) if kind.dtype else ()),
            *(("--op", kind.op) if kind.op else ()),
        ]  # fmt: skip
        if run_launcher(command):
            raise ArgumentError(f"{' '.join(command)} has failed")
        return _best(kind, [*only(CaseRecord, load(records))])


def _check_nodes(kind: Kind) -> None:
    """Raise ArgumentError unless the launcher spreads the ranks over as many hosts."""
    here, nodes = hosts_of(kind.ranks), max(1, len(kind.nodes))
    if here != nodes:
        raise ArgumentError(
            f"{kind.call} on {kind.ranks} ranks of {count_text(nodes, 'node')} is not measured "
            f"again here, as mpirun starts these ranks on {count_text(here, 'host')}. Use an "
            "allocation of Slurm or python -m mpicoll.hosts --once with as many ranks on each host"
        )


def _best(kind: Kind, records: list[CaseRecord]) -> Replayed:
    times = {
        f"{record.executed}@{record.transport}": record.time_us.median
        for record in records
        if record.time_us is not None and record.correct is not False
    }
    if not times:
        raise ArgumentError(f"{kind.call}: the benchmark has measured nothing")
    ran = "native" if kind.algorithm.startswith("native@") else kind.algorithm
    ran_us = [us for name, us in times.items() if name == ran or name.partition("@")[0] == ran]
    fastest = min(times, key=times.__getitem__)
    return Replayed(kind, min(ran_us, default=None), fastest, times[fastest])
