"""Run a collective once, through a cached plan over arrays of its own."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any, NamedTuple

from mpicoll.errors import CollectiveError
from mpicoll.interfaces import Array, Transport
from mpicoll.runtime.allocation import empty, empty_like_input
from mpicoll.runtime.arguments import Arguments, reconcile
from mpicoll.runtime.plan import Plan
from mpicoll.runtime.planner import Planner

_MOST = 32
_NO_DIGEST = b"unsettle"
"""Instead of a digest, from a rank that needs the other ranks' arguments first."""


class _Cached(NamedTuple):
    """A plan over arrays of its own, which serves every call of one signature.

    Attributes:
        number: how many were made before it, by which the ranks know that they run the same plan.
        arguments: those that it was made for.
    """

    number: int
    arguments: Arguments
    plan: Plan


class PlanCache:
    """The plans behind the methods of one group of ranks."""

    def __init__(self, transport: Transport, planner: Planner) -> None:
        self.transport, self.planner = transport, planner
        self._plans: OrderedDict[Any, _Cached] = OrderedDict()
        self._made = 0
        self._broken: list[Plan] = []

    def agree(self, checked: Arguments | CollectiveError) -> Arguments:
        """Return this rank's arguments, completed from the other ranks'; collective.

        Raises:
            CollectiveError: on every rank, where any rank's arguments are wrong or do not match.
        """
        own = str(checked) if isinstance(checked, CollectiveError) else checked.signature
        return reconcile(checked, self.transport.exchange(own))

    def run(self, checked: Arguments | CollectiveError) -> Array | None:
        """Run a call once, and return its result; collective."""
        if isinstance(checked, CollectiveError) or not checked.is_complete:
            self.transport.agree(_NO_DIGEST)
            return self._run_uncached(checked)
        key = checked.key
        cached = self._plans.get(key)
        if not self.transport.agree(checked.digest(cached and cached.number)):
            if cached is not None:
                self._plans.pop(key).plan.free()
            return self._run_uncached(checked)
        try:
            cached = cached or self._keep(key, checked)
            self._plans.move_to_end(key)
            return self._run_cached(cached, checked)
        except BaseException:
            # Other ranks may still read its memory, or write there.
            if key in self._plans:
                self._broken.append(self._plans.pop(key).plan)
            raise

    def _run_uncached(self, checked: Arguments | CollectiveError) -> Array | None:
        with self.planner.build(self.agree(checked)) as plan:
            plan.run()
            return plan.out

    def _keep(self, key: Any, arguments: Arguments) -> _Cached:
        """Make a plan to be cached, in place of the one that was used least recently."""
        if len(self._plans) == _MOST:
            self._plans.popitem(last=False)[1].plan.free()
        self._made += 1
        x = empty_like_input(self.transport, arguments)
        own = replace(arguments, x=x, out=None, in_place=False)
        self._plans[key] = _Cached(self._made, own, self.planner.build(own))
        return self._plans[key]

    def _run_cached(self, cached: _Cached, arguments: Arguments) -> Array | None:
        """Run a cached plan for a caller's arrays."""
        arrays, own, plan = self.transport.arrays, cached.arguments, cached.plan
        if arguments.x is not None:
            arrays.copier(arrays.flat(own.x), arrays.flat(arguments.x))()
        plan.run()
        if plan.out is None:
            return None
        out = arguments.out
        if out is None:
            out = empty(self.transport, arguments, arguments.shape("output"))
        if arguments.collective.after(arguments.place()):
            arrays.copier(arrays.flat(out), arrays.flat(plan.out))()
        return out

    def free(self) -> None:
        """Release all plans."""
        for plan in (*self._broken, *(each.plan for each in self._plans.values())):
            plan.free()
        self._broken.clear()
        self._plans.clear()
