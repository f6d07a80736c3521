"""Try random faults in random calls, and count how the other ranks end.

``python -m mpicoll.bench.chaos --faults kill,stop,slow,raise,mismatch --minutes 10``: each launch
has 2 to 8 ranks on one or several nodes, random calls that are checked, and one fault. Prints a
table, and writes a line of JSON for each launch; ends with 1 where a target is missed. ``--seed``
and ``--first`` replay launches. Ranks are processes that are forked, over torch.distributed.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple, NoReturn

import click
import numpy as np

from mpicoll.algorithms.registry import algorithms
from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, Parsed, Real, Whole, option
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, CollectiveError, RankLost, Unavailable, Unsupported
from mpicoll.machine.memory import SHM
from mpicoll.measurement.worlds import BOTH, Worlds
from mpicoll.notation.elements import ReduceOp, user_op
from mpicoll.text.names import split_names

FAULTS = ("kill", "stop", "slow", "raise", "mismatch")
_DEADLINE, _LATE = 4.0, 20.0
"""Seconds of the ranks' deadline; and after it, until a launch counts as hung."""
_CALLS, _SIZES, _MOST_RANKS = 12, (1, 7, 100, 3000, 20_000), 8
_LAYOUTS: tuple[dict[str, str], ...] = (
    {}, {"MPICOLL_RANKS_PER_NODE": "2"}, {"MPICOLL_RANKS_PER_NODE": "1"}, {"MPICOLL_SYMMETRIC": "0"}
)  # fmt: skip
_NAMES = ("allreduce", "reduce", "broadcast", "allgather", "scan")
_NAMED = 0.99
RIGHT, LOST, WRONG_NAME, WRONG, REFUSED, OTHER, HUNG, OWN = (
    "right", "named", "wrong name", "wrong result", "refused", "other error", "hung", "own error"
)  # fmt: skip
MISSES = (WRONG_NAME, WRONG, HUNG, OTHER)
"""Endings of which there should be none, or few."""


class Launch(NamedTuple):
    """One launch: everything about it follows from its number and the seed.

    Attributes:
        turn: the call before or in which the fault happens.
        shrinks: the survivors go on as a group of their own.
    """

    seed: int
    number: int
    fault: str
    ranks: int
    victim: int
    turn: int
    layout: dict[str, str]
    shrinks: bool


class Ending(NamedTuple):
    """How a rank ended: in which way, after how many seconds of waiting, and what it said."""

    rank: int
    how: str
    seconds: float
    text: str


def launch_of(seed: int, number: int, faults: Sequence[str], most: int) -> Launch:
    """Return a launch.

    >>> launch_of(1, 5, ["kill"], 8) == launch_of(1, 5, ["kill"], 8)
    True
    """
    choose = random.Random(f"{seed} {number}")
    ranks = choose.randint(2, most)
    return Launch(
        seed, number, choose.choice(list(faults)), ranks, choose.randrange(ranks),
        choose.randint(2, _CALLS - 4), choose.choice(_LAYOUTS), choose.random() < 0.5,
    )  # fmt: skip


# -- a rank ---------------------------------------------------------------------------------


class _Player:
    """The random calls of one rank; `choose` draws alike on all of them."""

    def __init__(self, c: Collectives, launch: Launch, choose: random.Random) -> None:
        self.c, self.launch, self.choose = c, launch, choose
        self.turn, self.breaks = 0, False
        self.op: ReduceOp = user_op(self._fold, commutative=True)

    def _fold(self, left: Any, right: Any) -> Any:
        if self.breaks:
            raise ZeroDivisionError("planted")
        return left + right

    def play(self) -> bool:
        """Make a call, with the fault where it is due; whether its result is right."""
        self.turn += 1
        c, choose, launch = self.c, self.choose, self.launch
        is_due = self.turn == launch.turn
        broken = is_due and launch.fault == "raise"
        name = choose.choice(_NAMES if not broken else ("allreduce", "scan"))
        count, root = choose.choice(_SIZES), choose.randrange(c.size)
        op: Any = self.op if broken or choose.random() < 0.2 else "sum"
        algorithm = choose.choice(["auto", *map(str, algorithms(name))])
        is_victim = is_due and c.rank == launch.victim
        self.breaks = broken and is_victim
        if is_victim:
            _happen(launch.fault)
        if is_victim and launch.fault == "mismatch":
            count += 1
        x = self._array(np.arange(count, dtype=np.int64) + c.rank)
        given: dict[str, Any] = {"algorithm": algorithm}
        given |= {"op": op} if name in ("allreduce", "reduce", "scan") else {}
        given |= {"root": root} if name in ("reduce", "broadcast") else {}
        try:
            found = self._run(name, x, given, choose.randrange(3))
        except (Unsupported, Unavailable):
            return True
        wanted = _wanted(name, count, c.rank, c.size, root)
        return wanted is None or np.array_equal(c.transport.arrays.to_host(found), wanted)

    def _array(self, host: Any) -> Any:
        arrays = self.c.transport.arrays
        array = arrays.empty(host.shape, str(host.dtype))
        arrays.from_host(array, host)
        return array

    def _run(self, name: str, x: Any, given: dict[str, Any], way: int) -> Any:
        if not way:
            return getattr(self.c, name)(x, **given)
        with self.c.plan(name, x, **given) as plan:
            plan.start().wait() if way == 1 else plan.run()
            return plan.out


