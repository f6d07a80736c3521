"""The command ``mpicoll.tune``: measure candidates side by side, and write what won.

At every size the candidates are the library's own call and the schedules that may win, over
each transport. A candidate is *good enough* where it cannot be told from the fastest; the
table then takes the fewest ranges of sizes, each served by one candidate that is good enough
in all of it; native where it is. So a table does not flip between equals, and never holds what
loses to native.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from pathlib import Path
from typing import Any, NoReturn

import click

from mpicoll.bench import cli
from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.machine.processes import other_load, oversubscription, own_process
from mpicoll.measurement import cases
from mpicoll.measurement.cases import Case, Group, Wanted, is_known
from mpicoll.measurement.measure import Bench, Candidate, Settings
from mpicoll.measurement.statistics import median_interval
from mpicoll.notation.contract import collective
from mpicoll.selection import auto as choice
from mpicoll.selection import tables
from mpicoll.text.names import split_names, swept_names, with_all
from mpicoll.text.sizes import parse_size

SIZES = tuple(4 << (2 * step) for step in range(12))
_MARGIN, _DOUBT = 1.03, 1.06
"""How much slower than the fastest is as good; and where samples cannot tell them apart."""

_ATTACHED = 8 << 20
"""Payloads from which attach is tried: on smaller arrays its time hangs on the kernel's pages."""

_PRECISE = Settings(precision=0.02, least=10)

_HELP = """Find what algorithm="auto" should run here, and write it into a decision table.

Run it with as many ranks as the programs that will use the table; it keeps what it has for
other numbers of ranks. COLLECTIVES are all by default.
"""
_PARAMETERS: list[click.Parameter] = [
    click.Argument(["collectives"], nargs=-1, metavar="[COLLECTIVES]..."),
    cli.option("--backends", "--backend", callback=cli.named, metavar="A,B",
               help="mpi4py, torch, or both (default)."),
    cli.option(
        "--algorithms", "--algorithm", callback=cli.named, metavar="A,B|all",
        help="Try these too: 'chain(segments=16:256:*2)', openmpi_default, ring@cma, ...",
    ),
    cli.option("--sizes", callback=cli.named, metavar="4,1K,1M",
               help="Total bytes (default 4 to 16M by 4)."),
    cli.option(
        "--time", "budget", type=click.FloatRange(0, min_open=True), default=240.0, shown=True,
        help="Seconds for the whole run.",
    ),
    cli.option(
        "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
        help=f"The table (default: ${tables.VARIABLE}, else ~/.cache/mpicoll/table.json).",
    ),
    cli.option(
        "-T", "--timeout", type=click.FloatRange(0), default=60.0, shown=True,
        help="Seconds after which a case counts as hung; 0 waits for ever.",
    ),
    cli.option("--interface", metavar="NAME", help="Network interface of torch.distributed."),
    cli.option("--resume", is_flag=True, help="Leave out the collectives that the table has."),
    cli.ranks_per_node(),
]  # fmt: skip


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    wanted: Wanted
    backends: tuple[str, ...]
    budget: float
    output: Path
    timeout: float
    interface: str | None
    resume: bool


def start(worlds: cli.Worlds) -> NoReturn:
    """Run the command over these backends and leave with its exit status."""
    command = click.Command("tune", callback=lambda **given: parse(given, worlds), help=_HELP)
    command.params += _PARAMETERS
    cli.run_command(command, lambda options: run(options, worlds))


def parse(given: dict[str, Any], worlds: cli.Worlds) -> Options:
    """Check the command line on its own; every process comes to the same result.

    Raises:
        ArgumentError: a value cannot be meant.
    """
    names = tuple(each if each == "all" else collective(each).name for each in given["collectives"])
    sizes = tuple(map(parse_size, split_names(given["sizes"]))) if given["sizes"] else SIZES
    more = swept_names(given["algorithms"] or "")
    if "auto" in more:
        raise ArgumentError("auto is what this is to decide: name other algorithms")
    return Options(
        Wanted(names, more, tuple(sorted(set(sizes)))), cli.backends(given["backends"], worlds),
        given["budget"], given["output"] or tables.default_path(), given["timeout"],
        given["interface"], given["resume"],
    )  # fmt: skip


def run(options: Options, makers: cli.Worlds) -> int:
    """Measure, and write the table on rank 0; return the exit status."""
    began = time.monotonic()
    watchdog = Watchdog(options.timeout)
    worlds, remarks = cli.launch(options.backends, options.interface, makers, watchdog)
    everyone = next(iter(worlds.values()))
    processes = everyone.exchange(own_process())
    oversubscribed = oversubscription(everyone.nodes, processes)
    is_root = everyone.rank == 0
    for remark in [*remarks, *oversubscribed, *other_load(everyone.nodes, processes)]:
        _say(is_root, f"warning: {remark}")
    cases.check_algorithms(options.wanted, worlds)
    bench = Bench(worlds, _PRECISE, watchdog, bool(oversubscribed))
    spent = everyone.exchange(time.monotonic() - began)[0]
    until = bench.meeting.time + int((options.budget - spent) * 1e9)
    done = everyone.exchange(_decided(worlds, options) if is_root else None)[0]
    groups = [
        each for each in cases.groups(options.wanted, bench.size) if each.what.name not in done
    ]
    if done:
        _say(is_root, f"{options.output} has {', '.join(sorted(done))} already")
    count = 0
    for name, by_backend in _measure(bench, groups, options.wanted.algorithms, until):
        entries = _entries(bench, name, by_backend, is_root)
        count += len(entries)
        # Each on its own: whoever is ended by a time limit keeps what is decided.
        if is_root:
            tables.write(options.output, entries)
    _say(is_root, f"wrote {count} decisions to {options.output}")
    everyone.exchange("written")
    return 0


