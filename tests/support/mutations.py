"""Damage files of every kind that is read, and read each with whatever reads it.

``python tests/support/mutations.py -n 100000 [FILES...]``, with ``PYTHONPATH=.``, keeps each
damaged file that ends a reader by anything but its exit statuses, counts what was read and what
was refused, and ends with 1 if there is one. By default the files are those of the tests.
A file depends on the seed and its number alone: ``--seed 5 --first 812 -n 1`` makes one again.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import click
import msgspec
import numpy as np
from damage import PLANTED, Damage, of_flight, of_json, of_lines, of_text, of_toml
from issuing import issue
from markupsafe import Markup

import mpicoll
import mpicoll.bench.self_check
import mpicoll.compare.__main__
import mpicoll.costs.__main__
import mpicoll.costs.fitting
import mpicoll.postmortem.__main__
import mpicoll.records.__main__
import mpicoll.report.__main__
import mpicoll.report.page
import mpicoll.selftest.gpubound
import mpicoll.study.__main__
import mpicoll.study.page
import mpicoll.trace.__main__
import mpicoll.tune.exports.command
from mpicoll.bench.resume import unlike
from mpicoll.costs.ranking import candidates as every
from mpicoll.doctor.mpi_probes import MPI_PROBES
from mpicoll.engine import _compiled
from mpicoll.errors import ArgumentError
from mpicoll.flight.layout import STACKS, SUFFIX
from mpicoll.flight.recorder import Recorder
from mpicoll.flight.records import Call, Group
from mpicoll.records.description import FullRun
from mpicoll.records.journal import Journal
from mpicoll.records.reading import load, runs
from mpicoll.selection import tables
from mpicoll.study import asking, description, environments, osu_and_imb, planning, running
from mpicoll.study.libraries import force_algorithm
from mpicoll.text.lines import torn
from mpicoll.text.printable import printable
from mpicoll.threads.transport import ThreadTransport
from mpicoll.trace import pricing

HERE = Path(__file__).parent
RECORDS = sorted((HERE.parent / "records" / "files").glob("*.jsonl"))
COSTS = ("allreduce", "--ranks", "8", "--algorithms", "ring", "--bytes", "1K")
Reader = Callable[[], object]


_MOST_SECONDS = 10.0
_MOST_MEMORY = 4 << 30
_NEWS = 20.0


class Unending(BaseException):
    """A command takes many seconds for a file of a few kilobytes."""


class Failure(NamedTuple):
    """A damaged file, and a reader that it ends badly."""

    number: int
    reader: str
    error: str
    path: Path
    content: bytes


class Kind(NamedTuple):
    """Files of one kind: how they are damaged, and what reads them beside a whole one.

    Attributes:
        readers: given the damaged file, the whole one, and a folder to write to.
    """

    damage: Damage
    readers: Callable[[Path, Path, Path], dict[str, Reader]]


# -- readers ------------------------------------------------------------------------------


def _commands(given: dict[str, tuple[click.Command, Sequence[object]]]) -> dict[str, Reader]:
    return {
        name: lambda command=command, words=words: _run(command, *words)  # type: ignore[misc]
        for name, (command, words) in given.items()
    }


def _of_records(path: Path, whole: Path, folder: Path) -> dict[str, Reader]:
    export = mpicoll.tune.exports.command.main
    tree = HERE / "samples" / "tree.json"
    parquet = [path, "-o", folder / "cases.parquet"] if find_spec("pyarrow") else [path]
    return _commands({
        "records": (mpicoll.records.__main__.main, [path]),
        "parquet": (mpicoll.records.__main__.main, parquet),
        "compare": (mpicoll.compare.__main__.main, [path, whole]),
        "compare reversed": (mpicoll.compare.__main__.main, [whole, path, "--format", "markdown"]),
        "compare jsonl": (mpicoll.compare.__main__.main, [path, path, "--format", "jsonl"]),
        "compare csv": (mpicoll.compare.__main__.main, [path, path, "--format", "csv"]),
        "study": (mpicoll.study.__main__.main, [path, "--csv", folder / "times.csv"]),
        "studies": (mpicoll.study.__main__.main, [path, whole]),
        "findings": (mpicoll.study.__main__.main, ["--records", path, whole, "-o", folder / "out"]),
        "page": (mpicoll.report.__main__.main, [path, "-o", folder / "page.html"]),
        "pages": (mpicoll.report.__main__.main, [whole, path, "-o", folder / "page.html"]),
        "costs": (mpicoll.costs.__main__.main, [*COSTS, "--from", path]),
        "self-check": (mpicoll.bench.self_check.main, [path, whole]),
        "gpubound": (mpicoll.selftest.gpubound.main, [path]),
        "export": (export, ["--to", "mpich", path, "--library", tree, "-o", folder / "a.json"]),
    }) | {
        "resume": lambda: _resumed(path, whole), "study resumed": lambda: _launched(path),
    }  # fmt: skip


def figures(path: Path, folder: Path) -> None:
    """Draw the figures of a file, which takes a second."""
    _run(mpicoll.report.__main__.main, path, "-o", folder / "figures/")


def _resumed(path: Path, whole: Path) -> int:
    before = path.read_bytes()
    try:
        journal = Journal(path, resume=True)
    except ArgumentError:
        assert path.read_bytes() == before, "a file that was refused is changed"
        return 2
    assert path.read_bytes() == before, "a file is changed before anything is written"
    journal.append([])
    journal.close()
    after = path.read_bytes()
    path.write_bytes(before)
    assert after == before[: len(before) - torn(before)], "more than a torn line is cut off"
    with suppress(ArgumentError):
        unlike(journal.records, next(iter(runs(load(whole)).values()), FullRun()))
    return 0


def _launched(path: Path) -> None:
    """Read what a study that goes on reads of a launch that is done."""
    running._read_ending(path)
    running.has_open_verdicts([path])


def _of_tables(path: Path, whole: Path, folder: Path) -> dict[str, Reader]:
    return {
        "tune": lambda: _tuned(path, whole), "auto": lambda: _auto(path),
        "doctor": lambda: _with_table(path, MPI_PROBES["decision table"]),
    }  # fmt: skip


def _tuned(path: Path, whole: Path) -> None:
    """Write decisions into a table, as a run of ``mpicoll.tune`` does, and put it back."""
    before, more = path.read_bytes(), tables.read(whole)["entries"]
    tables.check_output(path)
    assert path.read_bytes() == before
    tables.write(path, more)
    assert all(each in tables.read(path)["entries"] for each in more)
    path.write_bytes(before)


def _auto(path: Path) -> None:
    """Let ranks choose by a table; one that cannot be read is remarked, and left."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sums = _with_table(path, lambda: mpicoll.threads(2, deadline=_MOST_SECONDS)(_calls))
    assert sums == [[2.0] * 3] * 2
    _check_text("".join(str(each.message) for each in said))


