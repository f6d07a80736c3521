"""Plans that are under way, that fail, and that only some ranks have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_collective import compare, device, finish

from mpicoll import Collectives, RankLost
from mpicoll.calls.tags import Tags
from mpicoll.memory import slots

PLANS = ("ring", "ring@point-to-point", "native", "native:reduce+broadcast")
LARGE = slots.RING_BYTES // 16 + 1
ways = pytest.mark.parametrize("way", ["", "@point-to-point"], ids=["fastest", "point-to-point"])


def ones(c: Collectives, count: int = 5) -> Any:
    return device(c, np.ones(count), "float64")


def is_sum(c: Collectives, out: Any, count: int = 5) -> None:
    compare(c, out, np.full(count, c.size), "float64")


@pytest.mark.parametrize("algorithm", PLANS)
@pytest.mark.parametrize("again", ["run", "start", "free"])
def test_a_plan_under_way_is_left_alone(c: Collectives, algorithm: str, again: str) -> None:
    plan = c.plan("allreduce", ones(c), algorithm=algorithm)
    for complete in (lambda request: request.wait(), finish):
        request = plan.start()
        with pytest.raises(RuntimeError, match="under way: wait for it"):
            getattr(plan, again)()
        complete(request)
        is_sum(c, plan.out)
        plan.run()
        request.wait()
        is_sum(c, plan.out)
    plan.free()
    with pytest.raises(RuntimeError, match="freed"):
        getattr(plan, again)() if again != "free" else plan.start()


@ways
def test_a_kept_run_is_refused_too(c: Collectives, way: str) -> None:
    if c.size == 1:
        pytest.skip("one rank is done at once")
    with c.plan("allreduce", ones(c), algorithm=f"ring{way}") as plan:
        run, request = plan.run, plan.start()
        with pytest.raises(RuntimeError, match="under way"):
            run()
        request.wait()
        run()
        is_sum(c, plan.out)


def test_an_error_is_not_hidden_by_what_is_under_way(c: Collectives) -> None:
    plan = c.plan("allreduce", ones(c), algorithm="ring")
    request = plan.start()
    with pytest.raises(ValueError, match="planted"), plan:
        planted(None, None)
    request.wait()
    plan.free()


@ways
def test_a_run_that_fails_spares_the_others(c: Collectives, way: str) -> None:
    """Whoever waits for it hears, not whoever advanced it."""
    if c.size == 1:
        pytest.skip("one rank folds nothing")
    failing = c.plan("allreduce", ones(c), op=planted, algorithm=f"one_shot{way}")
    with c.plan("allreduce", ones(c), algorithm=f"ring{way}") as other:
        bad, good = failing.start(), other.start()
        good.wait()
        is_sum(c, other.out)
        for ask in (bad.wait, bad.test):
            with pytest.raises(ValueError, match="planted"):
                ask()
        failing.free()
        other.run()
        is_sum(c, other.out)


@pytest.mark.parametrize("other", ["native", "exchange", "barrier"])
def test_whatever_a_rank_waits_for_advances_what_it_has_started(c: Collectives, other: str) -> None:
    """The first rank waits for the plan, which needs all, before it takes part in the other."""
    if c.size == 1:
        pytest.skip("one rank is done at once")
    if other != "native" and (c.transport.shared is None or c.transport.shared.mailbox is None):
        pytest.skip("between nodes the library exchanges, and advances nothing else")
    native = c.plan("allreduce", ones(c, 2000), algorithm="native")
    with c.plan("allreduce", ones(c, 2000), algorithm="ring") as plan:
        for _ in range(3):
            first = plan.start()
            begun = native.start() if other == "native" else None
            if c.rank == 0:
                first.wait()
            if begun is not None:
                begun.wait()
            elif other == "exchange":
                assert c.exchange(c.rank) == list(range(c.size))
            else:
                c.barrier()
            first.wait()
            is_sum(c, plan.out, 2000)
    native.free()


def planted(left: Any, right: Any) -> Any:
    raise ValueError("planted")


def test_a_call_that_failed_may_be_made_again(c: Collectives) -> None:
    """Those who fold raise, the others miss them; the plan that ended half-way is not kept.

    In large slots of one cell, which wait for an acknowledgement that never came.
    """
    if c.size != 3 or c.transport.shared is None:
        pytest.skip("one number of ranks will do, of which one does not fold first")
    broken = False

    def flaky(left: Any, right: Any) -> Any:
        return planted(left, right) if broken else left + right

    def call() -> None:
        x = ones(c, LARGE)
        is_sum(c, c.allreduce(x, flaky, algorithm="recursive_doubling@symmetric"), LARGE)

    call()
    broken, c.deadline, before = True, 2, c.deadline
    try:
        with pytest.raises((ValueError, RankLost)):
            call()
    finally:
        broken, c.deadline = False, before
    call()


@ways
@pytest.mark.parametrize(
    ("first", "others"), [("aaaaa", "abcde"), ("abaab", "abbab")], ids=["made anew", "mixed up"]
)
def test_ranks_may_have_different_twins_of_a_function(
    c: Collectives, first: str, others: str, way: str
) -> None:
    """What one rank has a plan for another may not, or may have another plan."""
    twins = {letter: lambda left, right: left + right for letter in "abcde"}
    for letter in first if c.rank == 0 else others:
        is_sum(c, c.allreduce(ones(c), twins[letter], algorithm=f"recursive_doubling{way}"))


def test_tags_come_back(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that are under way together keep theirs, whichever others come and go."""
    monkeypatch.setattr(c.planner.binder, "tags", Tags(c.transport.exchange, max_tag=4))
    held = [c.plan("allreduce", ones(c), algorithm="ring@point-to-point") for _ in range(2)]
    for _ in range(5):
        with c.plan("allreduce", ones(c, 3), algorithm="ring@point-to-point") as other:
            requests = [plan.start() for plan in held]
            if c.rank % 2:
                requests[0].wait()
            other.run()
            for request in reversed(requests):
                request.wait()
            is_sum(c, other.out, 3)
    for plan in held:
        is_sum(c, plan.out)
        plan.free()
