"""Try random faults in random calls, and count how the ranks end.

``python -m tests.selftest.chaos --faults kill,stop,slow,raise,mismatch,cut --minutes 10``: each
launch has 2 to 8 ranks on one node, on several nodes, or on emulated hosts, random calls that are
checked, and one fault after the other; several run at once, as ranks under a fault mostly wait.
Prints a table, and writes a line of JSON for each launch; ends with 1 where a target is missed.
``--seed`` and ``--first`` replay launches. Ranks of torch are forked, those of mpi4py start under
mpirun, each by a shell that outlives it: mpirun ends all others where a process that it has started
is killed.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from reprlib import repr as short
from typing import Any

import click

from mpicoll.algorithms.registry import algorithms
from mpicoll.cli.command import LauncherCommand
from mpicoll.cli.ending import unwind_at_termination
from mpicoll.cli.options import OUTPUT_FILE, Parsed, Real, Whole, option
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.hosts.emulation import Hosts, missing
from mpicoll.machine.memory import SHM
from mpicoll.measurement.worlds import ALL_BACKENDS, Worlds
from mpicoll.text.lines import Lines
from mpicoll.text.names import split_names
from tests.selftest.faults import CUT, FAULTS, MOST_HOSTS, MOST_RANKS, Launch, launch_of
from tests.selftest.launches import LaunchResult, run
from tests.selftest.ranks import (
    DESCRIPTOR,
    HUNG,
    LOST,
    OTHER_ERROR,
    OWN_ERROR,
    PAUSED,
    REFUSED,
    RIGHT,
    THREAD,
    WRONG,
    WRONG_NAME,
    held,
)
from tests.selftest.side_by_side import side_by_side

SCHEMA = "mpicoll.chaos/1"
_NAMED = 0.99
_GROWTH = 4
"""Descriptors and threads that a rank may hold more, or one for two faults."""
MISSES = (WRONG_NAME, WRONG, HUNG, OTHER_ERROR)
"""Endings of which there should be none, or few."""
_WAYS = (RIGHT, LOST, WRONG_NAME, REFUSED, OWN_ERROR, WRONG, HUNG, OTHER_ERROR, PAUSED)


def leftovers() -> set[str]:
    """Return the files of ours in shared memory."""
    return {path.name for path in Path(SHM).glob("mpicoll*")}


def missed(counts: Counter[str], remains: Sequence[str]) -> Iterator[str]:
    """Yield in words each target that is missed."""
    for how in (WRONG, HUNG, OTHER_ERROR):
        if counts[how]:
            yield f"{counts[how]} ranks: {how}"
    errors = counts[LOST] + counts[WRONG_NAME]
    if errors and counts[LOST] < _NAMED * errors:
        yield f"{counts[LOST] / errors:.2%} of errors name the right rank"
    yield from remains


def fault_names(text: str) -> tuple[str, ...]:
    """Return the faults that a list names.

    Raises:
        ArgumentError: it names none, or one that there is not.
    """
    names = split_names(text)
    if not names or (unknown := {*names} - {*FAULTS}):
        wrong_names = ", ".join(sorted(unknown)) if names else "nothing"
        raise ArgumentError(f"no fault {short(wrong_names)}: known are {', '.join(FAULTS)}")
    return names


def _possible(kinds: Sequence[str]) -> tuple[list[str], bool]:
    """Return the faults that can be tried here, and whether hosts can be emulated.

    Raises:
        ArgumentError: there is none.
    """
    why = missing()
    lacking = {CUT: f"emulated hosts: {why}"} if why else {}
    for kind in {*kinds} & {*lacking}:
        print(f"{kind} is left out, as it takes {lacking[kind]}", file=sys.stderr)
    available_kinds = [fault for fault in kinds if fault not in lacking]
    if not available_kinds:
        raise ArgumentError(f"no fault is left of {', '.join(kinds)}")
    return available_kinds, why is None


def _import_for_ranks() -> None:
    """Import torch before its ranks are forked: each would take seconds for it."""
    for name in ("torchcoll.transport", "torchcoll.launch", "mpicoll.flight.groups"):
        importlib.import_module(name)
    algorithms("allreduce")


def _launched(
    numbers: Sequence[int], plan: dict[str, Any], backend: str, deadline: float, folder: Path,
    make: Callable[[], Collectives], hosts: Hosts | None, until: float,
) -> Iterator[tuple[Launch, LaunchResult]]:  # fmt: skip
    """Yield launches of these numbers with their results, as long as there is time."""
    for number in numbers:
        if time.monotonic() >= until:
            return
        launch = launch_of(**plan, number=number, backend=backend)
        numbered = {**plan, "number": number}
        yield launch, run(launch, numbered, deadline, folder, make, hosts, until)


class _Counts:
    """The results of all launches."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.ways: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
        self.fault_counts: Counter[str] = Counter()
        self.launches, self.longest, self.grown, self.remains = 0, 0.0, (0, 0), list[str]()

    def add(self, number: int, kinds: Sequence[str], result: LaunchResult) -> None:
        """Add a launch, the kinds of whose faults are given."""
        self.launches += 1
        for kind, endings in zip(kinds, result.endings, strict=False):
            self.fault_counts[kind] += 1
            self.ways.setdefault(kind, Counter()).update(ending.how for ending in endings)
            self.longest = max(self.longest, *(ending.seconds for ending in endings), 0.0)
        self.remains += result.remains
        grown = tuple(
            sum(count for kind, count in result.grown.items() if kind.startswith(which))
            for which in (DESCRIPTOR, THREAD)
        )
        self.grown = max(self.grown[0], grown[0]), max(self.grown[1], grown[1])
        if max(grown) > max(_GROWTH, len(result.endings) // 2):
            kinds_of = ", ".join(
                f"{count:+} {kind}" for kind, count in result.grown.items() if count
            )
            self.remains.append(f"held more in launch {number} ({kinds_of})")

    def table(self) -> Iterator[str]:
        """Yield the lines of the table."""
        yield f"{'fault':10}{'tried':>9}" + "".join(f"{way:>14}" for way in _WAYS)
        for fault, endings in self.ways.items():
            row = "".join(f"{endings[way]:14}" for way in _WAYS)
            yield f"{fault:10}{self.fault_counts[fault]:9}{row}"
        yield (
            f"{self.launches} launches; the longest call that a fault ended: {self.longest:.3g} s; "
            f"ranks hold at most {self.grown[0]} descriptors and {self.grown[1]} threads more than "
            "when they were warm"
        )


@click.command("chaos", cls=LauncherCommand, help=__doc__)
@option(
    "--faults", type=Parsed("faults", fault_names), default=",".join(FAULTS), shown=True,
    help="Which, by commas.",
)  # fmt: skip
@option("--minutes", type=Real(0.01, 10_000), default=10.0, shown=True)
@option("--launches", type=Whole(0, 10**7), default=0, help="At most so many; 0 for any number.")
@option("--each", type=Whole(1, 10**4), default=40, shown=True, help="Faults of a launch, at most.")
@option("--backend", type=click.Choice([*ALL_BACKENDS]), default="torch", shown=True)
@option("--deadline", type=Real(0.5, 300), default=4.0, shown=True, help="Of the ranks, seconds.")
@option("--at-once", type=Whole(1, 256), default=2, shown=True, help="Launches.")
@option("--seed", type=Whole(0), default=1, shown=True)
@option("--first", type=Whole(0), default=0, shown=True, help="The number of the first launch.")
@option("--ranks", type=Whole(2, MOST_RANKS), default=MOST_RANKS, shown=True, help="At most.")
@option("--hosts-only", is_flag=True, help="Run every launch on emulated hosts.")
@option("-J", "--output", type=OUTPUT_FILE, help="Add the records to this file.")
@click.pass_obj
def main(
    makers: Worlds, /, faults: Sequence[str], minutes: float, launches: int, each: int,
    backend: str, deadline: float, at_once: int, seed: int, first: int, ranks: int,
    hosts_only: bool, output: Path | None,
) -> int:  # fmt: skip
    """Try the faults, print the table, and return 1 where a target is missed."""
    records = Lines(output, f'{{"schema": "{SCHEMA}", '.encode(), keep=True)
    kinds, hosts = _possible(faults)
    if hosts_only and not hosts:
        raise ArgumentError(f"hosts cannot be emulated here: {missing()}")
    unwind_at_termination()  # removes the hosts
    if backend == "torch":
        _import_for_ranks()

    old_files, own_resources, until = leftovers(), held(), time.monotonic() + 60 * minutes
    counts, last = _Counts(kinds), first + (launches or 10**9)
    with ExitStack() as stack:
        prefix = "mpicoll-chaos-"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        plan: dict[str, Any] = {"seed": seed, "kinds": kinds, "max_ranks": ranks, "faults": each,
                "hosts": hosts, "hosts_only": hosts_only}  # fmt: skip
        turns = [range(first + turn, last, at_once) for turn in range(at_once)]
        parts = [
            _launched(numbers, plan, backend, deadline, folder, partial(makers[backend], None),
                      stack.enter_context(Hosts(MOST_HOSTS)) if hosts else None, until)
            for numbers in turns if numbers
        ]  # fmt: skip
        for launch, result in side_by_side(parts):
            counts.add(launch.number, [fault.kind for fault in launch.faults], result)
            endings = [ending._asdict() for part in result.endings for ending in part]
            record = {"schema": SCHEMA, **launch._asdict(), "endings": endings,
                      "left": result.remains, "grown": +result.grown}  # fmt: skip
            record["faults"] = [fault._asdict() for fault in launch.faults]
            records.append([json.dumps(record)])
    for text in counts.table():
        print(text)
    remains = [f"{name} is left in {SHM}" for name in sorted(leftovers() - old_files)]
    remains += [f"{remain} is left" for remain in counts.remains]
    if more := held() - own_resources:
        remains.append(f"held more by this process: {dict(more)}")
    found_missed = list(missed(sum(counts.ways.values(), Counter[str]()), remains))
    for text in found_missed:
        print(f"missed: {text}")
    print(f"{sum(counts.fault_counts.values())} faults, seed {seed}, {len(remains)} things left")
    return int(bool(found_missed))


if __name__ == "__main__":
    sys.exit(main(obj=ALL_BACKENDS))
