"""What the flags of ``python -m mpicoll.costs`` mean, and which do not go together."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from re import fullmatch
from typing import Any

import click

from mpicoll.costs.fitting import Fitted, fitted
from mpicoll.costs.models import Hockney, Link, LogGP, Model
from mpicoll.costs.topologies import (
    Dragonfly,
    FatTree,
    Nodes,
    Switch,
    Topology,
    Torus,
    in_order,
)
from mpicoll.errors import ArgumentError
from mpicoll.notation.contract import COLLECTIVES, Collective
from mpicoll.records import journal
from mpicoll.text.names import split_names
from mpicoll.text.sizes import parse_size

Given = dict[str, Any]
TOPOLOGIES = ("switch", "nodes", "fat-tree", "torus", "dragonfly")
MODELS = ("hockney", "loggp")
ALPHA_US, BETA_NS, GAMMA_NS = 2.0, 0.04, 0.05
"""A message, a byte at 25 GB/s, and to fold a byte, where nothing else is said."""
MOST_RANKS = 1 << 20
_MOST_BYTES = 1 << 60

_ONLY = {
    **dict.fromkeys(("ranks_per_node", "within_us", "within_ns"), ("topology", ("nodes",))),
    **dict.fromkeys(("ranks_per_leaf", "oversubscription"), ("topology", ("fat-tree",))),
    **dict.fromkeys(("routers", "ranks_per_router"), ("topology", ("dragonfly",))),
    "dims": ("topology", ("torus",)),
    "hop_us": ("topology", TOPOLOGIES[1:]),
    **dict.fromkeys(("overhead_us", "gap_us"), ("model", ("loggp",))),
}
"""For each flag that means nothing otherwise: another one, and what that must be."""


class Seconds(click.FloatRange):
    """A number from 0 on; unlike click's, never nan."""

    def __init__(self, *, min_open: bool = False) -> None:
        super().__init__(0, min_open=min_open)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        found = float(super().convert(value, param, ctx))
        if isnan(found):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return found


def check(given: Given, spelled: set[str], what: Collective) -> None:
    """Refuse flags that contradict each other, and those that would mean nothing.

    Args:
        spelled: names of the flags on the command line.

    Raises:
        ArgumentError: the first one of them.
    """
    for reason in _misfits(given, spelled, what):
        raise ArgumentError(reason)


def _misfits(given: Given, spelled: set[str], what: Collective) -> Iterator[str]:
    for name in sorted(spelled & _ONLY.keys()):
        other, wanted = _ONLY[name]
        if given[other] not in wanted:
            flag = name.replace("_", "-")
            yield f"--{flag} is for --{other} {' or '.join(wanted)}, not {given[other]}"
    if "root" in spelled and not what.rooted:
        rooted = ", ".join(each.name for each in COLLECTIVES.values() if each.rooted)
        yield f"--root is for {rooted}: {what.name} has none"
    if "algorithms" in spelled and not split_names(given["algorithms"]):
        yield "--algorithms names nothing: leave it out for all of them"
    if given["root"] >= given["ranks"]:
        yield f"root {given['root']} is not one of {given['ranks']} ranks"
    if {"sizes", "sweep"} & spelled and what.unit == "none":
        yield f"{what.name} moves no data: leave out --bytes and --sweep"
    if {"beta_ns", "bandwidth"} <= spelled:
        yield "--beta-ns and --bandwidth say the same thing: give one of them"
    if given["model"] == "loggp" and given["ports"] == 0:
        yield "--ports 0 is for --model hockney: LogGP counts ports"
    if "backend" in spelled and not given["source"]:
        yield "--backend is for --from: it says whose records to take"


def sizes(given: Given) -> tuple[int, ...]:
    """Return the sizes to show.

    Raises:
        ArgumentError: one is no size.
    """
    return tuple(map(_size, given["sizes"].split(",")))


