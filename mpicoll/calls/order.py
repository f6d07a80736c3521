"""The order in which a call folds: as an operator needs it, and as a user asks for it.

``MPICOLL_REPRODUCIBLE=1`` asks for one order, ((rank 0 op rank 1) op rank 2) op ..., each step
rounded to the dtype, whatever the number of elements, the nodes, the transport and the executor.
The simulator derives which schedules have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpicoll.errors import Unsupported
from mpicoll.machine.settings import REPRODUCIBLE

if TYPE_CHECKING:
    from mpicoll.algorithms.registry import Algorithm
    from mpicoll.backend import Transport
    from mpicoll.calls.arguments import Arguments


class FoldOrder:
    """Refuses algorithms whose order does not serve a call.

    Attributes:
        is_fixed: whether there is one order for all calls of this group.
    """

    def __init__(self, transport: Transport, *, is_fixed: bool) -> None:
        self.transport, self.is_fixed = transport, is_fixed

    def check(self, chosen: Algorithm, arguments: Arguments) -> None:
        """Raise Unsupported where an algorithm folds in another order than a call needs."""
        collective, size, root = arguments.collective, self.transport.size, arguments.root
        if not collective.reduces:
            return
        if not arguments.op.commutative and not self.keeps(chosen, root):
            need = f"does not keep rank order on {size} ranks with root {root}, which op "
            need += f"{arguments.op.name!r} needs"
        elif self.is_fixed and not self.keeps(chosen, root, one_by_one=True):
            need = f"does not fold rank by rank on {size} ranks with root {root}, as {REPRODUCIBLE}"
            need += " demands"
        else:
            return
        from mpicoll.algorithms.registry import algorithms

        safe = [
            algorithm.name for algorithm in algorithms(collective.name)
            if algorithm.needs.holds(size)
            and self.keeps(algorithm, root, one_by_one=self.is_fixed)
        ]  # fmt: skip
        raise Unsupported(f"{collective.name} algorithm {chosen} {need}: {', '.join(safe)} would")

    def check_native(self, arguments: Arguments) -> None:
        """Raise Unsupported where the library's own order does not serve a call."""
        if self.is_fixed and arguments.collective.reduces and self.transport.size > 1:
            raise Unsupported(
                f"{arguments.algorithm} folds in an order of the library's own, which "
                f"{REPRODUCIBLE} rules out: use 'auto'"
            )

    def keeps(self, chosen: Algorithm, root: int, *, one_by_one: bool = False) -> bool:
        """Whether an algorithm folds in rank order, as operators that do not commute need.

        Args:
            one_by_one: whether it must add one rank after the other to the first.
        """
        from mpicoll import simulator  # importing mpicoll is quicker without

        test = simulator.folds_one_by_one if one_by_one else simulator.is_ordered
        try:
            return test(chosen, self.transport.size, root, self.transport.nodes)
        except Unsupported:
            return False
