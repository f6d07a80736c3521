"""What the probe reads, the costs that follow, and that all ranks take the same ones, once."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from run_collective import device

from mpicoll import Collectives
from mpicoll.backend import CMA, SYMMETRIC
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.runtime import probe, rates
from mpicoll.runtime.rates import COMPILED, NEVER, ON_REFERENCE, OVERSUBSCRIBED, Readings
from mpicoll.runtime.routes import Routes

BASES = {False: COMPILED, True: OVERSUBSCRIBED}
IDLE = ON_REFERENCE[COMPILED]


def costs_of(read: Readings, *, oversubscribed: bool = False) -> rates.Costs:
    usual = rates.constants(compiled=True, oversubscribed=oversubscribed)
    return rates.costs_of(read, usual, oversubscribed=oversubscribed)


@pytest.mark.parametrize("oversubscribed", [False, True])
@given(noise=some.lists(some.floats(0.72, 1.4), min_size=6, max_size=6))
def test_the_reference_machine_has_its_constants(noise: list[float], oversubscribed: bool) -> None:
    base = BASES[oversubscribed]
    read = Readings(*(
        each and each * factor for each, factor in zip(ON_REFERENCE[base], noise, strict=True)
    ))  # fmt: skip
    found = costs_of(read, oversubscribed=oversubscribed)
    assert found.rates == pytest.approx(base)
    assert found.fetched.others == rates.FETCHED[base].others
    rows = found.fetched.rows / rates.FETCHED[base].rows
    # From where it pays to fetch, fetching saves little: a launch more or less says nothing.
    assert rows == 1 if oversubscribed or set(noise) == {1.0} else 1 / 4 <= rows <= 4


@pytest.mark.parametrize("field", [each for each in Readings._fields if each != "windowed"])
@pytest.mark.parametrize("times", [1 / 4, 4])
def test_what_takes_longer_costs_more(field: str, times: float) -> None:
    """And what takes longer is left for the other transport from fewer bytes on, not from more."""
    found = costs_of(IDLE._replace(**{field: getattr(IDLE, field) * times}))
    priced = {"copy": "copy", "fetch": "fetch", "fetched": "clean", "flag": "wait",
              "passed": "dirty"}[field]  # fmt: skip
    before, after = getattr(COMPILED, priced), getattr(found.rates, priced)
    assert (after > before) == (times > 1) and after != before
    slower_to_fetch = (times > 1) == (field in ("fetch", "fetched", "flag"))
    least, usual = found.fetched.rows, rates.FETCHED[COMPILED].rows
    assert least >= usual if slower_to_fetch else least <= usual


def test_slow_reads_of_private_memory_are_never_taken() -> None:
    assert costs_of(IDLE._replace(fetched=8 * 5500)).fetched == rates.Fetched(NEVER, NEVER)
    assert math.isfinite(sum(costs_of(IDLE._replace(fetch=1e9)).rates))


@pytest.mark.parametrize(("copy", "fetched", "windowed"), [
    (2530, 9_400, 9_400), (2620, 10_100, 8_700), (2530, 8_700, 9_400), (2530, 10_100, 10_100),
])  # fmt: skip
def test_large_rows_are_fetched_where_two_copies_take_longer(
    copy: float, fetched: float, windowed: float
) -> None:
    """Readings of AMD Zen 4 whose cores have two L3 caches: as long from 128 KiB on."""
    read = Readings(copy, 3500, fetched, 300, passed=13_300, windowed=windowed)
    found = costs_of(read).fetched
    assert found.own(3) in (256 * 1024, 512 * 1024, 1024 * 1024)
    assert found.own(2) >= max(512 * 1024, found.own(3))


@pytest.mark.parametrize(
    ("windowed", "rows"), [(5_300, 2 << 20), (11_000, 256 * 1024), (1_000, NEVER)]
)
def test_rows_are_fetched_where_a_window_of_slots_takes_longer(windowed: float, rows: int) -> None:
    """Readings of AMD Zen 4: one L3 cache, two, and what no row that slots keep in caches gains."""
    read = Readings(2530, 3400, 8900, 115, passed=13_300, windowed=windowed)
    assert costs_of(read).fetched.rows == rows
    assert costs_of(read).rates == costs_of(read._replace(windowed=None)).rates


def test_where_fetching_is_slower_beside_passing_only_own_rows_are_fetched() -> None:
    assert costs_of(IDLE._replace(fetched=2 * 5500)).fetched.others == NEVER
    both = IDLE._replace(fetched=2 * 5500, passed=2 * 16_300)
    assert costs_of(both).fetched.others < NEVER


@pytest.mark.parametrize(
    ("name", "size", "least"),
    [
        ("scatter", 2, 64 * 1024), ("allgather", 3, 4 << 20), ("gather", 3, NEVER),
        ("broadcast", 2, NEVER),
        ("reduce_scatter", 2, NEVER), ("allgather", 2, 64 * 1024), ("alltoall", 3, 64 * 1024),
    ],
)  # fmt: skip
def test_where_fetching_is_slower_rows_are_fetched_that_one_rank_reads_or_that_are_large(
    name: str, size: int, least: int
) -> None:
    assert slow_to_fetch(size).fetches_from(call(name)) == least


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["alltoall", "scatter"])
def test_rows_of_two_ranks_have_a_limit_of_their_own(name: str, size: int) -> None:
    routes = slow_to_fetch(size)
    assert routes._costs is not None
    routes._costs = routes._costs._replace(fetched=rates.Fetched(64 * 1024, NEVER, pair=1 << 20))
    assert routes.fetches_from(call(name)) == (1 << 20 if size == 2 else 64 * 1024)


def slow_to_fetch(size: int, *, oversubscribed: bool = False, compiled: bool = False) -> Routes:
    policy = SimpleNamespace(oversubscribed=oversubscribed)
    shared = SimpleNamespace(no_cma="", wait_policy=policy)
    transport: Any = SimpleNamespace(shared=shared, size=size)
    routes = Routes(transport)
    routes._costs = costs_of(IDLE._replace(fetched=2 * 5500))
    routes.has_executor = compiled
    return routes


def call(name: str, **given: Any) -> Any:
    usual = {"op": SimpleNamespace(function=None), "counts": None, "in_place": False}
    return SimpleNamespace(collective=COLLECTIVES[name], **{**usual, **given})


@pytest.mark.parametrize(
    ("name", "size", "given", "passes"),
    [
        ("allgather", 2, {}, True), ("allgather", 3, {}, False), ("alltoall", 2, {}, False),
        ("allgather", 2, {"in_place": True}, False), ("allgather", 2, {"counts": (1, 2)}, False),
    ],
)  # fmt: skip
def test_of_two_ranks_one_that_copies_its_own_row_writes_it_to_a_slot_too(
    name: str, size: int, given: dict[str, Any], passes: bool
) -> None:
    least = slow_to_fetch(size, compiled=True).fetches_from(call(name, **given))
    assert (least == NEVER) == passes
    sharing = slow_to_fetch(size, compiled=True, oversubscribed=True)
    assert sharing.fetches_from(call(name, **given)) < NEVER


@pytest.mark.parametrize(("rows", "least"), [(1, 1), (2, 4), (8, 8)])
def test_a_rank_holds_a_row_of_a_scatter_beside_its_slots(rows: int, least: int) -> None:
    assert rates.Fetched(rows << 20, NEVER).scattered(3) == least << 20


@pytest.mark.parametrize(
    ("rows", "least"), [(1 << 16, 1 << 16), (2 << 20, 1 << 20), (32 << 20, 32 << 20)]
)
def test_one_of_two_ranks_fetches_a_part_of_a_row_that_it_would_not_fetch(
    rows: int, least: int
) -> None:
    assert rates.Fetched(rows, NEVER).scattered(2) == least


@pytest.mark.parametrize(
    ("name", "size", "route", "oversubscribed", "nbytes", "in_part"),
    [
        ("scatter", 2, CMA, False, 1 << 20, True),
        ("scatter", 2, CMA, False, (1 << 20) - 1, False),
        ("scatter", 2, CMA, True, 1 << 20, False),
        ("scatter", 3, CMA, False, 1 << 20, False),
        ("scatter", 2, SYMMETRIC, False, 1 << 20, False),
        ("gather", 2, CMA, False, 1 << 20, False),
        ("broadcast", 2, CMA, False, 1 << 20, False),
    ],
)
def test_a_row_that_one_rank_waits_for_is_fetched_in_part(
    name: str, size: int, route: str, oversubscribed: bool, nbytes: int, in_part: bool
) -> None:
    by_calls = slow_to_fetch(size, oversubscribed=oversubscribed)
    assert not by_calls.fetches_part(call(name), route, nbytes), "calls from Python have no windows"
    routes = slow_to_fetch(size, oversubscribed=oversubscribed, compiled=True)
    assert routes.fetches_part(call(name), route, nbytes) == in_part


@pytest.mark.parametrize("lost", [{"flag": 1e6}, {"passed": 1e7}, {"flag": None, "passed": None}])
def test_waits_for_ranks_without_a_core_are_not_believed(lost: dict[str, Any]) -> None:
    found = costs_of(IDLE._replace(**lost))
    assert found.rates == pytest.approx(COMPILED)
    assert "waits were disturbed" in found.origin and "flag" not in found.origin


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ([3000, 8600, 3500, 16_000, 200],
         Readings(3500, 2200, 6400, 200, 12_300)),
        ([3000, 8600, 3500], Readings(3500, 2200, 6400)),
        ([3500, 16_000, 200], Readings(3500, None, None, 200, 12_300)),
        ([3000, 8600, 3500, 3600, 200], Readings(3500, 2200, 6400)),
        ([3000, 8600, 3500, 16_000, 9000, 200],
         Readings(3500, 2200, 6400, 200, 12_300, 5300)),
        ([3000, 8600, 3500, 16_000, 3600, 200], Readings(3500, 2200, 6400, 200, 12_300)),
        ([9000, 8600, 3500, 16_000, 200], "16384 B of private memory took 9,000 ns"),
    ],
    ids=["all", "shared cores", "no CMA", "a flag took all", "window", "window too fast",
         "contradiction"],
)  # fmt: skip
def test_readings_are_differences_of_times(times: list[float], wanted: Readings | str) -> None:
    found = probe._readings(times, 0 if times[0] == 3500 else 2)
    if isinstance(wanted, str):
        assert isinstance(found, str) and found.startswith(wanted)
    else:
        assert isinstance(found, Readings) and found == pytest.approx(wanted)


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was measured in this process."""
    monkeypatch.setattr(probe, "_found", {})


