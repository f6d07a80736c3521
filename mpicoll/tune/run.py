"""One run: measure the candidates side by side, and write each decision at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from mpicoll.cli import ending
from mpicoll.cli.progress import ProgressBar
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.measurement import cases
from mpicoll.measurement.candidate import Candidate, Settings
from mpicoll.measurement.capacity import remarks_on_memory
from mpicoll.measurement.cases import Case, Group, Wanted
from mpicoll.measurement.measure import TIME_OVER, Bench
from mpicoll.measurement.ranks import Ranks, form_ranks
from mpicoll.measurement.worlds import Worlds
from mpicoll.selection import auto, tables
from mpicoll.tune.choosing import LEAST_SAMPLES, candidates, is_disturbed, ranges

_PRECISE = Settings(precision=0.02, min_samples=LEAST_SAMPLES)
_OVERRUN = 1.5
"""Times its share of the time after which a size has others left out."""

Measured = dict[str, dict[int, list[Candidate]]]
"""The candidates that ran, by backend and size."""


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


def run(options: Options, makers: Worlds) -> int:
    """Measure, and write the table on rank 0; return the exit status."""
    began = time.monotonic()
    ranks = form_ranks(options.backends, makers, options.timeout, options.interface)
    worlds, everyone, is_root = ranks.worlds, ranks.everyone, ranks.is_root
    ranks.check_alike(options)
    _refuse_output(options.output, everyone)
    for remark in [*ranks.left_out, *ranks.oversubscribed, *ranks.busy]:
        ranks.print(f"warning: {remark}")
    cases.check_algorithms(options.wanted, worlds)
    bench = Bench(worlds, _PRECISE, ranks.watchdog, bool(ranks.oversubscribed))
    spent = everyone.exchange(time.monotonic() - began)[0]
    until = bench.synchroniser.time + int((options.budget - spent) * 1e9)
    decided = everyone.exchange(
        _tuned_collectives(worlds, options) if is_root else None, set[str] | None
    )[0]
    groups = [
        group
        for group in cases.groups(options.wanted, bench.size)
        if group.contract.name not in decided
    ]
    if decided:
        ranks.print(f"{options.output} has {', '.join(sorted(decided))} already")
    all_cases = [_cases_of(bench, group, options.wanted.algorithms) for group in groups]
    for remark in remarks_on_memory(all_cases, worlds, ranks.watchdog):
        ranks.print(f"warning: {remark}")
    flag = "" if options.resume else " with --resume"
    ending.explain_interrupt(
        f"the finished collectives are in {options.output}, and the same command{flag} goes on"
    )
    count, unsaved = 0, list[dict[str, Any]]()
    for name, sizes, measured in _measure(bench, groups, options.wanted.algorithms, until):
        entries = _entries(ranks, name, sizes, measured, options.wanted)
        if not entries:
            ranks.print(f"warning: {name} gets no entry: --time {options.budget:g} is too short")
        count += len(entries)
        unsaved += entries
        # Write after each collective, so that a time limit loses no decision.
        if is_root and entries and _is_saved(options.output, unsaved):
            unsaved = []
    if groups and not count:
        raise ArgumentError(
            f"--time {options.budget:g} is too short to measure one size of one collective: give "
            "more seconds, fewer collectives or fewer backends"
        )
    if not unsaved:
        ranks.print(f"wrote {count} decisions to {options.output}")
    return int(everyone.exchange(bool(unsaved))[0])


def _refuse_output(path: Path, everyone: Collectives) -> None:
    """Check on rank 0, before anything is measured, that the table can be written.

    Raises:
        ArgumentError: on every rank, if it cannot.
    """
    complaint = ""
    if everyone.rank == 0:
        try:
            tables.check_output(path)
        except ArgumentError as error:
            complaint = str(error)
    if complaint := everyone.exchange(complaint)[0]:
        raise ArgumentError(complaint)


def _is_saved(path: Path, entries: list[dict[str, Any]]) -> bool:
    """Write entries into the table; if that fails, print them, so that none is lost."""
    try:
        tables.write(path, entries)
    except ArgumentError as error:
        print(f"warning: {error}. These entries are not in it:\n{tables.text(entries)}", flush=True)
        return False
    return True


def _tuned_collectives(worlds: dict[str, Collectives], options: Options) -> set[str]:
    """Return the collectives that the table already has for all backends."""
    if not options.resume or not options.output.exists():
        return set()
    decisions = [
        tables.load(
            name,
            world.library,
            auto.layout(world.nodes),
            options.output,
            _gpu(world, options.wanted),
        )
        for name, world in worlds.items()
    ]
    return set.intersection(*map(set, decisions))


def _measure(
    bench: Bench, groups: Sequence[Group], more: Sequence[str], until: int
) -> Iterator[tuple[str, int, Measured]]:
    """Yield each collective, its number of sizes, and the candidates that ran.

    None of them begins after `until`.
    """
    collectives = [[*sizes] for _, sizes in groupby(groups, lambda group: group.contract.name)]
    with ProgressBar(len(collectives), has_thread=False) as bar:
        for index, sizes in enumerate(collectives):
            now = bench.synchroniser.time
            bar.step(sizes[0].contract.name, remaining=(until - now) / 1e9)
            end = now + (until - now) // (len(collectives) - index)
            measured = measure_sizes(bench, sizes, more, end)
            bar.hide()
            yield sizes[0].contract.name, len(sizes), measured


def measure_sizes(bench: Bench, groups: Sequence[Group], more: Sequence[str], end: int) -> Measured:
    """Return the candidates that ran, of as many sizes as the time until `end` allows.

    A size counts if all its candidates have enough samples.
    """
    results: Measured = {}
    while groups and (began := bench.synchroniser.time) < end:
        share = (end - began) / len(groups)
        group, *groups = groups
        measured = bench.measure(_cases_of(bench, group, more), share / 1e9, end)
        if all(map(_is_complete, measured)):
            for candidate in filter(_is_good, measured):
                by_size = results.setdefault(candidate.case.backend, {})
                by_size.setdefault(group.bytes_total, []).append(candidate)
        now = bench.synchroniser.time
        if now - began > _OVERRUN * share:
            groups = spaced(groups, (end - now) // (now - began))
    return results


def spaced(groups: Sequence[Group], count: int) -> Sequence[Group]:
    """Return so many groups, one at least, with equal distances from each other.

    >>> spaced("abcdef", 3), spaced("abcdef", -1), spaced("ab", 5), spaced("", -1)
    (['b', 'd', 'f'], ['d'], 'ab', '')
    """
    if (count := max(1, count)) >= len(groups):
        return groups
    return [groups[len(groups) * (2 * number + 1) // (2 * count)] for number in range(count)]


def _cases_of(bench: Bench, group: Group, more: Sequence[str]) -> list[Case]:
    """Return the cases of a group."""
    return [
        Case(group, backend, algorithm)
        for backend, world in bench.worlds.items()
        for algorithm in candidates(
            world, group.contract.name, group.bytes_total, more, on_gpu=group.device == cases.CUDA
        )
    ]


def _gpu(world: Collectives, wanted: Wanted) -> str:
    """Return the model of this rank's GPU; empty for arrays on the host."""
    if wanted.device != cases.CUDA:
        return ""
    return world.transport.arrays.gpu_name(world.gpu())


