"""The flags of ``python -m mpicoll.costs``: their meaning, and which do not go together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short

from mpicoll.costs.fitting import Fitted, fitted
from mpicoll.costs.models import DEFAULT, AlphaBeta, Hockney, LogGP, Model
from mpicoll.costs.topologies import Dragonfly, FatTree, Nodes, Switch, Torus
from mpicoll.costs.topology import Topology, in_order
from mpicoll.errors import ArgumentError
from mpicoll.machine.nodes import MOST_RANKS
from mpicoll.notation.contract import COLLECTIVES, Collective
from mpicoll.records.reading import load
from mpicoll.text.names import split_names
from mpicoll.text.numbers import whole
from mpicoll.text.sizes import parse_size

TOPOLOGIES = ("switch", "nodes", "fat-tree", "torus", "dragonfly")
MODELS = ("hockney", "loggp")

_ONLY = {
    **dict.fromkeys(("ranks_per_node", "within_us", "within_ns"), ("topology", ("nodes",))),
    **dict.fromkeys(("ranks_per_leaf", "oversubscription"), ("topology", ("fat-tree",))),
    **dict.fromkeys(("routers", "ranks_per_router"), ("topology", ("dragonfly",))),
    "dims": ("topology", ("torus",)),
    "hop_us": ("topology", TOPOLOGIES[1:]),
    **dict.fromkeys(("overhead_us", "gap_us"), ("model", ("loggp",))),
}
"""For each flag that has a meaning only with another one: that one, and its values."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line; None where a flag was not given."""

    collective: str
    ranks: int
    sizes: tuple[int, ...]
    sweep: tuple[int, int]
    root: int
    algorithms: str | None
    topology: str
    ranks_per_node: int
    ranks_per_leaf: int
    oversubscription: float
    dims: tuple[int, ...] | None
    routers: int
    ranks_per_router: int
    hop_us: float
    within_us: float | None
    within_ns: float | None
    model: str
    alpha_us: float | None
    beta_ns: float | None
    bandwidth: float | None
    gamma_ns: float | None
    overhead_us: float
    gap_us: float
    ports: int
    source: Path | None
    backend: str
    time_limit: float | None
    style: str


def check(options: Options, spelled: set[str], contract: Collective) -> None:
    """Refuse flags that contradict each other, and those without a meaning here.

    Args:
        spelled: names of the flags on the command line.

    Raises:
        ArgumentError: the first one of them.
    """
    for reason in _misfits(options, spelled, contract):
        raise ArgumentError(reason)


def _misfits(options: Options, spelled: set[str], contract: Collective) -> Iterator[str]:
    for name in sorted(spelled & _ONLY.keys()):
        selector, wanted = _ONLY[name]
        if getattr(options, selector) not in wanted:
            flag = name.replace("_", "-")
            actual = getattr(options, selector)
            yield f"--{flag} is for --{selector} {' or '.join(wanted)}, not {actual}"
    if "root" in spelled and not contract.rooted:
        rooted = ", ".join(entry.name for entry in COLLECTIVES.values() if entry.rooted)
        yield f"--root is for {rooted}: {contract.name} has none"
    if "algorithms" in spelled and not split_names(options.algorithms or ""):
        yield "--algorithms names nothing: leave it out for all of them"
    if options.root >= options.ranks:
        yield f"root {options.root} is not one of {options.ranks} ranks"
    if {"sizes", "sweep"} & spelled and contract.unit == "none":
        yield f"{contract.name} moves no data: leave out --bytes and --sweep"
    if {"beta_ns", "bandwidth"} <= spelled:
        yield "--beta-ns and --bandwidth say the same thing: give one of them"
    if options.model == "loggp" and options.ports == 0:
        yield "--ports 0 is for --model hockney: LogGP counts ports"
    if "backend" in spelled and not options.source:
        yield "--backend is for --from: it says whose records to take"


def time_limit(options: Options) -> float:
    """Return the seconds of the processor for each algorithm: many where a few are named."""
    if options.time_limit is not None:
        return options.time_limit
    return 30.0 if options.algorithms else 1.0


