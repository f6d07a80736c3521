"""The film in a terminal: blocks of every rank after every round, or several schedules compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mpicoll.explain.measures import ALPHA, BETA, crossover, least, seconds
from mpicoll.explain.trace import Cell, Film, Hop, listed, runs
from mpicoll.explain.words import (
    about_bytes,
    aim,
    counted,
    heard_of,
    reasons,
    sentence,
    share,
    together,
    verdict,
)
from mpicoll.text.numbers import number
from mpicoll.text.sizes import size_text

_CORNERS = {"vector": "block", "rows": "row", "pairs": "rows for", "none": ""}
_SIZES = (1 << 10, 1 << 20, 1 << 26)


class Glyphs(NamedTuple):
    """The signs that a terminal may lack."""

    arrow: str
    done: str
    levels: str
    full: str
    empty: str


UNICODE = Glyphs("→", "✓", "·▁▂▃▄▅▆▇█", "█", "░")
ASCII = Glyphs("->", "*", ".12345678", "#", ".")


def show(films: Sequence[Film], console: Console) -> None:
    """Print one schedule round by round, or what several differ in."""
    glyphs = UNICODE if "utf" in console.encoding.lower() else ASCII
    parts = compared(films, glyphs) if len(films) > 1 else played(films[0], console.width, glyphs)
    for part in parts:
        console.print(part, highlight=False, soft_wrap=False)


def played(film: Film, width: int, glyphs: Glyphs = UNICODE) -> Iterator[RenderableType]:
    """Yield the rounds of a schedule and how it compares with the least possible."""
    yield _title([film])
    yield Text(film.algorithm.summary, "italic")
    for now in range(film.rounds + 1):
        yield Text()
        yield _heading(film, now)
        if film.hops[now]:
            yield Padding(_messages(film, film.hops[now], glyphs), (0, 0, 0, 2), expand=False)
        yield Padding(_matrix(film, now, width, glyphs), (0, 0, 0, 2), expand=False)
    yield Text()
    yield _legend(film, glyphs)
    yield Text()
    yield from _verdicts([film])


def _title(films: Sequence[Film]) -> RenderableType:
    film = films[0]
    names = together(each.algorithm for each in films)
    title = Text(f"{film.collective.name}: {names}, {counted(film.size, 'rank')}", "bold")
    if len(film.nodes) > 1:
        places = "; ".join(runs(sum(1 << rank for rank in node)) for node in film.nodes)
        title.append(f", on {len(film.nodes)} nodes: {places}")
    return Group(title, Text(aim(film.collective.name, film.root)))


def _heading(film: Film, now: int) -> Text:
    if now == 0:
        return Text("Before the first round", "bold")
    heading = Text(f"Round {now} of {film.rounds}  ", "bold")
    return heading.append(sentence(film, now), "not bold")


def _messages(film: Film, hops: Sequence[Hop], glyphs: Glyphs) -> Text:
    """List the messages; those that leave their node are marked."""
    node = {rank: index for index, ranks in enumerate(film.nodes) for rank in ranks}
    text = Text()
    for hop in hops:
        across = node[hop.source] != node[hop.destination]
        text.append(f"{hop.source}{glyphs.arrow}{hop.destination}", "cyan")
        text.append(f"[{listed(hop.blocks)}]" if hop.blocks else "")
        text.append(f"{'@' if across else ''}  ")
    return text


def _matrix(film: Film, now: int, width: int, glyphs: Glyphs) -> RenderableType:
    """Return ranks by columns, or one sign for each cell where the terminal is too narrow."""
    rows = [
        [_cell(film, rank, column, cell, glyphs) for column, cell in enumerate(row)]
        for rank, row in enumerate(film.states[now])
    ]
    names = [column.name for column in film.columns]
    widest = max(len(text) for row in film.states[-1] for text in [runs(cell.mask) for cell in row])
    needed = 12 + sum(max(len(name), widest + 2) + 2 for name in names)
    if needed > width:
        return _dense(film, now, glyphs)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(_CORNERS[film.collective.unit], header_style="dim")
    for name in names:
        table.add_column(name, header_style="dim", no_wrap=True, min_width=widest + 2)
    for rank, row in enumerate(rows):
        table.add_row(f"rank {rank}", *row)
    return table


def _cell(film: Film, rank: int, column: int, cell: Cell, glyphs: Glyphs) -> Text:
    done = bool(cell.mask) and cell.mask == film.goals[rank][column]
    text = f"{cell.mark or ' '}{runs(cell.mask)}{glyphs.done if done else ''}"
    return Text(text.rstrip(), _style(film, rank, column, cell))


def _style(film: Film, rank: int, column: int, cell: Cell) -> str:
    """Colour by how much of the needed data is there; what changed is bold."""
    if cell.mask and cell.mask == film.goals[rank][column]:
        hue = "green"
    else:
        hue = ("blue", "cyan", "yellow")[min(2, 3 * cell.mask.bit_count() // (film.size + 1))]
    return f"{'bold ' if cell.mark else ''}{hue}"


def _dense(film: Film, now: int, glyphs: Glyphs) -> RenderableType:
    """Return a sign for each cell: how many of all ranks' data is in it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    most = max(film.most, *(cell.mask.bit_count() for row in film.states[now] for cell in row))
    for rank, row in enumerate(film.states[now]):
        line = Text(no_wrap=False)
        for column, cell in enumerate(row):
            level = -(-cell.mask.bit_count() * (len(glyphs.levels) - 1) // most)
            line.append(glyphs.levels[level], _style(film, rank, column, cell))
        table.add_row(f"rank {rank}", line)
    return table


def _legend(film: Film, glyphs: Glyphs) -> Text:
    whose = "ranks heard of" if film.collective.unit == "none" else "the ranks whose data is in it"
    said = (
        f"Cells: {whose}; {glyphs.done} all that is needed; in this round + folded in, "
        f"= taken over. Messages: from{glyphs.arrow}to[blocks]"
    )
    return Text(f"{said}, @ between nodes." if len(film.nodes) > 1 else f"{said}.", "dim")


def _verdicts(films: Sequence[Film]) -> Iterator[RenderableType]:
    for film in films:
        yield Text(verdict(film), "bold")
        if film.collective.reduces:
            order = "in rank order" if film.trace.ordered else "not in rank order"
            yield Text(f"  folds {share(film.trace.reduced)} on the busiest rank, {order}")
        for reason in reasons(film):
            yield Padding(Text(reason), (0, 0, 0, 2), expand=False)


# -- several ---------------------------------------------------------------------------------


def compared(films: Sequence[Film], glyphs: Glyphs = UNICODE) -> Iterator[RenderableType]:
    """Yield what each round achieves in each schedule, what it costs, and why."""
    yield _title(films)
    yield Text()
    yield _progress(films, glyphs)
    yield Text(
        "known: of how many ranks the least informed one has heard; moved: what the busiest rank "
        "has sent, or received;\ndone: how much of the result is in place",
        "dim",
    )
    yield Text()
    yield _costs(films)
    yield Text(_model(), "dim")
    yield from (Text(line, "bold") for line in _crossovers(films))
    yield Text()
    yield from _verdicts(films)


def _progress(films: Sequence[Film], glyphs: Glyphs) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("round", justify="right")
    for film in films:
        table.add_column(f"{film.algorithm.name}\nknown", overflow="fold")
        table.add_column("\nmoved", justify="right")
        table.add_column("\ndone", justify="right")
    for now in range(max(film.rounds for film in films) + 1):
        table.add_row(str(now), *(text for film in films for text in _reached(film, now, glyphs)))
    return table


def _reached(film: Film, now: int, glyphs: Glyphs) -> tuple[Text, ...]:
    if now > film.rounds:
        return (Text(),) * 3
    known = heard_of(film, now)
    bar = glyphs.full * known + glyphs.empty * (film.size - known) if film.size <= 16 else ""
    done = film.done(now)
    style = "green" if done == 1 else ""
    return (
        Text(f"{bar} {known}", "green" if known == film.size else "blue"),
        Text(share(film.moved(now))),
        Text(glyphs.done if done == 1 else f"{done:.0%}", style),
    )


def _costs(films: Sequence[Film]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "rounds", "bytes", "modelled time"):
        table.add_column(name, justify="right" if name in ("rounds", "bytes") else "left")
    for nbytes in _SIZES:
        table.add_column(f"of {size_text(nbytes)}", justify="right")
    few = least(films[0])
    table.add_row("least possible", str(few.rounds), share(few.volume))
    best = [min(seconds(film, nbytes) for film in films) for nbytes in _SIZES]
    for film in films:
        times = [seconds(film, nbytes) for nbytes in _SIZES]
        marked = [
            Text(f"{number(time * 1e6)} us", "bold green" if time == fastest else "")
            for time, fastest in zip(times, best, strict=True)
        ]
        table.add_row(
            str(film.algorithm),
            Text(str(film.rounds), "green" if film.rounds <= few.rounds else "yellow"),
            Text(
                share(film.moved(film.rounds)),
                "green" if film.moved(film.rounds) <= few.volume + 1e-9 else "yellow",
            ),
            f"{film.rounds} alpha + {share(film.volume, 'm beta')}",
            *marked,
        )
    return table


def _model() -> str:
    return (
        f"alpha = {number(ALPHA * 1e6)} us for each round, "
        f"beta = {number(BETA * 1e9)} ns for each byte ({number(1e-9 / BETA)} GB/s)"
    )


def _crossovers(films: Sequence[Film]) -> Iterator[str]:
    for one, other in combinations(films, 2):
        at = crossover(one, other)
        if at is not None:
            small, large = sorted((one, other), key=lambda film: film.rounds)
            yield f"{small.algorithm} is faster up to {about_bytes(at)}, {large.algorithm} above"
