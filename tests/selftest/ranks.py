"""Be a rank of a launch of chaos: make random calls, have the faults happen, and say how it ends.

``python -m tests.selftest.ranks PLAN`` is one of the ranks that MPI's launcher starts; those
of torch are forked.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpicoll.algorithms.registry import algorithms
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, CollectiveError, RankLost, Unavailable, Unsupported
from mpicoll.measurement.worlds import ALL_BACKENDS
from mpicoll.notation.elements import ReduceOp, user_op
from tests.selftest.drop_in import DropIn
from tests.selftest.faults import (
    BREAKING,
    CALLS,
    CUT,
    KILL,
    MISMATCH,
    RAISE,
    SLOW,
    STOP,
    Fault,
    Launch,
    launch_of,
)

RIGHT, LOST, WRONG_NAME, WRONG, REFUSED, OTHER_ERROR, HUNG, OWN_ERROR, PAUSED = (
    "right", "named", "wrong name", "wrong result", "refused", "other error", "hung", "own error",
    "paused",
)  # fmt: skip
DESCRIPTOR, THREAD = "descriptor", "thread"
CAME, READY = STEPS = "came", "has the group"
"""What a rank says before a fault, and goes on after once all have said it."""
_NAMES = ("allreduce", "reduce", "broadcast", "allgather", "scan")
_SIZES = (1, 7, 100, 3000, 20_000)
_SLOW = 0.25
"""Of the deadline."""
_MEETING = 0.5
"""Seconds in which the ranks that are left meet, about."""


class Ending(NamedTuple):
    """How the calls of a rank ended: in which way, after how many seconds, and what it said.

    Attributes:
        fault: the number of the fault.
        seconds: of the call that ended them.
        starved: seconds of that call in which this rank could run, and other processes did.
    """

    fault: int
    rank: int
    how: str
    seconds: float
    text: str
    starved: float = 0.0


class Wire:
    """Where a rank says how it ends, and is told to go on: lines of JSON over a socket."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.lines = self.socket.makefile("r")

    def say(self, **message: Any) -> None:
        """Send a message to the process that started this rank."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> None:
        """Return when whoever listens answers."""
        if not self.lines.readline():
            os._exit(0)


class Player:
    """The random calls of one rank under one fault; `choose` draws alike on all of them."""

    def __init__(
        self, c: Collectives, launch: Launch, fault: Fault, rank: int, wire: Wire,
        drop_in: DropIn | None = None,
    ) -> None:  # fmt: skip
        self.c, self.fault, self.rank, self.wire = c, fault, rank, wire
        # Others name the rank that leaves a call that differs; operators of users are MPI's.
        self.drop_in = None if fault.kind in (RAISE, MISMATCH) else drop_in
        self.choose = random.Random(f"calls of {launch.seed} {launch.number} {fault.number}")
        self.per_host, self.turn, self.breaks = launch.per_host, 0, False
        self.timer: threading.Timer | None = None
        self.op: ReduceOp = user_op(self._fold, commutative=True)

    def _fold(self, lhs: Any, rhs: Any) -> Any:
        if self.breaks:
            raise ZeroDivisionError("planted")
        return lhs + rhs

    def play(self) -> bool:
        """Make a call, with the fault where it is due; whether its result is right."""
        self.turn += 1
        c, choose, kind = self.c, self.choose, self.fault.kind
        is_due = self.turn == self.fault.turn
        is_raising = is_due and kind == RAISE
        name = choose.choice(_NAMES if not is_raising else ("allreduce", "scan"))
        count, root = choose.choice(_SIZES), choose.randrange(c.size)
        op: Any = self.op if is_raising or choose.random() < 0.2 else "sum"
        # MPI's own reductions end the process where an operator raises: mpi4py aborts.
        chosen = ["auto"] if not is_raising or c.backend != "mpi4py" else []
        algorithm = choose.choice([*chosen, *map(str, algorithms(name))])
        is_victim = is_due and self.rank in self.fault.victims
        self.breaks = is_raising and is_victim
        if is_victim:
            self._happen()
            count += kind == MISMATCH
        x = self._array(np.arange(count, dtype=np.int64) + c.rank)
        options: dict[str, Any] = {"algorithm": algorithm}
        options |= {"op": op} if name in ("allreduce", "reduce", "scan") else {}
        options |= {"root": root} if name in ("reduce", "broadcast") else {}
        try:
            result = self._run(name, x, options, choose.randrange(4))
        except (Unsupported, Unavailable):
            return True
        wanted = _wanted(name, count, c.rank, c.size, root)
        return wanted is None or np.array_equal(c.transport.arrays.to_host(result), wanted)

    def _array(self, host: Any) -> Any:
        arrays = self.c.transport.arrays
        array = arrays.empty(host.shape, str(host.dtype))
        arrays.from_host(array, host)
        return array

    def _run(self, name: str, x: Any, options: dict[str, Any], way: int) -> Any:
        if way == 3 and self.drop_in is not None and name != "scan":
            return self.drop_in.call(name, x, options.get("root", 0))
        if way in (0, 3):
            return getattr(self.c, name)(x, **options)
        with self.c.plan(name, x, **options) as plan:
            # A rank cannot leave a blocking call of MPI: at the deadline its process ends.
            is_blocking = plan.executor == "native" and self.c.backend == "mpi4py"
            plan.start().wait() if way == 1 or is_blocking else plan.run()
            return plan.out

    def _happen(self) -> None:
        """Have the fault happen to this process, now or in a moment."""
        fault = self.fault
        if fault.kind in (KILL, STOP):
            number = signal.SIGKILL if fault.kind == KILL else signal.SIGSTOP
            self.timer = threading.Timer(fault.delay, os.kill, (os.getpid(), number))
            self.timer.start()
            if not fault.delay:
                self.timer.join()
        elif fault.kind == SLOW:
            time.sleep(self.c.deadline * _SLOW)
        elif fault.kind == CUT and self.rank == fault.victims[0]:
            self.wire.say(cut=self.rank // self.per_host, waits=not fault.delay)
            if not fault.delay:
                self.wire.hear()

    def ending(self) -> Ending:
        """Make the calls, and return how they end."""
        how, text, began, starved = RIGHT, "", time.monotonic(), starvation()
        try:
            while self.turn < CALLS and how == RIGHT:
                began, starved = time.monotonic(), starvation()
                if not self.play():
                    how, text = WRONG, f"call {self.turn}"
                if self.fault.kind == RAISE and self.turn == self.fault.turn:
                    break
        except RankLost as error:
            lost = None if error.rank is None else self.fault.members[error.rank]
            how, text = LOST if self.fault.allows(self.rank, lost) else WRONG_NAME, str(error)
        except ZeroDivisionError as error:
            how, text = OWN_ERROR, str(error)
        except ArgumentError as error:
            how, text = REFUSED if self.fault.kind == MISMATCH else OTHER_ERROR, repr(error)
        except Exception as error:
            how, text = OTHER_ERROR, repr(error)
        seconds, starved = time.monotonic() - began, starvation() - starved
        ends = self.fault.kind in (KILL, STOP) and self.rank in self.fault.victims
        if ends and self.timer is None:  # another victim's has kept this one from its turn
            self._happen()
        if self.timer is not None:
            self.timer.join()
        return Ending(self.fault.number, self.rank, how, seconds, text[:2500], starved)


def starvation() -> float:
    """Return for how many seconds this process's first thread could run, and another one did."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):  # Linux without CONFIG_SCHED_INFO
        return 0.0


