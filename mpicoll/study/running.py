"""Run the launches of a study until the verdicts are clear or the time is over.

A launch with a file is finished, so a killed study continues from its files.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from mpicoll.cli import ending
from mpicoll.cli.progress import ProgressBar
from mpicoll.errors import ArgumentError
from mpicoll.measurement.judgement import decision_of
from mpicoll.measurement.launches import summed_up
from mpicoll.records import reading
from mpicoll.records.lines import CaseRecord, LaunchRecord, Speedup
from mpicoll.study.description import Description, check
from mpicoll.study.launching import file_of, launch
from mpicoll.study.planning import Configuration, Plan
from mpicoll.text.files import content_of, lock, write_whole
from mpicoll.text.numbers import count_text
from mpicoll.text.opening import open_by_name
from mpicoll.text.printable import printable

_GIVE_UP = 2
"""Number of failed launches, without a success, after which a configuration is given up."""
_NAME = "study.json"


class Runner:
    """The launches of a plan, in a folder.

    Attributes:
        records: the launches with a file, by configuration and number.
        start: monotonic start time, minus the duration of the launches with a file.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.records: dict[tuple[str, int], LaunchRecord] = {}
        for configuration in plan.configurations:
            for index in range(plan.study.max_launches):
                path = file_of(folder, configuration, index)
                if path.exists():
                    self.records[configuration.name, index] = _read_ending(path)
        self.start = time.monotonic() - sum(record.seconds for record in self.records.values())

    def run(self) -> None:
        """Run the first launches of every configuration, then more for undecided verdicts."""
        ending.explain_interrupt(
            f"the launches so far are in {self.folder}, and the same command goes on"
        )
        with _LaunchProgress(self) as shown:
            order = self.plan.first()
            for number in range(self.plan.study.max_launches):
                shown.expect(order)
                for configuration, index in order:
                    if not self._is_left(configuration, index):
                        continue
                    if self.is_over():
                        return
                    shown.begin(configuration, index)
                    self.records[configuration.name, index] = launch(
                        self.plan.study,
                        configuration,
                        index,
                        self.folder,
                        self.plan.measuring(configuration),
                    )
                    shown.end(self.records[configuration.name, index])
                order = self.plan.shuffle(self._more(), str(number))
                if not order:
                    return

    def _is_left(self, configuration: Configuration, index: int) -> bool:
        return (configuration.name, index) not in self.records and not self._is_hopeless(
            configuration
        )

    def _is_hopeless(self, configuration: Configuration) -> bool:
        records = self.of(configuration)
        return len(records) >= _GIVE_UP and all(record.message for record in records)

    def of(self, configuration: Configuration) -> list[LaunchRecord]:
        """Return how the launches of a configuration ended."""
        return [record for (name, _), record in self.records.items() if name == configuration.name]

    def not_launched(self) -> list[str]:
        """Return a remark on the configurations without a launch, for lack of time."""
        names = [
            configuration.name
            for configuration in self.plan.configurations
            if not self.of(configuration)
        ]
        if not names:
            return []
        return [f"not launched, as the minutes were over: {', '.join(names)}"]

    def cut_short(self) -> list[str]:
        """Return a remark if the time was over before every configuration had its launches."""
        counts = {len(self.of(entry)) for entry in self.plan.configurations if not entry.pairs}
        wanted = self.plan.study.min_launches
        if not self.is_over() or not counts or min(counts) >= wanted:
            return []
        ends = " to ".join(map(str, sorted({min(counts), max(counts)})))
        return [
            f"{ends} of {wanted} launches of each configuration were made, as the minutes were "
            "over: the same command with more --minutes goes on"
        ]

    def shortage(self) -> str:
        """Return the configurations that measured nothing, with reasons; "" if there are none."""
        records = {
            configuration.name: self.of(configuration) for configuration in self.plan.configurations
        }
        failed = [
            name for name, group in records.items() if group and all(r.message for r in group)
        ]
        reasons = dict.fromkeys(str(r.message) for name in failed for r in records[name])
        count = f"{len(failed)} of {count_text(len(records), 'configuration')}"
        text = [f"{count} measured nothing: {', '.join(failed)}: {'; '.join(reasons)}"]
        return "; ".join([*self.not_launched(), *(text if failed else [])])

    def is_over(self) -> bool:
        """Whether the time of the study is over."""
        minutes = self.plan.study.minutes
        return minutes is not None and self.seconds_used() >= 60 * minutes

    def seconds_used(self) -> float:
        """Return the seconds that the study has taken, including earlier runs of the command."""
        return time.monotonic() - self.start

    def _more(self) -> Iterator[tuple[Configuration, int]]:
        """Yield the next launch of each configuration that needs one."""
        for configuration in self.plan.configurations:
            count = len(self.of(configuration))
            is_full = (
                configuration.pairs
                or count >= self.plan.study.max_launches
                or self._is_hopeless(configuration)
            )
            if not is_full and self._is_open(configuration, count):
                yield configuration, count

    def _is_open(self, configuration: Configuration, count: int) -> bool:
        files = [file_of(self.folder, configuration, index) for index in range(count)]
        return has_open_verdicts(files)