def read_fit(options: Options) -> Fitted:
    """Return the times that the records tell, or else `DEFAULT`.

    Raises:
        ArgumentError: the records tell nothing, or are damaged.
    """
    if options.source:
        return fitted(load(options.source), options.backend, options.ports or None)
    return Fitted(AlphaBeta(DEFAULT.alpha, DEFAULT.beta), None, DEFAULT.gamma, "")


def notes(fit: Fitted, options: Options) -> Iterator[str]:
    """Yield the source of alpha, beta and gamma, and warnings about them."""
    if fit.source:
        names = "alpha and beta" if fit.gamma is None else "alpha, beta and gamma"
        yield f"{names} from {fit.source}"
    if fit.gamma is None and options.gamma_ns is None:
        default = f"{1e9 * DEFAULT.gamma:g} ns/B, the default"
        yield f"gamma {default}: the records do not tell how long folds take"
    yield from (f"warning: {doubt}" for doubt in fit.doubts)


def model(options: Options, fit: Fitted) -> Model:
    """Return the model of messages.

    Raises:
        ArgumentError: there is no such one.
    """
    link = _alpha_beta(options.alpha_us, options.beta_ns, fit.message)
    alpha, beta = link.alpha, 1e-9 / options.bandwidth if options.bandwidth else link.beta
    gamma = _or(options.gamma_ns, 1e-9, DEFAULT.gamma if fit.gamma is None else fit.gamma)
    if options.model == "hockney":
        return Hockney(alpha, beta, gamma, options.ports or None)
    overhead, gap = options.overhead_us / 1e6, options.gap_us / 1e6
    if alpha < 2 * overhead:
        raise ArgumentError(f"--alpha-us is L + 2o: at least {2 * options.overhead_us:g} here")
    return LogGP(alpha - 2 * overhead, overhead, gap, beta, gamma, options.ports)


def topology(options: Options, fit: Fitted, between: AlphaBeta) -> Topology:
    """Return the topology.

    Args:
        between: the time of a message between nodes.

    Raises:
        ArgumentError: there is no such one.
    """
    size, hop, kind = options.ranks, options.hop_us / 1e6, options.topology
    if kind == "nodes":
        memory = fit.within
        if options.within_us is not None or options.within_ns is not None:
            memory = _alpha_beta(options.within_us, options.within_ns, memory or between)
        return Nodes(size, hop, nodes=in_order(size, options.ranks_per_node), memory=memory)
    if kind == "fat-tree":
        return FatTree(size, hop, options.ranks_per_leaf, options.oversubscription)
    if kind == "torus":
        if not options.dims:
            raise ArgumentError("a torus needs its shape: --dims 16x16x16")
        return Torus(size, hop, options.dims)
    if kind == "dragonfly":
        return Dragonfly(size, hop, options.routers, options.ranks_per_router)
    return Switch(size, hop)


def _alpha_beta(us: float | None, ns: float | None, otherwise: AlphaBeta) -> AlphaBeta:
    """Return the values of two flags, or else those of `otherwise`."""
    return AlphaBeta(_or(us, 1e-6, otherwise.alpha), _or(ns, 1e-9, otherwise.beta))


def _or(value: float | None, unit: float, otherwise: float) -> float:
    return otherwise if value is None else value * unit


def parse_sweep(text: str) -> tuple[int, int]:
    """Return two sizes, which ascend.

    >>> parse_sweep("8:1K")
    (8, 1024)

    Raises:
        ArgumentError: they are none, or do not ascend.
    """
    bounds = [parse_size(text_of_bound) for text_of_bound in text.split(":")]
    if len(bounds) != 2 or not 0 < bounds[0] < bounds[1]:
        raise ArgumentError(f"{short(text)} is no smaller and larger size, as 8:1G")
    return bounds[0], bounds[1]


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the lengths of a torus.

    >>> parse_shape("4x2")
    (4, 2)

    Raises:
        ArgumentError: one is no length.
    """
    lengths = [whole(part, MOST_RANKS) for part in text.split("x")]
    shape = tuple(filter(None, lengths))
    if len(shape) < len(lengths):
        raise ArgumentError(f"{short(text)} is no shape: give lengths, as 16x16x16")
    return shape