def _wanted(name: str, count: int, rank: int, size: int, root: int) -> Any:
    """Return the result of a call; None where this rank has none."""
    inputs = [np.arange(count, dtype=np.int64) + peer for peer in range(size)]
    if name == "allgather":
        return np.stack(inputs)
    if name == "broadcast":
        return inputs[root]
    if name == "reduce" and rank != root:
        return None
    return sum(inputs[: rank + 1] if name == "scan" else inputs)


def _shrunk(world: Collectives, fault: Fault, rank: int, seed: str) -> Collectives:
    """Return the group of the ranks that a fault has left, though one of these may end meanwhile.

    Raises:
        RankLost: a rank that lives is not there.
    """
    if rank == fault.second:
        delay = random.Random(seed).random() * _MEETING
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
    group = world.shrink()
    while group.size > len(fault.survivors):  # the second has come so far, and ends soon
        try:
            group.barrier()
            time.sleep(0.01)
        except RankLost:
            with group:
                group = group.shrink()
    if group.size < len(fault.survivors):
        raise RankLost(f"{group.size} of {len(fault.survivors)} ranks are left")
    ones = np.ones(3, np.int64)
    arrays = group.transport.arrays
    x = arrays.empty((3,), "int64")
    arrays.from_host(x, ones)
    if arrays.to_host(group.allreduce(x)).tolist() != [group.size] * 3:
        raise RankLost("a wrong sum of the ranks that are left")
    return group


