"""The cached plans of one group of ranks, the same on all ranks, by signature."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, Protocol, TypeVar

MOST_PLANS = 64


class Cached(Protocol):
    """What the cache holds for a signature.

    Attributes:
        number: how many were made before it; the ranks compare it with their calls.
        target: what the plan table runs: a program, or a function; None for nothing of ours.
    """

    @property
    def number(self) -> int: ...
    @property
    def target(self) -> object: ...

    def fail(self, error: BaseException) -> None:
        """Take the error by which this rank has left a run in its middle."""

    def set_aside(self) -> None:
        """Run no more: another rank has left a run in its middle."""

    def free(self) -> None:
        """Release the plan."""


P = TypeVar("P", bound=Cached)


class PlanCache(Generic[P]):
    """The plans of one group of ranks: 64 of them, the oldest goes first.

    The ranks add and drop plans in the same calls. A plan that fails stays allocated until the
    group is freed, as other ranks may still read its memory, or write there.

    Attributes:
        table: finds the plan of a call by its arguments: `mpicoll.engine._compiled.PlanTable`.
    """

    table: Any

    def __init__(self) -> None:
        self._plans: dict[Any, P] = {}
        self._plan_count = 0
        self._failed: list[P] = []

    def get(self, key: Any) -> P | None:
        """Return the plan of a key, None where there is none."""
        return self._plans.get(key)

    def add(self, key: Any, make: Callable[[int], P]) -> P:
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
    def plans(self) -> Collection[P]:
        """The plans, the oldest first."""
        return self._plans.values()

    @property
    def has_failed(self) -> bool:
        """Whether a plan has failed on this rank."""
        return bool(self._failed)

    def _take(self, key: Any) -> P:
        plan = self._plans.pop(key)
        if plan.target is not None:
            self.table.forget(plan.target)
        return plan

    def _keys(self, is_meant: Callable[[P], bool]) -> list[Any]:
        return [key for key, plan in self._plans.items() if is_meant(plan)]

    def _keys_of(self, target: object) -> list[Any]:
        return self._keys(lambda plan: target is not None and plan.target is target)

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

    def set_aside(self, numbers: set[int]) -> None:
        """Run the plans of these numbers no more."""
        for key in self._keys(lambda plan: plan.number in numbers):
            plan = self._take(key)
            plan.set_aside()
            self._failed.append(plan)

    def free(self) -> None:
        """Release all plans."""
        self._failed += [self._take(key) for key in list(self._plans)]
        for plan in self._failed:
            plan.free()
        self._failed.clear()