def _is_complete(candidate: Candidate) -> bool:
    """Whether a candidate has samples enough for a verdict, or cannot run."""
    is_sampled = len(candidate.samples) >= LEAST_SAMPLES
    return is_sampled or candidate.message not in ("", TIME_OVER)


def _is_good(candidate: Candidate) -> bool:
    """Whether a candidate ran, with right results."""
    return not candidate.message and not candidate.wrong and bool(candidate.samples)


def _entries(
    ranks: Ranks, name: str, count: int, measured: Measured, wanted: Wanted
) -> list[dict[str, Any]]:
    """Return the entry of one collective for each backend, and print them.

    Args:
        count: number of sizes that were to be measured.
    """
    entries: list[dict[str, Any]] = []
    for backend, by_size in measured.items():
        world = ranks.worlds[backend]
        gpu = _gpu(world, wanted)
        entries.append({
            "backend": backend,
            "ranks_per_node": auto.layout(world.nodes),
            "collective": name,
            "device": tables.GPU if gpu else tables.HOST,
            "fingerprint": tables.fingerprint(world.library, gpu),
            "ranges": ranges(by_size),
        })  # fmt: skip
        sizes = "" if len(by_size) == count else f" ({len(by_size)} of {count} sizes measured)"
        disturbed = sum(any(map(is_disturbed, measured)) for measured in by_size.values())
        remark = f"; disturbed at {disturbed} of {len(by_size)} sizes, which decide nothing alone"
        ranks.print(
            f"{backend} {name}: {_ranges_text(entries[-1]['ranges'])}{sizes}"
            f"{remark if disturbed else ''}"
        )
    return entries


def _ranges_text(entries: Sequence[dict[str, Any]]) -> str:
    return ", ".join(
        part["algorithm"] + ("" if part["upto"] is None else f" to {part['upto']} B")
        for part in entries
    )