def _calls(c: mpicoll.Collectives) -> list[float]:
    sizes = (1, 1000, 20_000)
    return [float(c.allreduce(np.ones(each), algorithm="auto")[-1]) for each in sizes]


def _with_table(path: Path, run: Callable[[], object]) -> object:
    with patch.dict(os.environ, {tables.VARIABLE: str(path), "MPICOLL_FLIGHT": "0"}):
        return run()


def _of_descriptions(path: Path, whole: Path, folder: Path) -> dict[str, Reader]:
    return _commands({"study.toml": (mpicoll.study.__main__.main, [path, "--dry-run"])}) | {
        "launches": lambda: _started(description.load(path)),
    }


def _of_studies(path: Path, whole: Path, folder: Path) -> dict[str, Reader]:
    return _commands({
        "study.json": (mpicoll.study.__main__.main, ["-o", path.parent, "--dry-run"])
    })  # fmt: skip


def _started(study: description.Description) -> None:
    """Make the command of each launch."""
    for each, index in planning.plan(study, environments.find(study)[0]).first()[:50]:
        each.command(each.arguments(study, 1.0, index, "records"))
        each.environment.variables()


def _of_flights(path: Path, whole: Path, folder: Path) -> dict[str, Reader]:
    main = mpicoll.postmortem.__main__.main
    return _commands({
        "postmortem": (main, [path.parent, "--stacks"]),
        "postmortem page": (main, [path.parent, "-o", folder / "page.html"]),
        "postmortem torch": (main, [path.parent, "--torch", folder / "torch"]),
        "trace": (mpicoll.trace.__main__.main, [path.parent]),
    })  # fmt: skip


def _of_trees(path: Path, whole: Path, folder: Path) -> dict[str, Reader]:
    forced = HERE.parent / "records" / "files" / "forced.jsonl"
    words = ["--to", "mpich", forced, "--library", path, "-o", folder / "tree.json"]
    return _commands({"library": (mpicoll.tune.exports.command.main, words)})


def _of_printed(path: Path, whole: Path, folder: Path) -> dict[str, Reader]:
    def text() -> str:
        return path.read_text(errors="replace")

    how = {"allreduce": force_algorithm("MPICH", "allreduce", "ring")}
    return {
        "read_answers": lambda: asking.read_answers("MPICH", how, text()),
        "osu": lambda: osu_and_imb.osu_times(text(), "allreduce", 2),
        "imb": lambda: osu_and_imb.imb_times(text(), 2),
    }


