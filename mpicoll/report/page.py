"""The page: one file that needs no network, with its script, style, data and plotly inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any

from mpicoll.errors import ArgumentError
from mpicoll.report import markup
from mpicoll.report.charts import drawn, heat_maps
from mpicoll.report.colours import colours
from mpicoll.report.data import Report
from mpicoll.report.markup import script_data, text
from mpicoll.report.model_comparison import HOW
from mpicoll.report.setups import Setup, kind
from mpicoll.report.tables import Table, tables

_SCRIPTS = ("state", "traces", "views", "tools", "pairs", "tables", "main")
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
"""Nothing may be fetched, whatever a record holds."""

_LEGEND = (
    "Each cell names the fastest correct algorithm, its backend, and how many times as fast it is "
    "as the fastest native call of either. Hatched and marked “=”: the intervals of the "
    "winner and of the runner-up overlap, so either may be the faster one."
)
_AGAINST = (
    "The model is Hockney's, alpha + beta &times; bytes for each message, with the alpha and beta "
    "that pairs measured and folds for free, run through the schedule event by event. The bound is "
    "what no schedule of messages can beat on such links: the rounds that knowledge takes to "
    "spread, or the bytes that some rank must move; the charts above show the times of it. Ranks "
    "that start several messages at once, or read each other's memory, may beat it. The library's "
    "own calls have no model, as no record says what they run."
)


def page(found: Report) -> str:
    """Return the page.

    Raises:
        ArgumentError: plotly is not installed.
    """
    library = plotly()
    hues, listed = colours(found.panels, found.maps), tables(found)
    return "".join((
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
        f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{text(_title(found))}</title><style>{_file('page.css')}</style></head><body>",
        *_body(found, hues, listed),
        f'<script type="application/json" id="data">{_data(found, hues, listed)}</script>',
        f"<script>{library}</script><script>{_script()}</script></body></html>\n",
    ))  # fmt: skip


@cache
def plotly() -> str:
    """Return the plotting library's script.

    Raises:
        ArgumentError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ArgumentError("a page needs plotly: pip install 'mpicoll[report]'") from None
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _script() -> str:
    return "\n".join(_file(f"{name}.js") for name in _SCRIPTS)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _data(found: Report, hues: Mapping[str, str], listed: Mapping[str, Table]) -> str:
    values = {
        "colours": hues,
        "panels": drawn(found),
        "pairs": heat_maps(found),
        "tables": {
            name: {"columns": list(each.columns), "rows": [list(row) for row in each.rows]}
            for name, each in listed.items()
        },
    }
    return script_data(values)


def _title(found: Report) -> str:
    kinds = dict.fromkeys(kind(run) for run in found.records.runs.values())
    return f"Collectives on {'; '.join(kinds)}"


def _body(found: Report, hues: Mapping[str, str], listed: Mapping[str, Table]) -> Iterator[str]:
    yield f"<header><h1>{text(_title(found))}</h1>{_nav(found)}</header><main>"
    yield from _warnings(found, listed)
    yield from _machine(found, listed)
    if found.panels:
        yield from _curves(found, listed)
        yield from _winners(found, hues, listed)
        yield from _beside(listed)
    yield from _pairs(found, listed)
    yield "</main>"


def _nav(found: Report) -> str:
    names = ["warnings", "machine"]
    names += ["curves", "winners", "against"] if found.panels else []
    links = "".join(f'<a href="#{name}">{name}</a>' for name in (*names, "pairs"))
    return f'<nav aria-label="Sections">{links}</nav>'


def _warnings(found: Report, listed: Mapping[str, Table]) -> Iterator[str]:
    yield '<section id="warnings"><h2>Warnings</h2>'
    if found.notices:
        yield f'<ul class="notices">{"".join(map(markup.notice, found.notices))}</ul>'
        yield markup.button("warnings", "all warnings with their cases")
    else:
        yield "<p>None: nothing in these records gives a reason to doubt them.</p>"
    yield "</section>"