def _decided(worlds: dict[str, Collectives], options: Options) -> set[str]:
    """Return the collectives that a table to go on with has for all backends."""
    if not options.resume or not options.output.exists():
        return set()
    found = [
        tables.load(name, world.library, choice.layout(world.nodes), options.output)
        for name, world in worlds.items()
    ]
    return set.intersection(*map(set, found))


def _say(is_root: bool, text: str) -> None:
    if is_root:
        print(text, flush=True)


def _measure(
    bench: Bench, groups: Sequence[Group], more: Sequence[str], until: int
) -> Iterator[tuple[str, dict[str, dict[int, list[Candidate]]]]]:
    """Yield each collective with what ran, by backend and size."""
    position = 0
    for name, same in groupby(groups, lambda group: group.what.name):
        found: dict[str, dict[int, list[Candidate]]] = {}
        for group in same:
            share = (until - bench.meeting.time) / 1e9 / (len(groups) - position)
            position += 1
            asked = [
                Case(group, backend, each)
                for backend, world in bench.worlds.items()
                for each in candidates(world, name, group.bytes_total, more)
            ]
            for each in filter(_is_good, bench.measure(asked, max(share, 0.0))):
                by_size = found.setdefault(each.case.backend, {})
                by_size.setdefault(group.bytes_total, []).append(each)
        yield name, found


def _entries(
    bench: Bench, name: str, by_backend: dict[str, dict[int, list[Candidate]]], is_root: bool
) -> list[dict[str, Any]]:
    """Return the entry of one collective for each backend, and say what it holds."""
    entries: list[dict[str, Any]] = []
    for backend, by_size in by_backend.items():
        world = bench.worlds[backend]
        entries.append({
            "backend": backend,
            "ranks_per_node": choice.layout(world.nodes),
            "collective": name,
            "fingerprint": tables.fingerprint(world.library),
            "ranges": ranges(by_size),
        })  # fmt: skip
        _say(is_root, f"{backend} {name}: {_shown(entries[-1]['ranges'])}")
    return entries


def candidates(world: Collectives, name: str, nbytes: int, more: Sequence[str]) -> list[str]:
    """Return what may be the fastest: native, schedules over each transport, what was asked for."""
    shared = world.transport.shared is not None and len(world.nodes) == 1
    schedules = choice.CANDIDATES[name] if shared else ()
    ways = [each for each in world.transports if each != world.transport.name]
    if nbytes < _ATTACHED:
        ways = ways[:1]
    usual = [f"{each}@{way}" for each in schedules for way in ways]
    known = world.algorithms(name)
    asked = (each for each in with_all(more, known) if is_known(collective(name), each, known))
    return [*dict.fromkeys(["native", *(usual if shared else choice.between(name)), *asked])]


def _is_good(each: Candidate) -> bool:
    """Whether a candidate ran, and was right."""
    return not each.message and not each.wrong and bool(each.samples)


def ranges(by_size: dict[int, list[Candidate]]) -> list[dict[str, Any]]:
    """Return the fewest ranges of sizes that candidates good enough can serve."""
    sizes = sorted(by_size)
    good = [good_enough(by_size[size]) for size in sizes]
    found: list[dict[str, Any]] = []
    start = 0
    while start < len(sizes):
        common, stop = good[start], start + 1
        while stop < len(sizes) and (both := {k: v for k, v in common.items() if k in good[stop]}):
            common, stop = both, stop + 1
        total = {each: sum(good[index][each] for index in range(start, stop)) for each in common}
        name = "native" if "native" in total else min(total, key=total.__getitem__)
        upto = None if stop == len(sizes) else round(sqrt(sizes[stop - 1] * sizes[stop]))
        found.append({"upto": upto, "algorithm": name,
                      "ratio": _ratio(by_size[sizes[start]], name)})  # fmt: skip
        start = stop
    return found


def good_enough(measured: Sequence[Candidate]) -> dict[str, float]:
    """Return the candidates that cannot be told from the fastest, with time over its time."""
    times = {each.case.algorithm: median_interval(list(each.samples.values())) for each in measured}
    best = min(times.values(), key=lambda time: time.value)
    return {
        name: time.value / best.value for name, time in times.items()
        if time.value <= best.value * _MARGIN
        or (time.low <= best.value and time.value <= best.value * _DOUBT)
    }  # fmt: skip


def _ratio(measured: Sequence[Candidate], name: str) -> float | None:
    """Return native's time over a candidate's at the first size of its range."""
    times = {each.case.algorithm: median_interval(list(each.samples.values())) for each in measured}
    if "native" not in times:
        return None
    return round(times["native"].value / times[name].value, 3)


def _shown(found: Sequence[dict[str, Any]]) -> str:
    return ", ".join(
        f"{each['algorithm']}" + ("" if each["upto"] is None else f" to {each['upto']} B")
        for each in found
    )  # fmt: skip
