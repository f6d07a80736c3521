"""Print the state of a job: sentences, then a line for each rank."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpicoll.cli.tables import plain_table
from mpicoll.flight import words
from mpicoll.flight.diagnosis import Diagnosis, Rank
from mpicoll.flight.layout import Outcome
from mpicoll.flight.reader import OTHER_JOBS, Dump, Entry
from mpicoll.text.numbers import duration

_MOST_RANKS = 32
_HOW = {Outcome.COMPLETED: "done", Outcome.RAISED: "raised", Outcome.ISSUED: "issued"}


def show(
    out: Console, directory: Path, diagnosis: Diagnosis, faults: list[str], *, stacks: bool = False
) -> None:
    """Print it.

    Args:
        stacks: print the whole stacks of all ranks.
    """
    out.print(Text(f"{directory}, {len(diagnosis.ranks)} ranks", style="bold"))
    for number, sentence in enumerate(words.sentences(diagnosis)):
        out.print(Text(sentence, style="bold" if number == 0 and diagnosis.is_stuck else ""))
    out.print()
    out.print(_table(diagnosis))
    if len(diagnosis.ranks) > _MOST_RANKS:
        out.print(
            Text(f"and {len(diagnosis.ranks) - _MOST_RANKS} more ranks: the page has their files")
        )
    for rank in diagnosis.ranks.values() if stacks else ():
        for name, frames in words.threads(rank):
            lines = [f"rank {rank.number}, {name}, innermost first:", *map(str, frames)]
            out.print(Text("\n  ".join(lines)))
    show_faults(out, [rank.dump for rank in diagnosis.ranks.values() if rank.dump], faults)


def show_faults(out: Console, dumps: Iterable[Dump], faults: Iterable[str]) -> None:
    """Print what cannot be read of the files of a directory."""
    of_ranks = (f"rank {dump.rank}: {fault}" for dump in dumps for fault in dump.faults)
    for fault in (*faults, *of_ranks):
        out.print(Text(fault if fault.startswith(OTHER_JOBS) else f"damaged: {fault}"))


def _table(diagnosis: Diagnosis) -> Table:
    table = plain_table(("rank", "calls", "last call", "for", "from", "how it stands"))
    for rank in _shown(diagnosis):
        last = rank.dump.entries[-1] if rank.dump and rank.dump.entries else None
        table.add_row(
            str(rank.number), str(last.number) if last else "-",
            last_call(last) if last else "-", lasting(diagnosis, last) if last else "-",
            words.line(last.location) if last and last.location else "-", rank.standing,
        )  # fmt: skip
    return table


def _shown(diagnosis: Diagnosis) -> list[Rank]:
    """Return the ranks that others wait for, then the others, but not too many."""
    first = [diagnosis.ranks[number] for number in diagnosis.waits_for]
    blamed = {*diagnosis.waits_for}
    others_of = [rank for rank in diagnosis.ranks.values() if rank.number not in blamed]
    shown = [*first, *others_of][:_MOST_RANKS]
    return sorted(shown, key=lambda rank: rank.number)


def last_call(last: Entry) -> str:
    """Return the last call of a rank in few words."""
    group = f" of {last.group.name}" if last.group else ""
    return f"{last.call.collective} {last.sequence}{group}"


def lasting(diagnosis: Diagnosis, last: Entry) -> str:
    """Return how long a call is under way, or how it has ended, and when."""
    if last.outcome is Outcome.UNDER_WAY:
        return duration(diagnosis.now - last.start)
    return f"{_HOW[last.outcome]} {duration(diagnosis.now - last.end)} ago"