KINDS = {
    "records": Kind(of_lines, _of_records),
    "table": Kind(of_json, _of_tables), "description": Kind(of_toml, _of_descriptions),
    "study": Kind(of_json, _of_studies), "flight": Kind(of_flight, _of_flights),
    "stacks": Kind(of_text, _of_flights), "tree": Kind(of_json, _of_trees),
    "printed": Kind(of_text, _of_printed),
}  # fmt: skip


def kind_of(path: Path) -> str:
    """Return the kind of a file, by its name."""
    kinds = {SUFFIX: "flight", STACKS: "stacks", ".toml": "description", ".txt": "printed"}
    names = {"study.json": "study", "tree.json": "tree", "table.json": "table"}
    return kinds.get(path.suffix) or names.get(path.name) or "records"


def samples(folder: Path) -> list[Path]:
    """Make a file of each kind beside those that lie with the tests; return them all."""
    study, table = folder / "study.json", folder / "table.json"
    described = description.load(HERE / "samples" / "study.toml")
    study.write_bytes(msgspec.json.encode(described))
    entries = [
        {
            "backend": ThreadTransport.backend, "ranks_per_node": [2], "collective": name,
            "fingerprint": tables.fingerprint(ThreadTransport.library),
            "ranges": [{"upto": 4096, "algorithm": "one_shot@symmetric", "ratio": 2.5},
                       {"upto": None, "algorithm": "native", "ratio": 1.0}],
        }
        for name in ("broadcast", "allreduce")
    ]  # fmt: skip
    table.write_text(tables.text(entries))
    flights = folder / "flights"
    with patch.dict(os.environ, MPICOLL_FLIGHT_DIR=str(flights)):
        for rank in range(2):
            _record(rank)
    others = [each for each in (HERE / "samples").iterdir() if each.suffix != ".jsonl"]
    return [*RECORDS, *others, study, table, *sorted(flights.iterdir())]


def _record(rank: int) -> None:
    """Write the file of a rank that was in a few calls, and is in another."""
    recorder = Recorder("job-of-a-test", (rank, 2), writers=_compiled)
    group = recorder.intern(Group("1234", "world", rank, "0-1"))
    log = _compiled.Log(recorder.ring, group)
    place = recorder.intern(Call("allreduce", "float32 (8), sum", "ring", "symmetric"))
    for _ in range(20 + rank):
        log.end(log.begin(place))
    issue(log, recorder.intern(Call("iallreduce", "", "native", "MPI")))
    log.begin(place)
    recorder.describe(ValueError("no"))
    recorder.close()
    recorder.stacks.write_text(
        'Thread 0x1 (most recent call first):\n  File "a.py", line 3 in main\n'
    )


# -- all of it ----------------------------------------------------------------------------


def _run(command: click.Command, *given: object) -> int:
    """Run a command in this process; return its exit status.

    Raises:
        AssertionError: its output steers a terminal.
    """
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        try:
            status = command.main([str(each) for each in given], standalone_mode=False) or 0
        except (click.ClickException, ArgumentError) as error:
            print(printable(str(error)))  # as a process does, in `mpicoll.cli.ending`
            status = 2
    _check_text(output.getvalue())
    return int(status)


def _check_text(text: str) -> None:
    bad = re.search(r"[^\n\t -~\xa0-\U0010ffff]|[\ud800-\udfff\u202e]", text)
    assert not bad, f"{bad and bad[0]!r} is printed"


def _is_read(path: Path) -> bool:
    try:
        return bool(load(path))
    except ArgumentError:
        return False


def _tried(read: Reader) -> str:
    """Return whether a file was read or refused."""
    try:
        with _limited():
            return "refused" if read() == 2 else "read"
    except ArgumentError:
        return "refused"


def succeed(command: Sequence[str], variables: object) -> subprocess.CompletedProcess[str]:
    """Stand for the interpreter and the launcher of an environment: start no process."""
    facts = environments.Facts("MPICH", "MPICH 5", mpicoll=True, torch=True)
    answer = f"pmi2 pmix\n{msgspec.json.encode(facts).decode()}"
    return subprocess.CompletedProcess(command, 0, answer, "")


