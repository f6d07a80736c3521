"""Print the state of a job: sentences, then a line for each rank."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpicoll.flight import words
from mpicoll.flight.diagnosis import Diagnosis, Rank
from mpicoll.flight.layout import Outcome
from mpicoll.flight.reader import Entry

_NANO = 1e9
_MOST_RANKS = 32
_HOW = {Outcome.DONE: "done", Outcome.RAISED: "raised", Outcome.ISSUED: "issued"}


def show(
    out: Console, directory: Path, found: Diagnosis, faults: list[str], *, stacks: bool = False
) -> None:
    """Print it.

    Args:
        stacks: print the whole stacks of all ranks.
    """
    out.print(Text(f"{directory}, {len(found.ranks)} ranks", style="bold"))
    for number, each in enumerate(words.sentences(found)):
        out.print(Text(each, style="bold" if number == 0 and found.stuck else ""))
    out.print()
    out.print(_table(found))
    if len(found.ranks) > _MOST_RANKS:
        out.print(Text(f"and {len(found.ranks) - _MOST_RANKS} more ranks: the page has them all"))
    for rank in found.ranks.values() if stacks else ():
        for name, frames in words.threads(rank):
            lines = [f"rank {rank.number}, {name}, innermost first:", *map(str, frames)]
            out.print(Text("\n  ".join(lines)))
    of_ranks = (
        f"rank {each.number}: {fault}"
        for each in found.ranks.values()
        for fault in (each.dump.faults if each.dump else ())
    )
    for fault in (*faults, *of_ranks):
        out.print(Text(f"damaged: {fault}"))


def _table(found: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("rank", "calls", "last call", "for", "from", "how it stands"):
        table.add_column(name, overflow="fold")
    for rank in _shown(found):
        last = rank.dump.entries[-1] if rank.dump and rank.dump.entries else None
        table.add_row(
            str(rank.number), str(last.number) if last else "-",
            last_call(last) if last else "-", lasting(found, last) if last else "-",
            words.line(last.where) if last and last.where else "-", rank.standing,
        )  # fmt: skip
    return table


def _shown(found: Diagnosis) -> list[Rank]:
    """Return the ranks that others wait for, then the others, but not too many."""
    first = [found.ranks[each] for each in found.waits_for]
    rest = [each for each in found.ranks.values() if each.number not in found.waits_for]
    shown = [*first, *rest][:_MOST_RANKS]
    return sorted(shown, key=lambda each: each.number)


def last_call(last: Entry) -> str:
    """Return the last call of a rank in few words."""
    group = f" of {last.group.name}" if last.group else ""
    return f"{last.call.collective} {last.sequence}{group}"


def lasting(found: Diagnosis, last: Entry) -> str:
    """Return how long a call is under way, or how it has ended, and when."""
    if last.outcome is Outcome.UNDER_WAY:
        return f"{max(0.0, (found.now - last.start) / _NANO):.3g} s"
    return f"{_HOW[last.outcome]} {max(0.0, (found.now - last.end) / _NANO):.3g} s ago"
