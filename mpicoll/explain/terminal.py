"""The trace of a schedule in a terminal, round by round, or several schedules compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mpicoll.explain.measures import ALPHA, BETA, crossover, minimum, seconds
from mpicoll.explain.trace import Cell, Hop, RoundTrace, listed, runs
from mpicoll.explain.words import (
    about_bytes,
    aim,
    heard_of,
    join_names,
    reasons,
    sentence,
    share,
    verdict,
)
from mpicoll.text.numbers import count_text, number
from mpicoll.text.sizes import size_text

_CORNERS = {"vector": "block", "rows": "row", "pairs": "rows for", "none": ""}
_SIZES = (1 << 10, 1 << 20, 1 << 26)


class Glyphs(NamedTuple):
    """The characters that a terminal may lack."""

    arrow: str
    check_mark: str
    levels: str
    full: str
    empty: str


UNICODE = Glyphs("→", "✓", "·▁▂▃▄▅▆▇█", "█", "░")
ASCII = Glyphs("->", "*", ".12345678", "#", ".")


def show(traces: Sequence[RoundTrace], console: Console) -> None:
    """Print one schedule round by round, or a comparison of several."""
    glyphs = UNICODE if "utf" in console.encoding.lower() else ASCII
    parts = (
        compared(traces, glyphs) if len(traces) > 1 else played(traces[0], console.width, glyphs)
    )
    for part in parts:
        console.print(part, highlight=False, soft_wrap=False)


def played(trace: RoundTrace, width: int, glyphs: Glyphs) -> Iterator[RenderableType]:
    """Yield the rounds of a schedule and how it compares with the least possible."""
    yield _title([trace])
    yield Text(trace.algorithm.summary, "italic")
    for now in range(trace.rounds + 1):
        yield Text()
        yield _heading(trace, now)
        if trace.hops[now]:
            yield Padding(_messages(trace, trace.hops[now], glyphs), (0, 0, 0, 2), expand=False)
        yield Padding(_matrix(trace, now, width, glyphs), (0, 0, 0, 2), expand=False)
    yield Text()
    yield _legend(trace, glyphs)
    yield Text()
    yield from _verdicts([trace])


def _title(traces: Sequence[RoundTrace]) -> RenderableType:
    trace = traces[0]
    names = join_names(trace.algorithm for trace in traces)
    title = Text(f"{trace.collective.name}: {names}, {count_text(trace.size, 'rank')}", "bold")
    if len(trace.nodes) > 1:
        places = "; ".join(runs(sum(1 << rank for rank in node)) for node in trace.nodes)
        title.append(f", on {len(trace.nodes)} nodes: {places}")
    return Group(title, Text(aim(trace.collective.name, trace.root)))


def _heading(trace: RoundTrace, now: int) -> Text:
    if now == 0:
        return Text("Before the first round", "bold")
    heading = Text(f"Round {now} of {trace.rounds}  ", "bold")
    return heading.append(sentence(trace, now), "not bold")


def _messages(trace: RoundTrace, hops: Sequence[Hop], glyphs: Glyphs) -> Text:
    """List the messages; those that leave their node are marked."""
    node = {rank: index for index, ranks in enumerate(trace.nodes) for rank in ranks}
    text = Text()
    for hop in hops:
        across = node[hop.source] != node[hop.destination]
        text.append(f"{hop.source}{glyphs.arrow}{hop.destination}", "cyan")
        text.append(f"[{listed(hop.blocks)}]" if hop.blocks else "")
        text.append(f"{'@' if across else ''}  ")
    return text


def _matrix(trace: RoundTrace, now: int, width: int, glyphs: Glyphs) -> RenderableType:
    """Return ranks by columns, or one sign for each cell where the terminal is too narrow."""
    names = [column.name for column in trace.columns]
    widest = max(
        len(text) for row in trace.states[-1] for text in [runs(cell.mask) for cell in row]
    )
    needed = 12 + sum(max(len(name), widest + 2) + 2 for name in names)
    if needed > width:
        return _dense(trace, now, glyphs)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(_CORNERS[trace.collective.unit], header_style="dim")
    for name in names:
        table.add_column(name, header_style="dim", no_wrap=True, min_width=widest + 2)
    for rank, row in enumerate(trace.states[now]):
        cells = (_cell(trace, rank, column, cell, glyphs) for column, cell in enumerate(row))
        table.add_row(f"rank {rank}", *cells)
    return table


def _cell(trace: RoundTrace, rank: int, column: int, cell: Cell, glyphs: Glyphs) -> Text:
    is_complete = bool(cell.mask) and cell.mask == trace.goals[rank][column]
    text = f"{cell.mark or ' '}{runs(cell.mask)}{glyphs.check_mark if is_complete else ''}"
    return Text(text.rstrip(), _style(trace, rank, column, cell))


def _style(trace: RoundTrace, rank: int, column: int, cell: Cell) -> str:
    """Return the style of a cell: a colour by its share of the data, bold if it changed."""
    if cell.mask and cell.mask == trace.goals[rank][column]:
        hue = "green"
    else:
        hue = ("blue", "cyan", "yellow")[min(2, 3 * cell.mask.bit_count() // (trace.size + 1))]
    return f"{'bold ' if cell.mark else ''}{hue}"


def _dense(trace: RoundTrace, now: int, glyphs: Glyphs) -> RenderableType:
    """Return a sign for each cell: how many of all ranks' data is in it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    highest = max(
        trace.max_ranks, *(cell.mask.bit_count() for row in trace.states[now] for cell in row)
    )
    for rank, row in enumerate(trace.states[now]):
        line = Text(no_wrap=False)
        for column, cell in enumerate(row):
            level = -(-cell.mask.bit_count() * (len(glyphs.levels) - 1) // highest)
            line.append(glyphs.levels[level], _style(trace, rank, column, cell))
        table.add_row(f"rank {rank}", line)
    return table


def _legend(trace: RoundTrace, glyphs: Glyphs) -> Text:
    whose = "ranks heard of" if trace.collective.unit == "none" else "the ranks whose data is in it"
    text = (
        f"Entries: {whose}; {glyphs.check_mark} all that is needed; in this round + reduced, "
        f"= taken over. Messages: from{glyphs.arrow}to[blocks]"
    )
    return Text(f"{text}, @ between nodes." if len(trace.nodes) > 1 else f"{text}.", "dim")


def _verdicts(traces: Sequence[RoundTrace]) -> Iterator[RenderableType]:
    for trace in traces:
        yield Text(verdict(trace), "bold")
        if trace.collective.reduces:
            order = "in rank order" if trace.proof.ordered else "not in rank order"
            yield Text(f"  reduces {share(trace.proof.reduced)} on the busiest rank, {order}")
        for reason in reasons(trace):
            yield Padding(Text(reason), (0, 0, 0, 2), expand=False)


# -- several ---------------------------------------------------------------------------------


def compared(traces: Sequence[RoundTrace], glyphs: Glyphs = UNICODE) -> Iterator[RenderableType]:
    """Yield tables that compare the rounds and costs of schedules, and the reasons."""
    yield _title(traces)
    yield Text()
    yield _progress(traces, glyphs)
    yield Text(
        "known: of how many ranks the least informed one has heard; moved: what the busiest rank "
        "has sent, or received;\ndone: how much of the result is in place",
        "dim",
    )
    yield Text()
    yield _costs(traces)
    yield Text(_model(), "dim")
    yield from (Text(line, "bold") for line in _crossovers(traces))
    yield Text()
    yield from _verdicts(traces)


def _progress(traces: Sequence[RoundTrace], glyphs: Glyphs) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("round", justify="right")
    for trace in traces:
        table.add_column(f"{trace.algorithm.name}\nknown", overflow="fold")
        table.add_column("\nmoved", justify="right")
        table.add_column("\ndone", justify="right")
    for now in range(max(trace.rounds for trace in traces) + 1):
        table.add_row(
            str(now), *(text for trace in traces for text in _reached(trace, now, glyphs))
        )
    return table


def _reached(trace: RoundTrace, now: int, glyphs: Glyphs) -> tuple[Text, ...]:
    if now > trace.rounds:
        return (Text(),) * 3
    reached = heard_of(trace, now)
    bar = glyphs.full * reached + glyphs.empty * (trace.size - reached) if trace.size <= 16 else ""
    completion = trace.completion(now)
    style = "green" if completion == 1 else ""
    return (
        Text(f"{bar} {reached}", "green" if reached == trace.size else "blue"),
        Text(share(trace.moved(now))),
        Text(glyphs.check_mark if completion == 1 else f"{completion:.0%}", style),
    )


def _costs(traces: Sequence[RoundTrace]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "rounds", "bytes", "modelled time"):
        table.add_column(name, justify="right" if name in ("rounds", "bytes") else "left")
    for nbytes in _SIZES:
        table.add_column(f"of {size_text(nbytes)}", justify="right")
    fewest = minimum(traces[0])
    table.add_row("least possible", str(fewest.rounds), share(fewest.volume))
    best = [min(seconds(trace, nbytes) for trace in traces) for nbytes in _SIZES]
    for trace in traces:
        times = [seconds(trace, nbytes) for nbytes in _SIZES]
        marked = [
            Text(f"{number(time * 1e6)} us", "bold green" if time == fastest else "")
            for time, fastest in zip(times, best, strict=True)
        ]
        table.add_row(
            str(trace.algorithm),
            Text(str(trace.rounds), "green" if trace.rounds <= fewest.rounds else "yellow"),
            Text(
                share(trace.moved(trace.rounds)),
                "green" if trace.moved(trace.rounds) <= fewest.volume + 1e-9 else "yellow",
            ),
            f"{trace.rounds} alpha + {share(trace.volume, 'm beta')}",
            *marked,
        )
    return table


def _model() -> str:
    return (
        f"alpha = {number(ALPHA * 1e6)} us for each round, "
        f"beta = {number(BETA * 1e9)} ns for each byte ({number(1e-9 / BETA)} GB/s); "
        "reductions are free"
    )


def _crossovers(traces: Sequence[RoundTrace]) -> Iterator[str]:
    for first, second in combinations(traces, 2):
        at = crossover(first, second)
        if at is not None:
            small, large = sorted((first, second), key=lambda trace: trace.rounds)
            yield f"{small.algorithm} is faster up to {about_bytes(at)}, {large.algorithm} above"