def held() -> Counter[str]:
    """Return how many descriptors and threads of each kind this process has."""
    gc.collect()  # errors hold the frames of calls, and these arrays in shared memory
    counts: Counter[str] = Counter()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            kind, colon, _ = os.readlink(path).partition(":")
            counts[f"{DESCRIPTOR} of a {kind if colon else 'file'}"] += 1
    for path in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            counts[f"{THREAD} {(path / 'comm').read_text().strip()}"] += 1
    return counts


def make_drop_in(c: Collectives, launch: Launch, deadline: float) -> DropIn | None:
    """Return a communicator of the ranks of a group over mpi4py; collective.

    None if MPI runs its calls: a rank that waits in these does not notice that another has ended.
    """
    if launch.backend != "mpi4py" or c.size == 1:
        return None
    has_levels = len(c.nodes) > 1 and max(map(len, c.nodes)) > 1
    drop_in = DropIn(c, deadline, has_levels=has_levels)
    if drop_in.is_served:
        return drop_in
    drop_in.close()
    return None


def be_rank(
    launch: Launch, path: str, rank: int | None, deadline: float, make: Callable[[], Collectives]
) -> None:  # fmt: skip
    """Go through all faults of a launch.

    Args:
        deadline: of the calls under faults, in seconds.
        path: of the socket to say it to.
        rank: None where only the group tells.
        make: makes the group of all ranks.
    """
    os.environ.update(launch.layout)
    wire, group, drop_in = Wire(path), None, None
    if rank is not None:
        wire.say(rank=rank, process=os.getpid())
    world = make()
    if rank is None:
        rank = world.rank
        wire.say(rank=rank, process=os.getpid())
    gc.freeze()  # `held` would look through all modules each time
    for fault in launch.faults:
        if rank not in fault.members:
            break
        wire.say(step=CAME)
        wire.hear()
        if group is None:
            group = world.split(0)
            assert group is not None
            drop_in = make_drop_in(group, launch, deadline)
            group.deadline = deadline
        wire.say(step=READY)
        wire.hear()
        ending = Player(group, launch, fault, rank, wire, drop_in).ending()
        old_world = world
        if fault.kind == KILL:
            try:
                world = _shrunk(world, fault, rank, f"{launch.seed} {launch.number} {fault.number}")
            except CollectiveError as error:
                ending = ending._replace(how=OTHER_ERROR, text=f"shrink: {error}")
        wire.say(ending=ending)
        wire.hear()
        if fault.kind in BREAKING:
            group.free()
            if drop_in is not None:
                drop_in.close()
            group = drop_in = None
        if old_world is not world:
            old_world.free()
        if group is None:
            wire.say(held=held(), after=fault.number)
    wire.say(done=True)
    wire.hear()
    os._exit(0)


def main() -> None:
    """Be a rank of a launch that an argument describes."""
    plan = json.loads(sys.argv[1])
    path, deadline, plan["backend"] = plan.pop("path"), plan.pop("deadline"), "mpi4py"
    be_rank(launch_of(**plan), path, None, deadline, lambda: ALL_BACKENDS["mpi4py"](None))


if __name__ == "__main__":
    main()