def sweep(given: Given) -> tuple[int, int]:
    """Return the sizes between which to look for crossovers.

    Raises:
        ArgumentError: they are none, or do not ascend.
    """
    found = [_size(each) for each in given["sweep"].split(":")]
    if len(found) != 2 or not 0 < found[0] < found[1]:
        raise ArgumentError(f"--sweep {given['sweep']} is no smaller and larger size, as 8:1G")
    return found[0], found[1]


def _size(text: str) -> int:
    found = parse_size(text)
    if found > _MOST_BYTES:
        raise ArgumentError(f"{text} is too large: at most 2^60 bytes can be priced")
    return found


def known(given: Given) -> Fitted:
    """Return what the records tell, or else what is usual.

    Raises:
        ArgumentError: the records tell nothing, or are damaged.
    """
    if given["source"]:
        return fitted(journal.read(given["source"]), given["backend"], given["ports"] or None)
    return Fitted(Link(ALPHA_US / 1e6, BETA_NS / 1e9), None, GAMMA_NS / 1e9, "")


def notes(found: Fitted, given: Given) -> Iterator[str]:
    """Yield where alpha, beta and gamma come from, and what is_root against them."""
    if found.source:
        told = "alpha and beta" if found.gamma is None else "alpha, beta and gamma"
        yield f"{told} from {found.source}"
    if found.gamma is None and given["gamma_ns"] is None:
        yield f"gamma {GAMMA_NS:g} ns/B, the default: the records do not tell what folds take"
    yield from (f"warning: {doubt}" for doubt in found.doubts)


def model(given: Given, found: Fitted) -> Model:
    """Return the model of messages.

    Raises:
        ArgumentError: there is no such one.
    """
    link = _link(given, found.link, "alpha_us", "beta_ns")
    alpha, beta = link.alpha, 1e-9 / given["bandwidth"] if given["bandwidth"] else link.beta
    gamma = _or(given["gamma_ns"], 1e-9, GAMMA_NS / 1e9 if found.gamma is None else found.gamma)
    if given["model"] == "hockney":
        return Hockney(alpha, beta, gamma, given["ports"] or None)
    overhead, gap = given["overhead_us"] / 1e6, given["gap_us"] / 1e6
    if alpha < 2 * overhead:
        raise ArgumentError(f"--alpha-us is L + 2o: at least {2 * given['overhead_us']:g} here")
    return LogGP(alpha - 2 * overhead, overhead, gap, beta, gamma, given["ports"])


def topology(given: Given, found: Fitted, far: Link) -> Topology:
    """Return who shares which links.

    Args:
        far: what messages between nodes take.

    Raises:
        ArgumentError: there is no such one.
    """
    size, hop, kind = given["ranks"], given["hop_us"] / 1e6, given["topology"]
    if kind == "nodes":
        memory = found.within
        if given["within_us"] is not None or given["within_ns"] is not None:
            memory = _link(given, memory or far, "within_us", "within_ns")
        return Nodes(size, hop, nodes=in_order(size, given["ranks_per_node"]), memory=memory)
    if kind == "fat-tree":
        return FatTree(size, hop, given["ranks_per_leaf"], given["oversubscription"])
    if kind == "torus":
        return Torus(size, hop, _shape(given["dims"]))
    if kind == "dragonfly":
        return Dragonfly(size, hop, given["routers"], given["ranks_per_router"])
    return Switch(size, hop)


def _link(given: Given, otherwise: Link, alpha_us: str, beta_ns: str) -> Link:
    """Return what two flags say of messages, or else what is known."""
    return Link(
        _or(given[alpha_us], 1e-6, otherwise.alpha), _or(given[beta_ns], 1e-9, otherwise.beta)
    )


def _or(value: float | None, unit: float, otherwise: float) -> float:
    return otherwise if value is None else value * unit


def _shape(text: str | None) -> tuple[int, ...]:
    if not text:
        raise ArgumentError("a torus needs its shape: --dims 16x16x16")
    if not fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        raise ArgumentError(f"--dims {text} is no shape: give lengths, as 16x16x16")
    return tuple(map(int, text.split("x")))
