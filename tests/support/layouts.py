"""How many ranks run a test in threads, on which nodes, with whose arrays."""

from __future__ import annotations

from typing import NamedTuple


class Layout(NamedTuple):
    """Ranks as threads; `per_node` of them share memory, all by default."""

    size: int
    per_node: int = 0
    library: str = "numpy"

    def __str__(self) -> str:
        nodes = f", {self.per_node} a node" if self.per_node else ""
        return f"{self.size} ranks{nodes}" + ", torch" * (self.library == "torch")


FEW, MORE = (Layout(3), Layout(4, per_node=2)), (Layout(1), Layout(2), Layout(5))
"""An odd number of ranks, and two nodes; the others of `MORE` are left out of ``.ci/quick``."""
