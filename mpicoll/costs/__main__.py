"""Rank the algorithms of a collective by price: ``python -m mpicoll.costs allreduce --ranks 4096``.

Exit status 2: bad usage.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from mpicoll.bench import journal
from mpicoll.bench.cases import parse_size, split_names
from mpicoll.contract import collective as named
from mpicoll.costs.fitting import Fitted, fitted
from mpicoll.costs.models import Hockney, Link, LogGP, Model
from mpicoll.costs.ranking import Setting, candidates, rank
from mpicoll.costs.telling import Told, described, lines, notes, tables
from mpicoll.costs.topologies import Dragonfly, FatTree, Nodes, Switch, Topology, Torus
from mpicoll.errors import ArgumentError, CollectiveError
from mpicoll.simulator import contiguous

ALPHA_US, BETA_NS, GAMMA_NS = 2.0, 0.04, 0.05
"""A message, a byte at 25 GB/s, and to fold a byte, where nothing else is said."""
Given = dict[str, Any]

_TOPOLOGIES = ("switch", "nodes", "fat-tree", "torus", "dragonfly")
_time = click.FloatRange(0)
_many = click.IntRange(1)


@click.command(context_settings={"max_content_width": 100})
@click.argument("collective")
@click.option("--ranks", type=_many, required=True, help="Number of ranks.")
@click.option(
    "--bytes",
    "sizes",
    default="1M",
    help="Sizes to show, as 4K,1G; S as nccl-tests counts it.",
)
@click.option("--sweep", default="8:1G", help="Where to look for crossovers, low:high.")
@click.option("--root", type=click.IntRange(0), default=0, help="Root of the rooted ones.")
@click.option("--algorithms", default="", help="Only these, such as 'ring,chain(segments=1:64)'.")
@click.option("--topology", type=click.Choice(_TOPOLOGIES), default="switch")
@click.option(
    "--ranks-per-node", type=_many, default=4, help="nodes: ranks that share a node's link."
)
@click.option("--ranks-per-leaf", type=_many, default=32, help="fat-tree: ranks on a leaf switch.")
@click.option(
    "--oversubscription",
    type=click.FloatRange(1),
    default=1,
    help="fat-tree: links down over links up.",
)
@click.option("--dims", help="torus: its shape, as 16x16x16.")
@click.option("--routers", type=_many, default=4, help="dragonfly: routers of a group.")
@click.option("--ranks-per-router", type=_many, default=4, help="dragonfly: ranks on a router.")
@click.option(
    "--hop-us", type=_time, default=0, help="Microseconds for each link inside the network."
)
@click.option("--within-us", type=_time, help="nodes: microseconds of a message within a node.")
@click.option("--within-ns", type=_time, help="nodes: nanoseconds of each of its bytes.")
@click.option("--model", "kind", type=click.Choice(["hockney", "loggp"]), default="hockney")
@click.option(
    "--alpha-us",
    type=_time,
    help=f"hockney: microseconds of a message [{ALPHA_US:g}]; loggp: L + 2o.",
)
@click.option("--beta-ns", type=_time, help=f"Nanoseconds of a byte [{BETA_NS:g}].")
@click.option(
    "--bandwidth", type=click.FloatRange(0, min_open=True), help="GB/s, in place of --beta-ns."
)
@click.option("--gamma-ns", type=_time, help=f"Nanoseconds to fold a byte [{GAMMA_NS:g}].")
@click.option(
    "--overhead-us", type=_time, default=0.3, help="loggp: o, of the processor at either end."
)
@click.option("--gap-us", type=_time, default=0.3, help="loggp: g, between the starts of messages.")
@click.option(
    "--ports",
    type=click.IntRange(0),
    default=1,
    help="Messages that a rank drives at once; 0: start-ups overlap, and bytes share one link.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take alpha, beta and gamma from records of mpicoll.p2p or mpicoll.bench.",
)
@click.option("--backend", default="mpi4py", help="Whose records.")
@click.option(
    "--events", is_flag=True, help="Simulate every message, also where there is a closed form."
)
@click.option(
    "--patience",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    help="Seconds to generate a schedule, or to simulate it at one size.",
)
@click.option("--format", "style", type=click.Choice(["table", "jsonl"]), default="table")
def main(**given: Any) -> None:
    """Rank the algorithms of COLLECTIVE by what they should cost.

    Prints the ranking, the bound that no algorithm beats, and which algorithm is the cheapest
    from which size to which.
    """  # fmt: skip
    try:
        told = priced(given)
    except CollectiveError as error:
        raise click.UsageError(str(error)) from error
    if given["style"] == "jsonl":
        for line in lines(told):
            click.echo(line)
    else:
        _print(told)


def priced(given: Given) -> Told:
    """Price what the flags ask for.

    Raises:
        ArgumentError: flags that cannot be meant.
    """
    what, size = named(given["collective"]), given["ranks"]
    if given["root"] >= size:
        raise ArgumentError(f"root {given['root']} is not one of {size} ranks")
    sizes = tuple(map(parse_size, given["sizes"].split(",")))
    sweep = tuple(map(parse_size, given["sweep"].split(":")))
    if len(sweep) != 2 or not 0 < sweep[0] < sweep[1]:
        raise ArgumentError(f"--sweep {given['sweep']} is no smaller and larger size, as 8:1G")
    model, memory = _model(given)
    root = given["root"] if what.rooted else 0
    setting = Setting(
        what.name, model, _topology(given, memory), root, given["events"], given["patience"]
    )
    chosen = [*candidates(what.name, split_names(given["algorithms"]))]
    ranking = rank(setting, chosen, (*sweep, *sizes))
    if not ranking.curves:
        raise ArgumentError(f"no algorithm could be priced: {'; '.join(notes(ranking))}")
    return Told(ranking, sizes if what.unit != "none" else (0,), sweep)


def _model(given: Given) -> tuple[Model, Link | None]:
    """Return the model of messages, and what they take within a node."""
    (alpha, beta), memory, gamma, _ = known = _known(given)
    if known.source:
        click.echo(f"alpha, beta and gamma from {known.source}", err=True)
    alpha = _or(given["alpha_us"], 1e-6, alpha)
    beta = 1e-9 / given["bandwidth"] if given["bandwidth"] else _or(given["beta_ns"], 1e-9, beta)
    gamma = _or(given["gamma_ns"], 1e-9, gamma)
    if given["within_us"] is not None or given["within_ns"] is not None:
        memory = memory or Link(alpha, beta)
        memory = Link(
            _or(given["within_us"], 1e-6, memory.alpha), _or(given["within_ns"], 1e-9, memory.beta)
        )
    if given["kind"] == "hockney":
        return Hockney(alpha, beta, gamma, given["ports"] or None), memory
    overhead, gap = given["overhead_us"] / 1e6, given["gap_us"] / 1e6
    if alpha < 2 * overhead:
        raise ArgumentError(f"--alpha-us is L + 2o: at least {2 * given['overhead_us']:g} here")
    return LogGP(alpha - 2 * overhead, overhead, gap, beta, gamma, given["ports"] or 1), memory


def _known(given: Given) -> Fitted:
    """Return what the records tell, or else what is usual."""
    if given["source"]:
        return fitted(journal.read(given["source"]), given["backend"])
    return Fitted(Link(ALPHA_US / 1e6, BETA_NS / 1e9), None, GAMMA_NS / 1e9, "")


def _or(value: float | None, unit: float, otherwise: float) -> float:
    return otherwise if value is None else value * unit


def _topology(given: Given, memory: Link | None) -> Topology:
    size, hop, kind = given["ranks"], given["hop_us"] / 1e6, given["topology"]
    if kind == "nodes":
        count = -(-size // given["ranks_per_node"])
        return Nodes(size, hop, nodes=contiguous(size, count), memory=memory)
    if kind == "fat-tree":
        return FatTree(size, hop, given["ranks_per_leaf"], given["oversubscription"])
    if kind == "torus":
        if not given["dims"]:
            raise ArgumentError("a torus needs its shape: --dims 16x16x16")
        return Torus(size, hop, _shape(given["dims"]))
    if kind == "dragonfly":
        return Dragonfly(size, hop, given["routers"], given["ranks_per_router"])
    return Switch(size, hop)


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split("x"))
    except ValueError:
        raise ArgumentError(f"--dims {text} is no shape: give lengths, as 16x16x16") from None


def _print(told: Told) -> None:
    setting = told.ranking.setting
    click.echo(f"{described(setting.topology)}; {setting.model}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    for table in tables(told):
        console.print(table)
    for note in notes(told.ranking):
        click.echo(note)


if __name__ == "__main__":
    main()
