"""Start each sample on all ranks at once, and exchange their reports of the last one."""

from __future__ import annotations

import os
from time import sleep
from typing import NamedTuple

import numpy as np

from mpicoll.collectives import Collectives
from mpicoll.measurement import clock

_MARGIN_NS = (10_000, 2_000_000)
_NAP = 50e-6


class Report(NamedTuple):
    """One rank's part of a sample, in ns.

    Attributes:
        now: the time; `delay`: how long after the deadline the rank began.
        elapsed: how long it took, on its GPU for arrays there; `host`: by its own clock.
        switches: how often it was made to leave its core meanwhile.
    """

    now: int
    delay: int
    elapsed: int
    host: int
    switches: int


class StartSynchroniser:
    """A bound allgather of reports, and the deadline that follows from them.

    Attributes:
        time: rank 0's clock at the last exchange, alike on every rank, ns.
        sync_error: the bound on the error of the ranks' clocks against rank 0's, ns.
    """

    def __init__(self, world: Collectives, oversubscribed: bool) -> None:
        self.oversubscribed, self.arrays = oversubscribed, world.transport.arrays
        self.mine = self.arrays.empty((len(Report._fields),), "int64")
        self.every = self.arrays.empty((world.size, len(Report._fields)), "int64")
        # A library's own call may leave ranks asleep or stacked on one core for a while.
        on_node = world.transport.shared is not None and len(world.nodes) == 1
        on_node &= self.arrays.is_on_host(self.mine)
        how = "direct@symmetric" if on_node else "native"
        self.plan = world.plan("allgather", self.mine, out=self.every, algorithm=how)
        self.world = world
        self.margin = 2 * _MARGIN_NS[0]
        self.deadline = self.time = self.offset = self.sync_error = 0
        self.synchronise()

    def synchronise(self) -> None:
        """Compare the clocks: those of different hosts drift apart by microseconds a second."""
        self.offset, error = clock.offset_to_root(self.world)
        self.sync_error = max(self.world.exchange(error))
        self.exchange()

    def exchange(
        self,
        delay: int = 0,
        elapsed: int = 0,
        host: int = 0,
        switches: int = 0,
        *,
        nap: bool = False,
    ) -> list[Report]:
        """Exchange the last sample's parts, and agree on when the next one begins.

        Args:
            nap: wait for the others asleep. Polling here would take the cores from ranks of
                another library, or from threads of gloo, that are still at work.
        """
        if nap and self.oversubscribed:
            pending = self.plan.start()
            while not pending.test():
                sleep(_NAP)
        report = Report(clock.now() + self.offset, delay, elapsed, host, switches)
        self.arrays.from_host(self.mine, np.array(report))
        self.plan.run()
        reports = [Report(*values) for values in self.arrays.to_host(self.every).tolist()]
        self.deadline = max(report.now for report in reports) + self.margin
        self.time = reports[0].now
        return reports

    def wait(self) -> int:
        """Return at the deadline, and by how much it was missed."""
        deadline, now = self.deadline - self.offset, clock.now
        if self.oversubscribed:
            while now() < deadline:
                os.sched_yield()
        while (delay := now() - deadline) < 0:
            pass
        return delay

    def adapt(self, was_late: bool) -> None:
        """Give ranks more time to get to the next deadline when they come late, else less."""
        low, high = _MARGIN_NS
        wanted = self.margin * (1.5 if was_late else 0.97)
        self.margin = int(min(high, max(low, wanted)))
