"""Prices of schedules under models of messages and topologies.

A price is the time from a common start until the last rank is done. `simulate` finds it by
following every message (`events`) of one rank of each class (`classes`), on any topology. Times are
in seconds and sizes in bytes throughout.
`python -m mpicoll.costs allreduce --ranks 4096 --bytes 1G` ranks the algorithms of a collective.
"""

from mpicoll.costs.events import simulate
from mpicoll.costs.listings import pattern_of
from mpicoll.costs.models import AlphaBeta, Hockney, LogGP, Model
from mpicoll.costs.network import Network, price
from mpicoll.costs.patterns import Pattern
from mpicoll.costs.topologies import Dragonfly, FatTree, Nodes, Switch, Torus
from mpicoll.costs.topology import Topology

__all__ = [
    "AlphaBeta", "Dragonfly", "FatTree", "Hockney", "LogGP", "Model", "Network", "Nodes",
    "Pattern", "Switch", "Topology", "Torus", "pattern_of", "price", "simulate",
]  # fmt: skip
