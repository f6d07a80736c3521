"""Measure how long ranks of a node wait for each other, and read each other's memory.

Each rank copies, reads private memory of the next one, raises a flag for it, and hands it bytes
through shared memory: over the executor, the cores and the kernel at hand. Where ranks share cores,
what they take to wait is the scheduler's affair, which no short probe can tell: there it only
copies and reads private memory, for which no rank waits.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from time import perf_counter_ns

from mpicoll.backend import SYMMETRIC, SharedMemory, Thunk, Transport
from mpicoll.errors import Unavailable
from mpicoll.execution.compiled import Table
from mpicoll.execution.plan import Plan, compiled, scheduled
from mpicoll.execution.shared_memory import Binding
from mpicoll.memory import cma
from mpicoll.memory.layout import lay_out
from mpicoll.memory.segments import tile_of
from mpicoll.notation.elements import reduce_op
from mpicoll.notation.schedule import Block, Round, copy, recv, send
from mpicoll.programs.instructions import Reach
from mpicoll.programs.messages import INPUT, OUTPUT
from mpicoll.programs.shared_memory import share
from mpicoll.runtime.rates import NEVER, PROBED, Costs, Readings, constants, costs_of

SWITCH = "MPICOLL_PROBE"
"""``0`` in this variable takes the constants of the reference machine instead."""
_WORD, _FEW = 8, 16 * 1024
_DTYPE = "float64"
_PASSES, _NANOSECONDS = 24, 20_000_000
"""How often everything is timed, of which the first few are slow, and after how long no more."""
_ALONE = 5
"""How often in a pass what needs no other rank is timed."""
_BYTES, _FLAGS, _SHORT = 5, 20, 20_000
"""How often in a pass bytes are passed and a flag is raised, where a flag has taken less than these
nanoseconds. Of calls on end only the first waits for a rank that comes late."""

_Schedule = tuple[list[Round], list[Block], list[Block]]
"""The rounds of a rank, and the blocks of its input and of its output."""
_Key = tuple[tuple[int, ...], bool, bool]
_found: dict[_Key, Costs] = {}
"""What this process has measured, by the processes of the ranks and how they run programs."""


def costs(transport: Transport, *, executes: bool) -> Costs:
    """Return the cost of moving bytes among the ranks of a group, alike on all; collective.

    Measured once for the same processes, or some of them.

    Args:
        executes: the compiled executor runs programs.
    """
    shared = transport.shared
    assert shared is not None
    policy = shared.wait_policy
    usual = constants(compiled=executes, oversubscribed=policy.oversubscribed)
    if os.environ.get(SWITCH, "").lower() in ("0", "off", "no", "false"):
        return usual._replace(origin=f"constants: {SWITCH} turns the probe off")
    processes = transport.exchange(os.getpid(), int)
    key = tuple(sorted(processes)), policy.oversubscribed, executes
    known: list[Costs | None] = transport.exchange(_known(key), Costs | None)
    if known[0] is not None and all(known):
        return known[0]
    try:
        read = _read(transport, shared, processes, executes=executes)
    except Unavailable as error:
        return usual._replace(origin=f"constants, as there is no room for a probe: {error}")
    if isinstance(read, str):
        found = usual._replace(origin=f"constants, as the probe was disturbed: {read}")
    else:
        found = costs_of(read, usual, oversubscribed=policy.oversubscribed)
    _found[key] = found
    return found


def _known(key: _Key) -> Costs | None:
    """Return the costs that were measured for the same ranks or more."""
    processes, *how = key
    for (others, *others_how), found in list(_found.items()):
        if how == others_how and Counter(processes) <= Counter(others):
            return found
    return None


def _read(
    transport: Transport, shared: SharedMemory, processes: Sequence[int], *, executes: bool
) -> Readings | str:
    """Return the readings, the same on all ranks, or why they make no sense; collective."""
    rank, size = transport.rank, transport.size
    right, left = (rank + 1) % size, (rank - 1) % size
    local: _Schedule = [(copy(1, 0),)], [0], [1]
    ring: _Schedule = [(send(right, rank), recv(left, left))], [rank], [left]
    asked = [(local, PROBED)]
    if not shared.wait_policy.oversubscribed:
        asked += [(ring, PROBED), (ring, _WORD)]
    plans: list[Plan] = []
    try:
        for schedule, nbytes in asked:
            plans.append(_plan(transport, shared, schedule, nbytes, executes=executes))
        if len(plans) > 1 and executes:
            windowed = _plan(transport, shared, ring, PROBED, executes=True, windowed=True)
            plans.insert(2, windowed)
        fetches = [] if shared.no_cma else _fetches(transport, right, processes[right])
        own, *together = (plan.run for plan in plans)
        times = _usual(transport, [*fetches, own], together)
    finally:
        for plan in plans:
            plan.free()
    return _readings(times, len(fetches))


def _fetches(transport: Transport, peer: int, process: int) -> list[Thunk]:
    """Return reads of few and of many bytes of another rank's private memory; collective."""
    arrays = transport.arrays
    target, source = (arrays.empty((PROBED,), "uint8") for _ in range(2))
    arrays.copier(source, target)()
    address = transport.exchange(arrays.span(source)[0], int)[peer]
    start = arrays.span(target)[0]

    def bound(nbytes: int) -> Thunk:
        read = cma.reader(process, address, start, nbytes)
        read.arrays = source, target  # type: ignore[attr-defined]  # keeps them alive
        return read

    return [bound(_FEW), bound(PROBED)]


