"""Tell why a running job is slow, without stopping it, or which call of it is stuck."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from mpicoll.doctor.late_rank import remarks
from mpicoll.flight.job import look
from mpicoll.flight.listing import jobs, show_jobs
from mpicoll.flight.reader import Dump
from mpicoll.flight.summary import show
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
    if diagnosis.stuck or not diagnosis.is_alive:
        show(out, directory, diagnosis, faults)
        out.print()
        summary.show(out, judge(dumps))
        return dumps
    out.print(Text(f"{directory}, {len(diagnosis.ranks)} ranks", style="bold"))
    dumps, faults = watch(directory, seconds)
    verdict = judge(dumps)
    summary.show(out, verdict, [*remarks(verdict)])
    of_ranks = (f"rank {dump.rank}: {fault}" for dump in dumps for fault in dump.faults)
    for fault in (*faults, *of_ranks):
        out.print(Text(f"damaged: {fault}"))
    return dumps
