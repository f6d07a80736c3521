"""One launch of a study: start it, watch it, and write its records to a separate file.

A file appears only when it is complete, and a launch with a file is finished.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import structs

from mpicoll.errors import ArgumentError
from mpicoll.machine.children import run_launcher
from mpicoll.machine.variables import THREAD_LEVEL
from mpicoll.measurement.cases import BASELINES
from mpicoll.records import reading
from mpicoll.records.lines import (
    CaseRecord,
    Forced,
    LaunchRecord,
    Record,
    RunRecord,
    SpeedupVsOther,
)
from mpicoll.study import asking
from mpicoll.study.description import Description
from mpicoll.study.libraries import libraries, variables_of
from mpicoll.study.planning import Configuration
from mpicoll.study.reasons import reason_of
from mpicoll.text.files import write_whole
from mpicoll.text.masking import masked_arguments
from mpicoll.text.sizes import parse_size

_GRACE = 60.0
"""Seconds that a launch may take beyond its plan and the timeout of a step."""


def file_of(folder: Path, configuration: Configuration, index: int) -> Path:
    """Return the file of a launch."""
    return folder / "launches" / f"{configuration.name}-{index:03}.jsonl"


def native_name(algorithm: str) -> str:
    """Return the name of a library's own algorithm.

    >>> native_name("ring")
    'native(algorithm=ring)'
    """
    return f"native(algorithm={algorithm})"


def launch(
    study: Description, configuration: Configuration, index: int, folder: Path, seconds: float
) -> LaunchRecord:
    """Run a launch, write its file, and return how it ended."""
    scratch = folder / "running"
    interrupted = folder / f".{file_of(folder, configuration, index).name}"
    # A launch of a killed study may still run for a while, but it writes to another file.
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(exist_ok=True)
    output, printed = scratch / f"records-{os.getpid()}.jsonl", scratch / "printed.txt"
    is_continued = interrupted.exists()
    if is_continued:
        interrupted.replace(output)
    command = configuration.command(configuration.arguments(study, seconds, index, str(output)))
    begin = time.monotonic()
    forced = asking.read_answers(
        configuration.environment.forces,
        configuration.forced,
        ask_library(study, configuration, folder),
    )
    record = LaunchRecord(
        configuration=configuration.name, launch=index,
        environment=configuration.environment.name, threads=configuration.environment.level,
        ranks=configuration.ranks, forced=forced, command=masked_arguments(command),
        started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )  # fmt: skip
    limit = seconds + configuration.start_up + study.timeout + _GRACE
    try:
        record.message = run(command, variables(configuration), printed, limit)
        if record.message is not None and is_continued:  # the conditions may have changed
            output.unlink(missing_ok=True)
            record.message = run(command, variables(configuration), printed, limit)
    except KeyboardInterrupt:
        if output.exists() and not configuration.pairs:
            output.replace(interrupted)
        raise
    record.seconds = round(time.monotonic() - begin, 3)
    text = printed.read_text(errors="replace")
    records: list[Record] = []
    if output.exists():
        try:
            records = list(label_records(reading.load(output), record))
        except ArgumentError as error:
            record.message = record.message or str(error)
    if not records and record.message is None:
        record.message = f"it wrote no records: {reason_of(text)}"
    write_whole(file_of(folder, configuration, index), lambda fresh: _save(fresh, record, records))
    return record


def ask_library(study: Description, configuration: Configuration, folder: Path) -> str | None:
    """Return the output of a library with forced algorithms, None if it cannot be asked.

    A separate launch asks the library, once for each configuration.
    """
    if not configuration.is_asked:
        return None
    answers = folder / "asked" / f"{configuration.name}.txt"
    if not answers.exists():
        answers.parent.mkdir(exist_ok=True)
        printed = folder / "running" / "asked.txt"
        factors = study.factors
        program = asking.arguments(
            list(configuration.forced), [parse_size(str(size)) for size in factors.sizes],
            factors.dtypes[0], factors.operators[0], configuration.backends[0],
            configuration.device,
        )  # fmt: skip
        command = configuration.command(program)
        environment = (
            variables(configuration) | libraries()[configuration.environment.forces].asking
        )
        environment[THREAD_LEVEL] = configuration.environment.level
        if run(command, environment, printed, study.timeout + _GRACE, with_output=True) is not None:
            return None
        write_whole(answers, lambda fresh: fresh.write_bytes(printed.read_bytes()))
    return answers.read_text(errors="replace")


def variables(configuration: Configuration) -> dict[str, str]:
    """Return the variables of a launch's processes, including those that force the library."""
    environment = configuration.environment
    return environment.variables() | variables_of(environment.forces, configuration.forced.values())


def run(
    command: Sequence[str], environment: dict[str, str], printed: Path, limit: float,
    with_output: bool = False,
) -> str | None:  # fmt: skip
    """Run a command; return the reason of its failure, None on success.

    Its standard error goes to `printed`, and with `with_output` also its standard output. An
    interrupt first ends the processes, and is then raised.
    """
    with printed.open("wb") as file:
        try:
            out = file if with_output else subprocess.DEVNULL
            status = run_launcher(command, limit, environment, out, file)
        except OSError as error:
            return f"{command[0]} does not start: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"it had not ended after {limit:.0f} s"
    if status == 0:
        return None
    return f"exit status {status}: {reason_of(printed.read_text(errors='replace'))}"


def _save(path: Path, record: LaunchRecord, records: Iterable[Record]) -> None:
    with path.open("w") as file:
        for line in (record, *records):
            file.write(reading.encoded(line) + "\n")


# -- records ------------------------------------------------------------------------------


def label_records(records: Iterable[Record], launched: LaunchRecord) -> Iterator[Record]:
    """Yield the records of a launch with its environment and number.

    If the library's algorithm was forced, the native call gets the name of that algorithm, and
    ratios to native become ratios to this name. The record is left out if the library did not obey.
    """
    for record in records:
        if isinstance(record, RunRecord):
            launched.run = record.run.id
        if not isinstance(record, CaseRecord):
            yield record
            continue
        record.environment, record.launch = launched.environment, launched.launch
        forced = launched.forced.get(record.collective)
        yield _rename_native(record, forced) if forced else record


def _rename_native(record: CaseRecord, forced: Forced) -> CaseRecord:
    name = native_name(forced.algorithm)
    if record.algorithm in BASELINES:
        record.algorithm = record.executed = name
        record.note = forced.said
        if not _is_run(record, forced):
            record.time_us, record.samples_us, record.samples = None, [], 0
            record.message = f"the library takes another algorithm: {forced.said}"
        return record
    ratio = record.speedup_vs_native
    record.speedup_vs_native = None
    if ratio is not None and _is_run(record, forced):
        record.speedup_vs_other = SpeedupVsOther(
            **structs.asdict(ratio), against=f"{record.backend} {name}"
        )
    return record


def _is_run(record: CaseRecord, forced: Forced) -> bool:
    """Whether the library runs the forced algorithm, as far as it can be asked."""
    return forced.obeyed is not False and record.bytes_total not in forced.refused