def _machine(found: Report, listed: Mapping[str, Table]) -> Iterator[str]:
    yield '<section id="machine"><h2>The machine</h2>'
    for setup in found.setups:
        yield f"<h3>Setup {text(setup.title)}</h3>{markup.pairs(_facts(setup))}"
    yield markup.table(listed["machines"], "Hosts of each run")
    yield markup.table(listed["runs"], "Runs")
    yield markup.lazy_table(listed["variables"], "Environment variables that matter")
    yield "</section>"


def _facts(setup: Setup) -> Iterator[tuple[str, Any]]:
    """Yield what the runs of a setup share."""
    first = setup.runs[0]
    stack = first.get("stack") or {}
    mpi = stack.get("mpi") or {}
    yield "hosts", ", ".join(dict.fromkeys(host for run in setup.runs for host in run["hosts"]))
    yield "ranks", ", ".join(str(len(run["hosts"])) for run in setup.runs)
    yield "MPI", " ".join(str(mpi.get(name) or "") for name in ("library", "device")).strip()
    yield "provider", mpi.get("provider")
    yield "NCCL", stack.get("nccl")
    yield "versions", ", ".join(f"{name} {each}" for name, each in first["versions"].items())
    yield "command", " ".join(map(str, first.get("argv") or first.get("command") or ()))


def _curves(found: Report, listed: Mapping[str, Table]) -> Iterator[str]:
    yield '<section id="curves"><h2>Time, bandwidth, speed-up</h2>'
    yield (
        "<p>Medians with the bands of their intervals. At first native, auto and the four fastest "
        "others of each panel are shown; colours are algorithms, dashes backends, markers "
        "transports (circle: native, triangle: messages, square and diamond: shared memory). "
        "Hover for what ran. In a speed-up, open markers are ties.</p>"
    )
    yield '<div id="tools" role="group" aria-label="What the charts show"></div>'
    names = [each.collective for each in found.panels if each.curves]
    for name, _ in groupby(names):
        yield f'<article class="collective" data-collective="{text(name)}"><h3>{text(name)}</h3>'
        yield "</article>"
    yield markup.lazy_table(listed["cases"], "Everything measured, with speed-up over native")
    yield "</section>"


def _winners(found: Report, hues: Mapping[str, str], listed: Mapping[str, Table]) -> Iterator[str]:
    yield f'<section id="winners"><h2>Winner maps</h2><p>{_LEGEND}</p>'
    yield markup.button("winners", "the winner of every cell")
    for setup in found.setups:
        own = [each for each in found.maps if each.setup == setup.name]
        if own and len(found.setups) > 1:
            yield f"<h3>Setup {text(setup.title)}</h3>"
        # What moves no data would leave a column to itself.
        for maps in ([m for m in own if any(m.sizes)], [m for m in own if not any(m.sizes)]):
            if maps:
                yield markup.winner_table(maps, hues)
    yield "</section>"


def _beside(listed: Mapping[str, Table]) -> Iterator[str]:
    yield '<section id="against"><h2>Measured against model and bound</h2>'
    if listed["against"].rows:
        yield f"<p>{_AGAINST}</p>"
        yield markup.table(listed["fits"], "Alpha and beta of pairs")
        yield markup.lazy_table(listed["against"], "Measured against model and bound")
    else:
        yield f"<p>{text(HOW)}</p>"
    yield "</section>"


def _pairs(found: Report, listed: Mapping[str, Table]) -> Iterator[str]:
    yield '<section id="pairs"><h2>Pairs of ranks</h2>'
    if found.records.pairs:
        yield "<p>From row to column; bright is good, “!” is far from the median of its class.</p>"
        yield '<div id="pair-maps"></div>'
        yield markup.lazy_table(listed["pairs"], "Every pair")
    else:
        yield f"<p>{text(HOW)}</p>"
    yield "</section>"