def _wanted(name: str, count: int, rank: int, size: int, root: int) -> Any:
    """Return the result of a call; None where this rank has none."""
    inputs = [np.arange(count, dtype=np.int64) + each for each in range(size)]
    if name == "allgather":
        return np.stack(inputs)
    if name == "broadcast":
        return inputs[root]
    if name == "reduce" and rank != root:
        return None
    return sum(inputs[: rank + 1] if name == "scan" else inputs)


def _happen(fault: str) -> None:
    """Do to this process what a fault does."""
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "slow":
        time.sleep(_DEADLINE / 4)


def _rank(launch: Launch, rank: int, make: Callable[[], Collectives]) -> Ending:
    """Play the calls of one rank, and return how it ends."""
    choose = random.Random(f"calls of {launch.seed} {launch.number}")
    how, text, began = RIGHT, "", time.monotonic()
    c = make()
    player = _Player(c, launch, choose)
    try:
        while player.turn < _CALLS and how == RIGHT:
            began = time.monotonic()
            if not player.play():
                how, text = WRONG, f"call {player.turn}"
    except RankLost as error:
        how, text = LOST if error.rank == launch.victim else WRONG_NAME, str(error)
    except ZeroDivisionError as error:
        how, text = OWN, str(error)
    except ArgumentError as error:
        how, text = REFUSED, str(error)
    except BaseException as error:
        how, text = OTHER, repr(error)
    seconds = time.monotonic() - began
    if how == LOST and launch.shrinks and launch.fault in ("kill", "stop"):
        try:
            with c.shrink() as left:
                ones = left.allreduce(player._array(np.ones(3, np.int64)), algorithm="auto")
                if left.transport.arrays.to_host(ones).tolist() != [left.size] * 3:
                    how = WRONG
        except CollectiveError as error:
            how, text = OTHER, f"shrink: {error}"
    c.free()
    return Ending(rank, how, seconds, text)


# -- a launch -------------------------------------------------------------------------------


def run(launch: Launch, makers: Worlds, folder: str) -> list[Ending]:
    """Fork the ranks of a launch, and return how those end that the fault does not end."""
    waiting: dict[int, tuple[int, int]] = {}
    method = f"file://{folder}/{launch.number}"
    for rank in range(launch.ranks):
        reads, writes = os.pipe()
        process = os.fork()
        if not process:
            os.close(reads)
            _child(launch, rank, method, writes, makers)
        os.close(writes)
        waiting[reads] = rank, process
    gone = {launch.victim} if launch.fault in ("kill", "stop") else set[int]()
    processes = [process for _, process in waiting.values()]
    until = time.monotonic() + (launch.ranks + 2) * _DEADLINE + _LATE
    found: list[Ending] = []
    while any(rank not in gone for rank, _ in waiting.values()):
        left = until - time.monotonic()
        ready = select.select(list(waiting), [], [], max(0.0, left))[0]
        if not ready and left <= 0:
            break
        for reads in ready:
            rank, _ = waiting.pop(reads)
            with os.fdopen(reads) as pipe:
                text = pipe.read()
            if rank not in gone:
                found.append(Ending(*json.loads(text)) if text else
                             Ending(rank, OTHER, 0.0, "ended without a word"))  # fmt: skip
    for reads, (rank, _) in waiting.items():
        os.close(reads)
        if rank not in gone:
            found.append(Ending(rank, HUNG, _LATE, ""))
    for process in processes:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return found


