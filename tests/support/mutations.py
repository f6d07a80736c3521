"""Damage files of records in many ways, and read each with every command that reads records.

``python tests/support/mutations.py -n 100000 RECORDS...``, with ``PYTHONPATH=.``, keeps each
damaged file that ends a command by anything but its exit statuses, and ends with 1 if there is one.
A file depends on the seed and its number alone: ``--seed 5 --first 812 -n 1`` makes one again.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import click
from markupsafe import Markup

import mpicoll.bench.gpubound
import mpicoll.bench.self_check
import mpicoll.compare.__main__
import mpicoll.costs.__main__
import mpicoll.costs.fitting
import mpicoll.records.__main__
import mpicoll.report.__main__
import mpicoll.report.page
import mpicoll.study.__main__
from mpicoll.bench.resume import unlike
from mpicoll.errors import ArgumentError
from mpicoll.records.journal import Journal
from mpicoll.records.lines import FullRun
from mpicoll.records.reading import load, runs
from mpicoll.text.lines import torn

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 7, 64, 30000, 1 << 20, 1 << 53, 1 << 62, 10**30, 10**400,
    0.0, -0.0, 0.5, 1.5, -1.5, 1e-15, 1e-300, 5e-324, 1e18, 1e308, float("nan"), float("inf"),
    float("-inf"), "", "0", "a", "ring", "native", "auto", "native:reduce+broadcast", "barrier",
    "latency", "copy", "one_way", "cuda", "network", "symmetric", "A" * 2000, "[/]", "[red]",
    "{0}%s", "\x1b[2J", "\x9b31m", "\x00", "\ud800", "\u202e", "a\nb", "=1+1", "<script>", "$x^$",
    "ring(radix=2", "two_level(local=two_level(local=ring))", "knomial(radix=1000000)", [], [[]],
    [None], [0], [1.0], [-1.0], [1, 2, 3], {}, {"a": 1}, {"a": {"b": None}}, {"median": 1.0},
)  # fmt: skip


COSTS = ("allreduce", "--ranks", "8", "--algorithms", "ring", "--bytes", "1K")


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
    content: bytes


# -- damage -------------------------------------------------------------------------------


def damaged(content: bytes, dice: random.Random) -> bytes:
    """Return the content of a file of records with one or a few things changed."""
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        content = dice.choices((_change_value, _change_lines, _change_bytes), (8, 1, 1))[0](
            content, dice
        )
    return content


def _change_value(content: bytes, dice: random.Random) -> bytes:
    """Replace, remove, add or move one value of one record."""
    lines = content.split(b"\n")
    at = dice.randrange(len(lines))
    try:
        record = json.loads(lines[at])
    except (ValueError, RecursionError):
        return content
    places = list(_places(record))
    if not places:
        return content
    holder, name = dice.choice(places)
    how = dice.randrange(8)
    if how == 0:
        del holder[name]
    elif how == 1:
        other, its = dice.choice(places)
        holder[name], other[its] = other[its], holder[name]
    elif how == 2 and isinstance(holder[name], int | float):
        with suppress(OverflowError):
            holder[name] *= dice.choice((-1, 1.0, 10, 1e-9, 1e9, 1e30))
    elif how == 3 and isinstance(holder[name], list):
        holder[name] = holder[name] * 2 if dice.random() < 0.5 else holder[name][:-1]
    else:
        holder[name] = dice.choice(VALUES)
    with suppress(ValueError, RecursionError):  # a record may hold itself by now
        lines[at] = json.dumps(record).encode()
    return b"\n".join(lines)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in nested values as its holder and its name or index there."""
    if isinstance(value, dict | list):
        for name in value if isinstance(value, dict) else range(len(value)):
            yield value, name
            yield from _places(value[name])


def _change_lines(content: bytes, dice: random.Random) -> bytes:
    lines = content.split(b"\n")
    at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    how = dice.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(other, lines[at])
    elif how == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif how == 3:
        depth = dice.choice((100, 900, 1100, 200_000))
        lines[at] = lines[at].replace(b": null", b": " + b"[" * depth + b"]" * depth, 1)
    else:
        lines.insert(
            at, dice.choice((b"", b"{}", b"null", b'{"schema": 1}', b"\xff\xfe", b"[" * 9))
        )
    return b"\n".join(lines)


def _change_bytes(content: bytes, dice: random.Random) -> bytes:
    if not content:
        return content
    at = dice.randrange(len(content))
    how = dice.randrange(4)
    if how == 0:
        return content[:at]
    if how == 1:
        return content[:at] + bytes([dice.randrange(256)]) + content[at + 1 :]
    if how == 2:
        return content[:at] + content[at + dice.randrange(1, 40) :]
    return (
        content[:at]
        + dice.choice((b"-", b"9" * 30, b"e999", b'"', b"}", b"\\u0000"))
        + content[at:]
    )


# -- readers ------------------------------------------------------------------------------


