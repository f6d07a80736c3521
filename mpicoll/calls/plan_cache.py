"""The cached plans of one group of ranks, the same on all ranks, by signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpicoll.calls.cached_plan import CachedPlan

MOST_PLANS = 64


class PlanCache:
    """The plans of one group of ranks: 64 of them, the oldest goes first.

    The ranks add and drop plans in the same calls. A plan that fails stays allocated until the
    group is freed, as other ranks may still read its memory, or write there.

    Attributes:
        plans: by signature, the oldest first.
        table: finds the plan of a call by its arguments: `mpicoll.engine._compiled.PlanTable`.
    """

    table: Any

    def __init__(self) -> None:
        self.plans: dict[Any, CachedPlan] = {}
        self._plan_count = 0
        self._failed: list[CachedPlan] = []

    def add(self, key: Any, make: Callable[[int], CachedPlan]) -> CachedPlan:
        """Return the plan that `make` returns for a number, and cache it in place of the oldest."""
        if len(self.plans) >= MOST_PLANS:
            self.drop_oldest()
        self._plan_count += 1
        plan = self.plans[key] = make(self._plan_count)
        return plan

    def drop_oldest(self) -> None:
        """Free the oldest plan."""
        self.drop(next(iter(self.plans)))

    def _take(self, key: Any) -> CachedPlan:
        plan = self.plans.pop(key)
        self.table.forget(plan)
        return plan

    def drop(self, key: Any) -> None:
        """Free the plan of a key, if it is cached."""
        if key in self.plans:
            self._take(key).plan.free()

    def fail(self, plan: CachedPlan, error: BaseException) -> None:
        """Remove a plan that has failed on this rank, if it is cached."""
        for key in [key for key, cached in self.plans.items() if cached is plan]:
            self._failed.append(self._take(key))
            plan.plan.fail(error)

    def free(self) -> None:
        """Release all plans."""
        self._failed += [self._take(key) for key in list(self.plans)]
        for cached in self._failed:
            cached.plan.free()
        self._failed.clear()