def group(c: Collectives) -> Collectives:
    found = c.split(0)
    assert found is not None
    if found.transport.shared is None or len(found.nodes) > 1:
        pytest.skip("no shared memory among all ranks")
    return found


@pytest.mark.ranks(3)
def test_all_ranks_take_the_same_costs_measured_once(
    c: Collectives, forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = group(c)
    found = fresh.routes.costs()
    assert len(set(map(repr, c.exchange(repr(found), str)))) == 1
    assert all(math.isfinite(each) and each >= 0 for each in found.rates)
    monkeypatch.setattr(probe, "_read", None)  # by the first rank that comes here, for all
    assert group(c).routes.costs() == found
    half = c.split(int(c.rank == 2))
    assert half is not None
    crowded = [
        each.transport.shared and each.transport.shared.wait_policy.oversubscribed
        for each in (fresh, half)
    ]
    # Ranks that share cores measure what those with cores of their own do not.
    if half.size == 2 and crowded[0] == crowded[1]:
        assert half.routes.costs() == found
    c.barrier()


@pytest.mark.ranks(2)
def test_the_probe_can_be_turned_off(
    c: Collectives, forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(probe.SWITCH, "0")
    c.barrier()
    fresh = group(c)
    found, shared = fresh.routes.costs(), fresh.transport.shared
    assert shared is not None
    assert found[:2] == rates.constants(
        compiled=fresh.routes.has_executor, oversubscribed=shared.wait_policy.oversubscribed
    )[:2]  # fmt: skip
    assert found.origin == "constants: MPICOLL_PROBE turns the probe off"
    c.barrier()


@pytest.mark.ranks(2)
def test_a_choice_by_price_and_a_large_schedule_measure_and_others_do_not(
    c: Collectives, forgotten: None
) -> None:
    fresh = group(c)
    for algorithm, nbytes, measures in [
        ("native", 1 << 16, False), ("ring@symmetric", 1 << 16, False), ("ring", 64, False),
        ("ring", 1 << 16, not fresh.transport.shared.no_cma), ("auto", 64, True),
    ]:  # fmt: skip
        x = device(fresh, np.zeros(nbytes // 8), "float64")
        with fresh.plan("allreduce", x, algorithm=algorithm):
            assert bool(fresh.routes._costs) == measures, algorithm