def readers(path: Path, whole: Path, folder: Path) -> dict[str, Callable[[], object]]:
    """Return each way to read a damaged file; some beside one that is not damaged."""
    commands: dict[str, tuple[click.Command, Sequence[object]]] = {
        "records": (mpicoll.records.__main__.main, [path]),
        "compare": (mpicoll.compare.__main__.main, [path, whole]),
        "compare reversed": (mpicoll.compare.__main__.main, [whole, path, "--format", "markdown"]),
        "compare jsonl": (mpicoll.compare.__main__.main, [path, path, "--format", "jsonl"]),
        "compare csv": (mpicoll.compare.__main__.main, [path, path, "--format", "csv"]),
        "study": (mpicoll.study.__main__.main, [path, "--csv", folder / "times.csv"]),
        "study markdown": (mpicoll.study.__main__.main, [path, whole, "--markdown"]),
        "page": (mpicoll.report.__main__.main, [path, "-o", folder / "page.html"]),
        "pages": (mpicoll.report.__main__.main, [whole, path, "-o", folder / "page.html"]),
        "costs": (mpicoll.costs.__main__.main, [*COSTS, "--from", path]),
        "self-check": (mpicoll.bench.self_check.main, [path, whole]),
        "gpubound": (mpicoll.bench.gpubound.main, [path]),
    }
    found: dict[str, Callable[[], object]] = {
        name: lambda command=command, given=given: _run(command, *given)  # type: ignore[misc]
        for name, (command, given) in commands.items()
    }
    return found | {"resume": lambda: _resumed(path, whole)}


def figures(path: Path, folder: Path) -> None:
    """Draw the figures of a file, which takes a second."""
    _run(mpicoll.report.__main__.main, path, "-o", folder / "figures/")


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
            print(error)
            status = 2
    text = output.getvalue()
    bad = re.search(r"[^\n\t -~\xa0-\U0010ffff]|[\ud800-\udfff\u202e]", text)
    assert not bad, f"{bad and bad[0]!r} is printed"
    return int(status)


def _resumed(path: Path, whole: Path) -> None:
    before = path.read_bytes()
    try:
        journal = Journal(path, resume=True)
    except ArgumentError:
        assert path.read_bytes() == before, "a file that was refused is changed"
        return
    journal.close()
    after = path.read_bytes()
    path.write_bytes(before)
    assert after == before[: len(before) - torn(before)], "more than a torn line is cut off"
    with suppress(ArgumentError):
        unlike(journal.found, next(iter(runs(load(whole)).values()), FullRun()))


def _is_read(path: Path) -> bool:
    try:
        return bool(load(path))
    except ArgumentError:
        return False


# -- all of it ----------------------------------------------------------------------------


def failures(
    files: Sequence[Path], numbers: Iterable[int], seed: int = 0, draws: int = 0
) -> Iterator[Failure]:
    """Yield each damaged file that ends a reader badly.

    Args:
        numbers: of the files to make.
        draws: after how many files the figures are drawn too, 0 for never.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for where, name, instead in (
            (mpicoll.report.page, "plotly", lambda: Markup()),  # 4 MB for each page
            (mpicoll.costs.fitting, "_TIME_LIMIT", 0.02),
        ):
            stack.enter_context(patch.object(where, name, instead))
        path = folder / "damaged.jsonl"
        for number in numbers:
            dice = random.Random(f"{seed} {number}")
            whole = dice.choice(files)
            path.write_bytes(content := damaged(whole.read_bytes(), dice))
            ways = readers(path, whole, folder)
            if not _is_read(path):
                # All commands read files by the same function: one is as good as all.
                kept = dice.choice(list(ways))
                ways = {name: read for name, read in ways.items() if name in (kept, "resume")}
            elif draws and number % draws == 0:
                ways["figures"] = lambda: figures(path, folder)
            for name, read in ways.items():
                try:
                    with _limited():
                        read()
                    assert path.read_bytes() == content, "the file is changed"
                except (Exception, Unending):
                    yield Failure(number, name, traceback.format_exc(), content)


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
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-n", "--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--draws", type=int, default=0, help="draw figures after so many files")
    parser.add_argument("--keep", type=Path, help="folder for the files that fail")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.gettempdir()) / "mutations"
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    numbers = range(given.first, given.first + given.count)
    kinds: Counter[str] = Counter()
    for found in failures(given.files, _progress(numbers, given.seed), given.seed, given.draws):
        kept = folder / f"{given.seed}-{found.number}.jsonl"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(found.content)
        kind = f"{found.reader}: {found.error.strip().splitlines()[-1]}"
        kinds[kind] += 1
        print(f"{kept}: {found.error if kinds[kind] == 1 else ''}{kind}", flush=True)
    for kind, times in kinds.most_common():
        print(f"{times} times: {kind}")
    print(f"seed {given.seed}: {given.count:,} damaged files, {kinds.total()} failures")
    return int(bool(kinds))


if __name__ == "__main__":
    sys.exit(main())
