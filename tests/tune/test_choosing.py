"""Candidates, and the ranges of sizes that follow from their times."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mpicoll.measurement.candidate import Candidate
from mpicoll.selection import tables
from mpicoll.selection.auto import CANDIDATES, between
from mpicoll.tune.choosing import LEAST_SAMPLES, candidates, good_enough, ranges
from mpicoll.tune.command import DEFAULT_SIZES


def make_candidates(**times: float) -> list[Candidate]:
    """Return candidates of these medians, their samples within a per cent of it."""
    members = []
    for name, time in times.items():
        candidate = Candidate(SimpleNamespace(algorithm=name))  # type: ignore[arg-type]
        candidate.samples = {block: time * (0.99 + block / 1000) for block in range(20)}
        members.append(candidate)
    return members


def test_candidates_within_the_noise_are_good_enough() -> None:
    assert set(good_enough(make_candidates(a=1.0, b=1.02, c=1.3))) == {"a", "b"}


def test_equals_do_not_alternate() -> None:
    """The fewest ranges: one candidate serves as long as nobody beats it by more than noise."""
    by_size = {
        4: make_candidates(a=1.0, b=1.01), 16: make_candidates(a=1.01, b=1.0),
        64: make_candidates(a=1.0, b=1.02),
        256: make_candidates(a=3.0, b=2.0), 1024: make_candidates(a=9.0, b=4.0),
    }  # fmt: skip
    assert [(part["upto"], part["algorithm"]) for part in ranges(by_size)] == [(None, "b")]
    by_size[4] = make_candidates(a=1.0, b=2.0)
    assert [(part["upto"], part["algorithm"]) for part in ranges(by_size)] == [
        (128, "a"), (None, "b")
    ]  # fmt: skip


def noisy_sizes(seed: int, **times: tuple[float, float]) -> dict[int, list[Candidate]]:
    """Return twelve sizes of candidates with a time on small sizes and a time on large sizes.

    Samples vary by a third, like those of ranks that share cores.
    """
    random = Random(seed)
    by_size = {}
    for step in range(12):
        by_size[4 << 2 * step] = make_candidates(**dict.fromkeys(times, 1.0))
        for candidate in by_size[4 << 2 * step]:
            time = times[candidate.case.algorithm][step // 6]
            candidate.samples = {
                block: time * random.lognormvariate(0, 0.3) for block in range(LEAST_SAMPLES)
            }
    return by_size


@pytest.mark.parametrize("seed", range(20))
def test_noise_makes_no_ranges(seed: int) -> None:
    """An algorithm is replaced where another one is significantly faster, and nowhere else."""
    equal = noisy_sizes(seed, **dict.fromkeys(("native", *"abcdef"), (1.0, 1.0)))
    assert len(ranges(equal)) == 1
    crossing = noisy_sizes(seed, native=(4.0, 1.0), a=(1.0, 4.0), b=(9.0, 9.0))
    assert [(part["upto"], part["algorithm"]) for part in ranges(crossing)] == [
        (1 << 13, "a"), (None, "native")
    ]  # fmt: skip


@given(
    some.dictionaries(
        some.sampled_from(DEFAULT_SIZES),
        some.fixed_dictionaries({n: some.floats(1, 100) for n in ("native", "a", "b")}),
        min_size=1,
    )
)
def test_no_range_holds_a_loser(times: dict[int, dict[str, float]]) -> None:
    by_size = {size: make_candidates(**medians) for size, medians in times.items()}
    decision = tables.Decision(ranges(by_size))
    for size, medians in times.items():
        assert medians[decision.lookup(size)] <= min(medians.values()) * 1.1


def test_sweeps_and_names_asked_for_are_candidates() -> None:
    """Those that this collective has."""
    world: Any = SimpleNamespace(
        transport=SimpleNamespace(shared=None, name="point-to-point"), nodes=((0,), (1,)),
        transports=["point-to-point"], algorithms=lambda name: ["native"],
    )  # fmt: skip
    more = ["knomial(radix=2)", "knomial(radix=3)", "openmpi_default", "rabenseifner"]
    assert candidates(world, "gather", 64, more) == ["native", *between("gather"), *more[:3]]


def test_on_gpus_the_calls_of_other_libraries_are_candidates() -> None:
    """As nobody knows beforehand which of them wins."""
    natives_of_others = {"symm_one_shot": None, "symm_two_shot": None}
    transport = SimpleNamespace(
        shared=1, name="point-to-point", other_natives=lambda name: natives_of_others
    )
    world: Any = SimpleNamespace(
        transport=transport, nodes=((0, 1),), transports=["point-to-point", "symmetric", "cma"],
        algorithms=lambda name: ["native"],
    )  # fmt: skip
    names = candidates(world, "allreduce", 1 << 30, [], on_gpu=True)
    natives = ["native", "native:symm_one_shot", "native:symm_two_shot"]
    assert names == [*natives, *(f"{name}@ipc" for name in CANDIDATES["allreduce"])]


@pytest.mark.parametrize("spoilt", ["late_samples", "preempted"])
@pytest.mark.parametrize("is_counted", [True, False])
def test_a_disturbed_native_keeps_its_place_and_has_no_ratio(spoilt: str, is_counted: bool) -> None:
    """No gain over native is known where most of its samples were disturbed."""
    by_size = {64: make_candidates(native=142.0, ring=0.26)}
    blocks = range(19) if is_counted else range(20, 60)
    setattr(by_size[64][0], spoilt, dict.fromkeys(blocks, 142.0))
    assert ranges(by_size) == [{"upto": None, "algorithm": "native", "ratio": None}]


def test_a_disturbed_candidate_hides_no_loser() -> None:
    measured = make_candidates(native=10.0, ring=5.0, naive=1.0)
    measured[2].late_samples = dict.fromkeys(range(20, 60), 1.0)
    assert good_enough(measured).keys() == {"ring", "naive"}
