"""A page that plays schedules: one file that needs no network, with the traces of 2 to 16 ranks.

The page holds the first state of a trace and the changes of each round; the script builds the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpicoll.algorithms.registry import Algorithm
from mpicoll.cli.progress import tracked
from mpicoll.errors import ArgumentError, Unsupported
from mpicoll.explain.measures import ALPHA, BETA, minimum
from mpicoll.explain.trace import RoundTrace, listed, trace_rounds
from mpicoll.explain.words import aim, join_names, reasons, sentence, verdict
from mpicoll.simulator import contiguous
from mpicoll.text.pages import templates

SIZES = range(2, 17)
"""Numbers of ranks that a page plays."""
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


def page(chosen: Sequence[Algorithm], ranks: int, root: int = 0, nodes: int | None = None) -> str:
    """Return the page.

    Args:
        ranks: how many it shows at first.
        nodes: over how many nodes ranks are spread.

    Raises:
        ArgumentError: a page does not play so many ranks.
    """
    if ranks not in SIZES:
        raise ArgumentError(f"a page plays {SIZES[0]} to {SIZES[-1]} ranks, not {ranks}")
    contract = chosen[0].collective
    data = {
        "collective": contract.name,
        "ranks": ranks,
        "alpha": ALPHA,
        "beta": BETA,
        "algorithms": [_traces(algorithm, root, nodes) for algorithm in tracked(chosen, str)],
    }
    title = f"{contract.name}: {join_names(chosen)}"
    template = templates(__package__, "assets").get_template("page.html")
    return template.render(policy=_POLICY, title=title, aim=aim(contract.name, root), data=data)


def _traces(algorithm: Algorithm, root: int, nodes: int | None) -> dict[str, Any]:
    return {
        "name": str(algorithm),
        "summary": algorithm.summary,
        "sizes": {size: _sized(algorithm, size, root, nodes) for size in SIZES},
    }


def _sized(algorithm: Algorithm, size: int, root: int, nodes: int | None) -> dict[str, Any]:
    """Return a trace, or the reason why there is none."""
    if root >= size:
        return {"refused": f"there is no rank {root} to be the root of {size}"}
    if nodes and nodes > size:
        return {"refused": f"{size} ranks cannot be on {nodes} nodes"}
    try:
        return as_data(
            trace_rounds(algorithm, size, root, contiguous(size, nodes) if nodes else None)
        )
    except Unsupported as reason:
        return {"refused": str(reason)}


def as_data(shown: RoundTrace) -> dict[str, Any]:
    """Return a trace as plain data.

    ``rounds[k]`` holds the changed cells ``[rank, column, mask, mark]`` and the messages
    ``[from, to, columns, share of m, label, folded]`` of round k, its bytes and its sentence.
    """
    bounds = minimum(shown)
    node = {rank: index for index, ranks in enumerate(shown.nodes) for rank in ranks}
    return {
        "columns": [column.name for column in shown.columns],
        "scratch": [column.scratch for column in shown.columns],
        "goals": shown.goals,
        "node": [node[rank] for rank in range(shown.size)],
        "least": [bounds.rounds, bounds.volume],
        "volume": shown.volume,
        "verdict": verdict(shown),
        "reasons": reasons(shown),
        "rounds": [_round(shown, now) for now in range(shown.rounds + 1)],
    }


def _round(shown: RoundTrace, now: int) -> dict[str, Any]:
    previous = shown.states[now - 1] if now else None
    cells = [
        [rank, column, cell.mask, cell.mark]
        for rank, row in enumerate(shown.states[now])
        for column, cell in enumerate(row)
        if cell.mask and (previous is None or cell.mark or cell.mask != previous[rank][column].mask)
    ]
    hops = [
        [hop.source, hop.destination, _columns(shown, hop.blocks),
         round(len(hop.blocks) / shown.whole, 6), listed(hop.blocks), hop.folded]
        for hop in shown.hops[now]
    ]  # fmt: skip
    return {
        "cells": cells,
        "hops": hops,
        "moved": round(shown.moved(now), 6),
        "says": sentence(shown, now),
    }


def _columns(shown: RoundTrace, blocks: Sequence[Any]) -> list[int]:
    carried = {*blocks}
    return [
        index for index, column in enumerate(shown.columns) if not carried.isdisjoint(column.blocks)
    ]
