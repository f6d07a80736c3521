"""The schedules of one rank: made once, and checked for size and rank order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpicoll.algorithms.registry import Algorithm, algorithms
from mpicoll.errors import Unsupported
from mpicoll.interfaces import Transport
from mpicoll.notation.schedule import Round, Schedule
from mpicoll.runtime.arguments import Arguments
from mpicoll.simulator import is_ordered

_MOST = 64


class Schedules:
    """The schedules that one rank of a group has run."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._made: dict[tuple[Callable[..., Schedule], str, int, Any], list[Round]] = {}

    def rounds(self, chosen: Algorithm, arguments: Arguments) -> list[Round]:
        """Return this rank's schedule of an algorithm.

        Raises:
            Unsupported: the algorithm cannot serve this number of ranks, root or counts.
        """
        rank, size, nodes = self.transport.rank, self.transport.size, self.transport.nodes
        root, counts = arguments.root, arguments.counts if chosen.takes("counts") else None
        key = chosen.generator, str(chosen), root, counts
        if key not in self._made:
            if len(self._made) == _MOST:
                self._made.clear()
            self._made[key] = chosen.rounds(rank, size, root, nodes, counts)
        return self._made[key]

    def check_order(self, chosen: Algorithm, arguments: Arguments) -> None:
        """Raise Unsupported where an algorithm cannot serve the number of ranks or the operator."""
        size, what = self.transport.size, arguments.collective
        chosen.serve(size)
        if arguments.op.commutative or not what.reduces or self.keeps_order(chosen, arguments.root):
            return
        safe = [
            each.name
            for each in algorithms(what.name)
            if each.needs.holds(size) and self.keeps_order(each, arguments.root)
        ]
        raise Unsupported(
            f"{what.name} algorithm {chosen} does not keep rank order on {size} ranks with root "
            f"{arguments.root}, which op {arguments.op.name!r} needs: {', '.join(safe)} would"
        )

    def keeps_order(self, chosen: Algorithm, root: int) -> bool:
        """Whether an algorithm folds in rank order, as operators that do not commute need."""
        try:
            return is_ordered(chosen, self.transport.size, root, self.transport.nodes)
        except Unsupported:
            return False