def failures(
    files: Sequence[Path], numbers: Iterable[int], seed: int = 0, draws: int = 0, ways: int = 0,
    tally: Counter[tuple[str, str, str]] | None = None,
) -> Iterator[Failure]:  # fmt: skip
    """Yield each damaged file that ends a reader badly.

    Args:
        numbers: of the files to make.
        draws: after how many files the figures are drawn too, 0 for never.
        ways: how many readers a file is given to, chosen at random, 0 for all.
        tally: counts kinds, readers, and whether they have read or refused a file.
    """
    tally = Counter() if tally is None else tally
    by_kind: dict[str, list[Path]] = {}
    for each in files:
        by_kind.setdefault(kind_of(each), []).append(each)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(shutil.rmtree, PLANTED, ignore_errors=True)
        for where, name, instead in (
            (mpicoll.report.page, "plotly", lambda: Markup()),  # 4 MB for each page
            (mpicoll.study.page, "plotly", lambda: Markup()),
            (mpicoll.costs.fitting, "_TIME_LIMIT", 0.02),
            (pricing, "_SECONDS", 0.02),
            (pricing, "_ALL_SECONDS", 0.1),
            (pricing, "candidates", lambda name: islice(every(name), 2)),
            (environments, "_output", succeed),
        ):
            stack.enter_context(patch.object(where, name, instead))
        for number in numbers:
            dice = random.Random(f"{seed} {number}")
            kind = dice.choice(sorted(by_kind))
            whole = dice.choice(by_kind[kind])
            path = _beside_others(whole, folder / kind, kind)
            path.write_bytes(content := KINDS[kind].damage(whole.read_bytes(), dice))
            found = KINDS[kind].readers(path, whole, folder)
            if kind == "records" and not _is_read(path):
                # All commands read files by the same function: one is as good as all.
                kept = dice.choice(list(found))
                found = {name: read for name, read in found.items() if name in (kept, "resume")}
            elif kind == "records" and draws and number % draws == 0:
                found["figures"] = partial(figures, path, folder)
            for name in dice.sample(list(found), min(ways, len(found))) if ways else found:
                try:
                    tally[kind, name, _tried(found[name])] += 1
                    assert path.read_bytes() == content, "the file is changed"
                    assert not PLANTED.exists(), "a text of the file was run"
                except (Exception, Unending):
                    tally[kind, name, "failed"] += 1
                    yield Failure(number, name, traceback.format_exc(), path, content)
            path.write_bytes(whole.read_bytes())


def _beside_others(whole: Path, folder: Path, kind: str) -> Path:
    """Return where a damaged file goes; those of other ranks lie beside it."""
    if not folder.exists():
        folder.mkdir()
        if kind in ("flight", "stacks"):
            shutil.copytree(whole.parent, folder, dirs_exist_ok=True)
    return folder / whole.name


@contextmanager
def _limited() -> Iterator[None]:
    """Have what takes longer than `_MOST_SECONDS` of the processor raise, where it is."""

    def end(*_: object) -> None:
        raise Unending(f"more than {_MOST_SECONDS:g} s")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, _MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _progress(numbers: range, seed: int) -> Iterator[int]:
    """Yield the numbers, and print on standard error how far they are."""
    began = said = time.monotonic()
    for tried, number in enumerate(numbers):
        if time.monotonic() - said > _NEWS:
            said = time.monotonic()
            print(
                f"seed {seed}: {tried:,} of {len(numbers):,} files in {said - began:,.0f} s",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        yield number


def main() -> int:
    """Print the failures; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("-n", "--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--draws", type=int, default=0, help="draw figures after so many files")
    parser.add_argument("--ways", type=int, default=0, help="readers of a file, 0 for all")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=[*KINDS])
    parser.add_argument("--keep", type=Path, help="folder for the files that fail")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.gettempdir()) / "mutations"
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    numbers = range(given.first, given.first + given.count)
    kinds: Counter[str] = Counter()
    tally: Counter[tuple[str, str, str]] = Counter()
    made = Path(tempfile.mkdtemp())
    files = [each for each in given.files or samples(made) if kind_of(each) in given.kinds]
    damaged = failures(
        files, _progress(numbers, given.seed), given.seed, given.draws, given.ways, tally
    )
    with suppress(KeyboardInterrupt):  # what was tried until then is told
        for found in damaged:
            kept = folder / f"{given.seed}-{found.number}-{found.path.name}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(found.content)
            kind = f"{found.reader}: {found.error.strip().splitlines()[-1]}"
            kinds[kind] += 1
            print(f"{kept}: {found.error if kinds[kind] == 1 else ''}{kind}", flush=True)
    shutil.rmtree(made)
    for (name, reader, how), times in sorted(tally.items()):
        print(f"{times:>8,} {name}, {reader}: {how}")
    for kind, times in kinds.most_common():
        print(f"{times} times: {kind}")
    print(f"seed {given.seed}: {tally.total():,} damaged files read, {kinds.total()} failures")
    return int(bool(kinds))


if __name__ == "__main__":
    sys.exit(main())
