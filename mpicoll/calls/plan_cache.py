"""The cached plans of one group of ranks, the same on all ranks, by signature."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from mpicoll.calls.cached_plan import CachedPlan

MOST_PLANS = 64


class PlanCache:
    """The plans of one group of ranks: 64 of them, the oldest goes first.

    The ranks add and drop plans in the same calls. A plan that fails stays allocated until the
    group is freed, as other ranks may still read its memory, or write there.

    Attributes:
        table: finds the plan of a call by its arguments: `mpicoll.engine._compiled.PlanTable`.
    """

    table: Any

    def __init__(self) -> None:
        self._plans: dict[Any, CachedPlan] = {}
        self._plan_count = 0
        self._failed: list[CachedPlan] = []

    def get(self, key: Any) -> CachedPlan | None:
        """Return the plan of a key, None where there is none."""
        return self._plans.get(key)

    def add(self, key: Any, make: Callable[[int], CachedPlan]) -> CachedPlan:
        """Return the plan that `make` returns for a number, and cache it in place of the oldest."""
        if len(self._plans) >= MOST_PLANS:
            self.drop_oldest()
        self._plan_count += 1
        plan = self._plans[key] = make(self._plan_count)
        return plan

    def drop_oldest(self) -> None:
        """Free the oldest plan."""
        self.drop([next(iter(self._plans))])

    @property
    def plans(self) -> Collection[CachedPlan]:
        """The plans, the oldest first."""
        return self._plans.values()

    @property
    def has_failed(self) -> bool:
        """Whether a plan has failed on this rank."""
        return bool(self._failed)

    def _take(self, key: Any) -> CachedPlan:
        plan = self._plans.pop(key)
        if plan.target is not None:
            self.table.forget(plan.target)
        return plan

    def _keys_of(self, target: object) -> list[Any]:
        plans = self._plans.items()
        return [key for key, plan in plans if target is not None and plan.target is target]

    def drop(self, keys: Iterable[Any]) -> None:
        """Free those of the plans that are cached."""
        for key in keys:
            if key in self._plans:
                self._take(key).free()

    def drop_target(self, target: object) -> None:
        """Free the plan that the table has begun on this rank alone."""
        self.drop(self._keys_of(target))

    def fail(self, key: Any, error: BaseException) -> None:
        """Remove the plan of a key, which has failed on this rank."""
        if key in self._plans:
            plan = self._take(key)
            plan.fail(error)
            self._failed.append(plan)

    def fail_target(self, target: object, error: BaseException) -> None:
        """Remove the plan that the table has run, which has failed on this rank."""
        for key in self._keys_of(target):
            self.fail(key, error)

    def free(self) -> None:
        """Release all plans."""
        self._failed += [self._take(key) for key in list(self._plans)]
        for plan in self._failed:
            plan.free()
        self._failed.clear()
