"""HTML of what a report says; everything that comes from records is escaped here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any

from mpicoll.bench.render import number, size_text
from mpicoll.report.colours import NATIVE
from mpicoll.report.notices import Notice
from mpicoll.report.tables import Table
from mpicoll.report.winners import Winner, WinnerMap

_WORDS = {"error": "Wrong", "warning": "Warning", "note": "Note"}


def text(value: object) -> str:
    """Return a value as people read it, escaped."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(number(value) if isinstance(value, float) else str(value))


def table(source: Table, caption: str) -> str:
    """Return a table with its button for a download."""
    head = "".join(f'<th scope="col">{text(each)}</th>' for each in source.columns)
    body = "".join(f"<tr>{''.join(map(_cell, source.columns, row))}</tr>" for row in source.rows)
    return (
        f"{button(source.name, caption)}"
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def lazy_table(source: Table, caption: str) -> str:
    """Return a table that the page's script fills when it is opened: it may be long."""
    return (
        f"{button(source.name, caption)}"
        f'<details class="lazy" data-table="{text(source.name)}">'
        f"<summary>{text(caption)}: {len(source.rows)} rows</summary>"
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption)}"></div>'
        "</details>"
    )


def button(name: str, caption: str) -> str:
    """Return the button that downloads a table."""
    return (
        f'<button type="button" class="csv" data-csv="{text(name)}" '
        f'aria-label="Download as CSV: {text(caption)}">{text(name)}.csv</button>'
    )


def _cell(column: str, value: object) -> str:
    if column == "run":
        return f'<td title="{text(value)}">{text(str(value)[:8])}</td>'
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f'<td class="n">{text(value)}</td>' if is_number else f"<td>{text(value)}</td>"


def pairs(rows: Iterable[tuple[str, object]]) -> str:
    """Return names and values, those without a value left out."""
    inner = "".join(
        f"<dt>{text(name)}</dt><dd>{text(value)}</dd>"
        for name, value in rows if value not in (None, "")
    )  # fmt: skip
    return f"<dl>{inner}</dl>"


def notice(given: Notice) -> str:
    """Return a notice; its cases are folded where there are many."""
    items = "".join(f"<li>{text(each)}</li>" for each in given.where)
    listed = f"<ul>{items}</ul>" if items else ""
    if len(given.where) > 3:
        listed = f"<details><summary>{len(given.where)} of them</summary>{listed}</details>"
    return (
        f'<li class="notice {given.severity}"><strong>{_WORDS[given.severity]}: '
        f"{text(given.what)}.</strong> {text(given.why)}{listed}</li>"
    )


# -- winner maps --------------------------------------------------------------------------


def winner_table(maps: Sequence[WinnerMap], colours: Mapping[str, str]) -> str:
    """Return the winners of one setup: a line for each collective, variant and ranks."""
    sizes = sorted({size for each in maps for size in each.sizes})
    head = "".join(
        f'<th scope="col">{size_text(size) if size else "no data"}</th>' for size in sizes
    )
    body = "".join(_map(each, sizes, colours) for each in maps)
    return (
        '<div class="wide whole" tabindex="0" role="region" aria-label="Winner map">'
        '<table class="winners"><thead><tr><th scope="col">collective</th>'
        f'<th scope="col">ranks</th>{head}</tr></thead>{body}</table></div>'
    )


def _map(each: WinnerMap, sizes: Sequence[int], colours: Mapping[str, str]) -> str:
    lines = []
    for index, row in enumerate(each.rows):
        cells = "".join(_winner(each.cells.get((row, size)), colours) for size in sizes)
        title = (
            f'<th scope="rowgroup" rowspan="{len(each.rows)}">{text(each.collective)}'
            f"<small>{text(each.variant)}</small></th>"
        )
        ranks, nodes = row
        place = f"{ranks}<small>{nodes} nodes</small>" if nodes > 1 else f"{ranks}"
        lines.append(f'<tr>{title if not index else ""}<th scope="row">{place}</th>{cells}</tr>')
    return f"<tbody>{''.join(lines)}</tbody>"


def _winner(cell: Winner | None, colours: Mapping[str, str]) -> str:
    if cell is None:
        return "<td></td>"
    colour = colours.get(cell.label) or ("" if cell.label == NATIVE else "#888888")
    style = f' style="--c:{colour}"' if colour else ""
    times = f"{number(cell.times_native, 2)}&times;" if cell.times_native else ""
    tie = "= " if cell.ties else ""
    return (
        f'<td class="{"cell tie" if cell.ties else "cell"}"{style} title="{text(_told(cell))}">'
        f"<b>{tie}{text(cell.label)}</b><small>{text(cell.record['backend'])} {times}</small></td>"
    )


def _told(cell: Winner) -> str:
    first, second = cell.record, cell.runner_up
    asked = f"asked for as {first['algorithm']}, over {first['transport']}, "
    own = f"{number(first['time_us']['median'])} us"
    if second is None:
        return asked + own
    between = "ties with" if cell.ties else "before"
    return (
        f"{asked}{own}, {between} {second['backend']} {second['executed']} "
        f"({number(second['time_us']['median'])} us)"
    )


def _sayable(values: Any) -> Any:
    """Return values without what JSON has no word for."""
    if isinstance(values, dict):
        return {name: _sayable(each) for name, each in values.items()}
    if isinstance(values, list | tuple):
        return [_sayable(each) for each in values]
    return None if isinstance(values, float) and not isfinite(values) else values


def script_data(values: Any) -> str:
    """Return JSON that may stand inside a script element, whatever the values hold."""
    plain = json.dumps(_sayable(values), separators=(",", ":"), allow_nan=False)
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
