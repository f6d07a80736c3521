"""Tell why a running job is slow, without stopping it, or which call of it is stuck."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import time_ns

from rich.console import Console
from rich.text import Text

from mpicoll.doctor.late_rank import remarks, with_children
from mpicoll.flight.diagnosis import calling_thread
from mpicoll.flight.job import is_here, look, new_stacks
from mpicoll.flight.listing import jobs, show_jobs
from mpicoll.flight.reader import Dump
from mpicoll.flight.stack_text import last_stacks, place
from mpicoll.flight.summary import show, show_faults
from mpicoll.flight.words import from_where, whereabouts
from mpicoll.text.numbers import duration
from mpicoll.verdict import summary
from mpicoll.verdict.judging import judge
from mpicoll.verdict.watching import watch


def tell(out: Console, directory: Path | None, seconds: float) -> list[Dump]:
    """Print the verdict on a running job, and return the files of its ranks.

    If several jobs run and none is named, print a list of the jobs, and return no files.

    Args:
        directory: of the job's flight recorder; None for the only job that runs.
        seconds: for which the job is watched.

    Raises:
        ArgumentError: there is no such job, or no right to read its files.
    """
    if directory is None:
        listed = jobs(running=True)
        if len(listed) > 1:
            show_jobs(out, listed, "python -m mpicoll.doctor --job")
            return []
        directory = listed[0].directory
    diagnosis, dumps, faults = look(directory)
    if diagnosis.is_stuck or not diagnosis.is_alive:
        show(out, directory, diagnosis, faults)
        out.print()
        summary.show(out, judge(dumps))
        return dumps
    out.print(Text(f"{directory}, {len(diagnosis.ranks)} ranks", style="bold"))
    begin = time_ns()
    dumps, faults = watch(directory, seconds)
    if texts := [*idle(dumps, begin)]:
        for number, text in enumerate(texts):
            out.print(Text(text, style="" if number else "bold"))
    else:
        verdict = with_children(judge(dumps))
        summary.show(out, verdict, [*remarks(verdict)])
    show_faults(out, dumps, faults)
    return dumps


def idle(dumps: list[Dump], begin: int) -> Iterator[str]:
    """Yield what ranks do that have made no call while they were watched; nothing if some has.

    Args:
        begin: of the watching, in nanoseconds since the epoch.
    """
    entries = [entry for dump in dumps for entry in dump.entries]
    moments = [max(entry.start, entry.end) for entry in entries]
    moments += [sample.at for dump in dumps for sample in dump.samples]  # in messages, too
    if not dumps or max(moments, default=0) >= begin:
        return
    now = time_ns()
    if not entries:
        yield "No rank has made a call yet."
    elif any(not entry.end for entry in entries):
        return
    else:
        last = max(entries, key=lambda entry: entry.end)
        yield (
            f"No rank has made a call for {duration(now - last.end)}: all are outside of calls "
            f"since {last.call.collective} {last.sequence}, {from_where(last)}."
        )
    yield from whereabouts({
        dump.rank: place(last_stacks(new_stacks(dump)), calling_thread(dump))
        for dump in dumps if is_here(dump)
    })  # fmt: skip