def has_open_verdicts(files: Sequence[Path]) -> bool:
    """Whether the launches of these files leave a ratio undecided."""
    cases = [case for path in files for case in reading.only(CaseRecord, reading.load(path))]
    ratios: list[Speedup | None] = []
    for case in summed_up(cases):
        ratios += [case.speedup_vs_native, case.speedup_vs_other]
    return any(decision_of(ratio) == "undecided" for ratio in ratios if ratio is not None)


def _read_ending(path: Path) -> LaunchRecord:
    records = reading.only(LaunchRecord, reading.load(path))
    if not records:
        raise ArgumentError(f"{path} does not say how its launch ended: remove it")
    return records[0]


# -- the folder ---------------------------------------------------------------------------


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a study, and lock it against other studies.

    Raises:
        ArgumentError: the folder cannot be written, or another study runs in it.
    """
    try:
        (folder / "launches").mkdir(parents=True, exist_ok=True)
        file = open_by_name(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666, any_owner=True)
    except OSError as error:
        raise ArgumentError(f"cannot write {folder}: {error.strerror}") from None
    try:
        lock(file, f"another study runs in {folder}: let it end first")
        yield
    finally:
        os.close(file)


def load_study(folder: Path) -> Description | None:
    """Return the study of a folder, None if it has none."""
    path = folder / _NAME
    if not path.exists():
        return None
    try:
        study = msgspec.json.decode(content_of(path), type=Description)
        check(study)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: {error}: remove it, or give another folder") from None
    return study


def store(study: Description, folder: Path) -> None:
    """Store the study in its folder; minutes and launches may change later.

    Raises:
        ArgumentError: the folder has another study.
    """
    stored_study = load_study(folder)
    if (
        stored_study is not None
        and replace(stored_study, minutes=study.minutes, launches=study.launches) != study
    ):
        raise ArgumentError(
            f"{folder} has another study: give another folder, or the same description "
            "(minutes and launches may differ)"
        )
    write_whole(folder / _NAME, lambda fresh: fresh.write_bytes(msgspec.json.encode(study)))


# -- progress -----------------------------------------------------------------------------


class _LaunchProgress:
    """The progress of a study, a step for each launch."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.bar = ProgressBar(0)
        self.remaining = 0

    def __enter__(self) -> _LaunchProgress:
        self.bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.__exit__(*error)

    def expect(self, order: Sequence[tuple[Configuration, int]]) -> None:
        """Set the number of remaining launches."""
        study, runner = self.runner.plan.study, self.runner
        self.remaining = sum(runner._is_left(*planned) for planned in order)
        configurations = [
            configuration for configuration in runner.plan.configurations if not configuration.pairs
        ]
        usual = sum(
            max(0, study.launches - max(len(runner.of(configuration)), study.min_launches))
            for configuration in configurations
        )
        self.total = len(runner.records) + self.remaining + usual

    def begin(self, configuration: Configuration, index: int) -> None:
        """Show the launch that begins, and the remaining time."""
        count = len(self.runner.records)
        mean = self._mean()
        seconds = mean * max(1, self.total - count)
        if (minutes := self.runner.plan.study.minutes) is not None:
            seconds = min(seconds, max(0.0, 60 * minutes - self.runner.seconds_used()))
        self.bar.total = max(self.total, count + 1)
        name = f"{configuration.name}, launch {index + 1}"
        self.bar.step(name, completed=count, remaining=seconds)

    def _mean(self) -> float:
        taken = [record.seconds for record in self.runner.records.values()]
        plan = self.runner.plan
        usual = plan.estimate(1) / max(1, len(plan.configurations))
        return sum(taken) / len(taken) if taken else usual

    def end(self, record: LaunchRecord) -> None:
        """Print the reason of a failed launch."""
        if record.message:
            text = f"{record.configuration}, launch {record.launch + 1} failed: {record.message}"
            self.bar.hide()
            _say(text)


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