def _plan(
    transport: Transport, shared: SharedMemory, schedule: _Schedule, nbytes: int, *,
    executes: bool, windowed: bool = False,
) -> Plan:  # fmt: skip
    """Return a plan of a schedule through slots, as the executor at hand runs it; collective.

    Args:
        windowed: messages pass through a window of slots, not through one of two.
    """
    rounds, before, after = schedule
    arrays, count, title, op = transport.arrays, nbytes // 8, "probe", reduce_op("sum")
    buffers = {name: arrays.empty((count,), _DTYPE) for name in (INPUT, OUTPUT)}
    # Pages that were never written are all the same one, in the cache.
    arrays.copier(buffers[INPUT], buffers[OUTPUT])()
    tile = tile_of(SYMMETRIC, compiled=executes) // 8
    reach = Reach(shared.others, frozenset(), NEVER, tile)
    program = share(rounds, dict.fromkeys([*before, *after], count), before, after, reach)
    laid_out = lay_out(
        program, shared, buffers, _DTYPE, what=title, meets=False, like=None,
        tile=tile if windowed else 0,
    )  # fmt: skip
    if executes:
        table = Table(laid_out, _DTYPE, op, title)
        table.fill()
        return compiled(title, SYMMETRIC, None, table.made(), laid_out.resources)
    variants = Binding(laid_out, _DTYPE, op, title).variants(transport, 0)
    return scheduled(title, SYMMETRIC, None, variants, [], laid_out.resources)


def _usual(transport: Transport, alone: Sequence[Thunk], together: Sequence[Thunk]) -> list[float]:
    """Return the usual time of each on an idle machine, of the times of the slowest rank.

    It is one that a quarter of the passes do not exceed: the shortest time of bytes that are passed
    finds the slots in a better cache than most calls do.

    Args:
        alone: what needs no other rank; `together`: what does, a flag last.
    """
    once = [1] * len(together)
    begun, calls, passes = perf_counter_ns(), once, []
    for _ in range(_PASSES):
        times = [min(_time(each, 1) for _ in range(_ALONE)) for each in alone]
        for each, many in zip(together, calls, strict=True):
            each()  # the ranks come to it at different times
            times.append(_time(each, many))
        every = transport.exchange([*times, perf_counter_ns() - begun], list[float])
        *slowest, elapsed = map(max, zip(*every, strict=True))
        passes.append(slowest)
        is_short = together and slowest[-1] < _SHORT
        calls = [*[_BYTES] * (len(together) - 1), _FLAGS] if is_short else once
        if elapsed > _NANOSECONDS:
            break
    return [sorted(each)[len(each) // 4] for each in zip(*passes, strict=True)]


def _time(run: Thunk, calls: int) -> float:
    """Return the nanoseconds of a call."""
    begun = perf_counter_ns()
    for _ in range(calls):
        run()
    return (perf_counter_ns() - begun) / calls


def _readings(times: Sequence[float], fetches: int) -> Readings | str:
    """Return the readings of these times, or how those of private memory contradict each other.

    Args:
        times: `fetches` reads of private memory, a copy, and where ranks have cores of their own,
            bytes through shared memory, where programs are compiled through a window, too, and a
            flag.
    """
    own, *shared = times[fetches:]
    read = Readings(own)
    if fetches:
        few, many = times[:fetches]
        per_byte = (many - few) / (PROBED - _FEW)
        fetch = few - _FEW * per_byte
        if not (per_byte > 0 and fetch > 0):
            return f"{_FEW} B of private memory took {few:,.0f} ns, {PROBED} B {many:,.0f} ns"
        read = read._replace(fetch=fetch, fetched=PROBED * per_byte)
    if shared:
        *moved, flag = shared
        passed, *windowed = (each - flag - own for each in moved)
        if passed > 0:
            read = read._replace(flag=flag, passed=passed)
            if windowed and windowed[0] > 0:
                read = read._replace(windowed=windowed[0])
    return read