def _child(launch: Launch, rank: int, method: str, writes: int, makers: Worlds) -> NoReturn:
    """Be a rank."""
    os.environ.update(launch.layout, MPICOLL_DEADLINE=str(_DEADLINE), MPICOLL_FLIGHT="0")
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(launch.ranks), TORCHCOLL_INIT_METHOD=method)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        ending = _rank(launch, rank, lambda: makers["torch"](None))
    except BaseException as error:
        ending = Ending(rank, OTHER, 0.0, repr(error))
    os.write(writes, json.dumps(ending).encode()[:60_000])
    os._exit(0)


def leftovers() -> set[str]:
    """Return the files of ours in shared memory."""
    return {each.name for each in Path(SHM).glob("mpicoll*")}


def missed(counts: Counter[str], left: int) -> Iterator[str]:
    """Yield in words each target that is missed."""
    for how in (WRONG, HUNG):
        if counts[how]:
            yield f"{counts[how]} ranks: {how}"
    if counts[OTHER]:
        yield f"{counts[OTHER]} ranks: {OTHER}"
    errors = counts[LOST] + counts[WRONG_NAME]
    if errors and counts[LOST] < _NAMED * errors:
        yield f"{counts[LOST] / errors:.2%} of errors name the right rank"
    if left:
        yield f"{left} files left in {SHM}"


def fault_names(text: str) -> tuple[str, ...]:
    """Return the faults that a list names.

    Raises:
        ArgumentError: it names none, or one that there is not.
    """
    names = split_names(text)
    if not names or (unknown := {*names} - {*FAULTS}):
        given = ", ".join(sorted(unknown)) if names else "nothing"
        raise ArgumentError(f"no fault {short(given)}: known are {', '.join(FAULTS)}")
    return names


@click.command("chaos", cls=Command, help=__doc__)
@option(
    "--faults", type=Parsed("faults", fault_names), default=",".join(FAULTS), shown=True,
    help="Which, by commas.",
)  # fmt: skip
@option("--minutes", type=Real(0.01, 10_000), default=10.0, shown=True)
@option("--launches", type=Whole(0, 10**7), default=0, help="At most so many; 0 for any number.")
@option("--seed", type=Whole(0), default=1, shown=True)
@option("--first", type=Whole(0), default=0, shown=True, help="The number of the first launch.")
@option("--ranks", type=Whole(2, _MOST_RANKS), default=_MOST_RANKS, shown=True, help="At most.")
@option("-J", "--output", type=FILE, help="Add the records to this file.")
@click.pass_obj
def main(
    makers: Worlds, /, faults: Sequence[str], minutes: float, launches: int, seed: int, first: int,
    ranks: int, output: Path | None,
) -> int:  # fmt: skip
    """Try the faults, print the table, and return 1 where a target is missed."""
    importlib.import_module("torchcoll.transport")  # each rank would take seconds for it

    before, until = leftovers(), time.monotonic() + 60 * minutes
    counts: dict[str, Counter[str]] = {each: Counter() for each in faults}
    tried: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mpicoll-chaos-") as folder:
        number = first
        while time.monotonic() < until and (not launches or number < first + launches):
            launch = launch_of(seed, number, faults, ranks)
            endings = run(launch, makers, folder)
            tried[launch.fault] += 1
            counts[launch.fault].update(each.how for each in endings)
            if output:
                with output.open("a") as file:
                    record = {**launch._asdict(), "endings": [each._asdict() for each in endings]}
                    file.write(json.dumps(record) + "\n")
            number += 1
    ways = (RIGHT, LOST, WRONG_NAME, REFUSED, OWN, WRONG, HUNG, OTHER)
    print(f"{'fault':10}{'launches':>9}" + "".join(f"{each:>14}" for each in ways))
    for fault, found in counts.items():
        print(f"{fault:10}{tried[fault]:9}" + "".join(f"{found[each]:14}" for each in ways))
    left = len(leftovers() - before)
    total = sum(counts.values(), Counter[str]())
    found_missed = list(missed(total, left))
    for text in found_missed:
        print(f"missed: {text}")
    print(f"{sum(tried.values())} faults, seed {seed}, {left} files left in {SHM}")
    return int(bool(found_missed))


if __name__ == "__main__":
    sys.exit(main(obj=BOTH))
