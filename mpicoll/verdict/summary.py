"""Print the verdict on a job: sentences, a table of the calls, and a timeline of the last ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from mpicoll.cli.tables import plain_table
from mpicoll.text.numbers import duration
from mpicoll.verdict.judging import Verdict
from mpicoll.verdict.matching import Place
from mpicoll.verdict.sentences import percent, place_text, sentences
from mpicoll.verdict.timeline import timeline

_MOST_PLACES = 12
COLUMNS = ("call", "of group", "calls", "waiting", "moving data", "late", "by", "in", "cause")


def show(out: Console, verdict: Verdict, remarks: Sequence[str] = ()) -> None:
    """Print the verdict.

    Args:
        remarks: further sentences, of what was seen while the job ran.
    """
    for place, sentence in enumerate((*sentences(verdict), *remarks)):
        out.print(Text(sentence, style="bold" if place == 0 and verdict.findings else ""))
    if not verdict.calls:
        return
    table = plain_table(COLUMNS)
    for row in rows(verdict):
        table.add_row(*row)
    out.print()
    out.print(table)
    out.print()
    for text in timeline(verdict):
        out.print(Text(text), no_wrap=True, crop=False)


def rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the places with the most lost time, the most expensive first."""
    observation = verdict.observation
    waiting, moving = observation.waiting, observation.moving
    for place in sorted(waiting, key=lambda place: -waiting[place] - moving[place])[:_MOST_PLACES]:
        yield _row(verdict, place)


def _row(verdict: Verdict, place: Place) -> tuple[str, ...]:
    observation = verdict.observation
    meetings = observation.meetings[place]
    latest = max(verdict.places[place].values(), key=lambda profile: profile.arrival.mean)
    causes = [finding.kind.value for finding in verdict.findings if finding.place == place]
    group = meetings[0].call.group
    function = f" in {place.location.function}" if place.location else ""
    return (
        f"{place_text(place)}{function}", group.name or group.id, f"{len(meetings):,}",
        percent(observation.waiting[place]),
        percent(observation.moving[place]), f"rank {latest.rank}" if latest.late_calls else "-",
        duration(latest.lateness) if latest.late_calls else "-",
        percent(len(latest.late_calls) / latest.calls), ", ".join(dict.fromkeys(causes)) or "-",
    )  # fmt: skip
