"""One run of the benchmark on every rank: form the groups, measure, print on rank 0."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from mpicoll.bench import layouts, render
from mpicoll.bench.record import case_records
from mpicoll.bench.resume import Ledger
from mpicoll.bench.summary import first_lines
from mpicoll.cli import ending
from mpicoll.cli.progress import ProgressBar
from mpicoll.errors import ArgumentError
from mpicoll.machine.gpu_links import own_gpu
from mpicoll.measurement import cases as candidates
from mpicoll.measurement.candidate import Candidate, Settings
from mpicoll.measurement.capacity import remarks_on_memory, weigh
from mpicoll.measurement.cases import Case, Group, Wanted
from mpicoll.measurement.description import describe_run, full_description
from mpicoll.measurement.gpu_copy import copy_bandwidth
from mpicoll.measurement.measure import Bench
from mpicoll.measurement.ranks import Ranks, form_ranks
from mpicoll.measurement.worlds import Worlds
from mpicoll.records.description import Run
from mpicoll.records.lines import CaseRecord, RunRecord
from mpicoll.records.reading import encoded
from mpicoll.text.numbers import count_text
from mpicoll.text.printable import printable
from mpicoll.text.sizes import rounded_size_text

_BEGIN = time.monotonic()
_START_UP = 6.0
_LEAST_PER_CASE = 0.05


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    wanted: Wanted
    settings: Settings
    backends: tuple[str, ...]
    layout: str
    output: Path | None
    resume: bool
    timeout: float
    lists: bool
    dry: bool
    interface: str | None
    memory: int | None = None


def run(options: Options, makers: Worlds) -> int:
    """Form the groups, then list, estimate or measure; return the exit status."""
    wanted = options.wanted
    ranks = form_ranks(
        options.backends, makers, options.timeout, options.interface,
        on_gpu=wanted.device == candidates.CUDA,
    )  # fmt: skip
    ranks.check_alike(options)
    candidates.check_algorithms(wanted, ranks.worlds)
    session = _Session(options, ranks)
    if options.lists:
        return session.list_algorithms()
    too_large = remarks_on_memory(
        session.cases_by_group(), ranks.worlds, ranks.watchdog, options.memory
    )
    if options.dry:
        session.remarks += too_large
        return session.estimate()
    for remark in too_large:
        ranks.log(f"warning: {remark}")
    described = describe_run(options.settings.seed, ranks)
    if ranks.gpu_ways:
        everyone = ranks.everyone
        described.gpu_transports = ranks.gpu_ways
        described.gpu_copy_GBps = round(copy_bandwidth(everyone, everyone.gpu()), 1)
        described.gpus = everyone.exchange(own_gpu(ranks.worlds).identity, str)
    return session.measure(described)


class _Session:
    """One run of the command on every rank; only rank 0 prints."""

    def __init__(self, options: Options, ranks: Ranks) -> None:
        self.options, self.ranks, self.worlds = options, ranks, ranks.worlds
        self.print, self.log, self.is_root = ranks.print, ranks.log, ranks.is_root
        self.control = ranks.everyone
        self.groups = list(candidates.groups(options.wanted, self.control.size))
        if not self.groups:
            raise ArgumentError(f"nothing to measure: {'; '.join(options.wanted.skipped)}")
        skipped = (f"skipped {reason}" for reason in options.wanted.skipped)
        self.remarks = [*ranks.left_out, *ranks.oversubscribed, *ranks.busy, *skipped]
        self.measured: list[Group] = []

    def cases_by_group(self) -> list[list[Case]]:
        """Return the cases of each group."""
        return [candidates.cases(group, self.worlds, self.options.wanted) for group in self.groups]

    # -- without measuring ------------------------------------------------------------

    def list_algorithms(self) -> int:
        """Print every algorithm by collective and backend, and the reason of each refusal."""
        bench = Bench(self.worlds, self.options.settings, self.ranks.watchdog)
        wanted = Wanted(
            collectives=self.options.wanted.collectives, algorithms=("all",), sizes=(64,),
            dtypes=self.options.wanted.dtypes[:1], ops=self.options.wanted.ops[:1],
        )  # fmt: skip
        for group in candidates.groups(wanted, self.control.size):
            self.print(f"{group.contract.name} on {self.control.size} ranks")
            members = bench.probe(candidates.cases(group, self.worlds, wanted))
            for name, members_of_backend in groupby(members, lambda member: member.case.backend):
                self._list_backend(name, list(members_of_backend))
        for remark in self.remarks:
            self.print(f"# {remark}")
        return 0

    def _list_backend(self, name: str, members: Sequence[Candidate]) -> None:
        good = [member.case.algorithm for member in members if not member.message]
        self.print(f"  {name}: {', '.join(good)}")
        for member in members:
            if member.message:
                self.print(f"    not {member.case.algorithm}: {member.message}")

    def estimate(self) -> int:
        """Print every case, and how long all of them take."""
        count, weights = 0, []
        for group, cases in zip(self.groups, self.cases_by_group(), strict=True):
            count += len(cases)
            for name, cases_of_backend in groupby(cases, lambda case: case.backend):
                self.print(f"{group}, {name}: {', '.join(case.name for case in cases_of_backend)}")
            weights.append((weigh(cases, self.worlds, self.options.memory), group))
        weight, largest = max(weights, key=lambda weighed: weighed[0].needed)
        if weight.needed:
            self.print(
                f"# memory: about {rounded_size_text(weight.needed)} per node for {largest}; "
                f"{rounded_size_text(weight.free)} are free"
            )
        lower = _START_UP + count * _LEAST_PER_CASE
        upper = max(lower, self.options.settings.budget)
        early, late = f"{lower:.0f} s", f"{upper:.0f} s"
        spread = f"{early} if all medians are known early, at most about {late}"
        self.print(
            f"# {count_text(count, 'case')} in {count_text(len(self.groups), 'group')}; estimated "
            f"time: {f'about {late}' if early == late else spread} (--time)"
        )
        for remark in self.remarks:
            self.print(f"# {remark}")
        return 0

    # -- measuring ----------------------------------------------------------------------

    def measure(self, run: Run) -> int:
        """Measure every group, write each record at once, and print the tables at the end."""
        ranks, settings = self.ranks, self.options.settings
        bench = Bench(
            self.worlds, settings, ranks.watchdog, bool(ranks.oversubscribed), self.options.memory
        )
        full = full_description(run, ranks.processes, settings, bench.synchroniser.sync_error)
        ledger = Ledger(self.control, full, self.options.output, resume=self.options.resume)
        self.remarks += ledger.remarks
        for remark in self.remarks:
            self.log(f"warning: {remark}")
        ending.explain_interrupt(_continuation(self.options))
        cases_by_group = self.cases_by_group()
        todo = [group_cases for group_cases in cases_by_group if ledger.missing(group_cases)]
        total = len(cases_by_group)
        if len(todo) < total:
            self.log(f"{total - len(todo)} of {total} groups are measured already")
        # Ranks started at different times, and all must stop at the same block.
        spent = self.control.exchange(time.monotonic() - _BEGIN)[0]
        budget = settings.budget - spent
        until = bench.synchroniser.time + int(budget * 1e9)
        if self.options.layout == "jsonl":
            self.print(encoded(RunRecord(run=full)))
        all_rows: list[CaseRecord] = []
        with ProgressBar(len(todo), has_thread=False) as bar:
            for cases in cases_by_group:
                fresh: list[CaseRecord] = []
                if ledger.missing(cases):
                    seconds = (until - bench.synchroniser.time) / 1e9
                    share = seconds / (len(todo) - self._begin_group(bar, cases[0].group, seconds))
                    to_measure = ledger.with_baselines(cases)
                    fresh = case_records(bench, bench.measure(to_measure, max(share, 0.0)), run)
                rows = ledger.add(cases, fresh)
                all_rows += rows
                self._publish(bar, rows)
        self._finish(all_rows)
        wrong = any(row.correct is False for row in all_rows)
        return int(self.control.exchange(wrong)[0])

    def _begin_group(self, bar: ProgressBar, group: Group, seconds: float) -> int:
        """Show which group begins, and return how many groups were measured before it."""
        count = len(self.measured)
        has_fixed_samples = self.options.settings.samples is not None
        bar.step(str(group), remaining=None if has_fixed_samples else seconds)
        self.measured.append(group)
        return count

    def _publish(self, bar: ProgressBar, rows: list[CaseRecord]) -> None:
        if not self.is_root:
            return
        if self.options.layout == "jsonl":
            bar.hide()
            layouts.jsonl(rows, sys.stdout)
        for record in rows:
            if record.correct is False:
                bar.hide()
                self.log(record.message or "")

    def _finish(self, rows: list[CaseRecord]) -> None:
        if not self.is_root:
            return
        layout = self.options.layout
        if layout == "table":
            for line in first_lines(rows):
                print(printable(line))
            print()
            render.print_tables(rows, sys.stdout)
        elif layout != "jsonl":
            layouts.LAYOUTS[layout](rows, sys.stdout)
        # A program parses standard output: remarks for people go elsewhere.
        stream = sys.stdout if layout == "table" else sys.stderr
        for line in render.footer(rows, self.remarks):
            print(printable(line), file=stream)
        stream.flush()


def _continuation(options: Options) -> str:
    """Return where the results of an interrupted run are, and which command goes on."""
    if options.output is None:
        return "no file has the results; -J FILE keeps those of each group, and --resume goes on"
    if options.resume:
        return f"the results so far are in {options.output}, and the same command goes on"
    return (
        f"the results so far are in {options.output}, and the same command goes on with "
        f"--resume {options.output} instead of -J"
    )
