"""Truths that are planted in synthetic records, and the sentences that must tell them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from browsing import Opened
from msgspec import convert
from msgspec.structs import replace
from reporting import fit

from mpicoll.compare.comparison import load
from mpicoll.measurement.launches import summed_up
from mpicoll.records.description import FullRun, Machine, Run
from mpicoll.records.lines import (
    CaseRecord,
    FitRecord,
    Forced,
    LaunchRecord,
    Record,
    RunRecord,
    Speedup,
    SpeedupVsOther,
    SpeedupVsStrongest,
    Times,
)
from mpicoll.records.reading import encoded, only
from mpicoll.records.reading import load as load_records
from mpicoll.report.data import report
from mpicoll.report.loading import load as load_report
from mpicoll.study.apart import environments_of
from mpicoll.study.cells import study_of
from mpicoll.study.crossovers import Crossings
from mpicoll.study.findings import (
    BACKENDS,
    BETWEEN,
    CROSSOVERS,
    MEASURED,
    OTHERS,
    OWN,
    SAME,
    SHORT,
    WINNERS,
    findings,
)
from mpicoll.study.forms import forms_of, rows
from mpicoll.study.launching import native_name
from mpicoll.study.markdown import facts
from mpicoll.study.outcome import found_in, write_outcome
from mpicoll.study.page import page
from mpicoll.study.questions import ONE_OR_TWO
from mpicoll.study.sentences import OPEN

SIZES = (64, 4096, 65536, 1048576)
FORCED = native_name("ring")
Truth = Callable[[str, int, int], float]
"""The microseconds of an algorithm at a size in a launch."""


def case(
    algorithm: str, size: int, us: float, run: str, launch: int, environment: str = "mpich",
    native: float | None = None, **more: object,
) -> CaseRecord:  # fmt: skip
    ratio = Speedup(native / us, 0.9 * native / us, 1.1 * native / us, "tie") if native else None
    known = {
        "run": Run(id=run), "environment": environment, "launch": launch,
        "collective": "allreduce", "algorithm": algorithm, "executed": algorithm,
        "backend": "mpi4py", "library": "MPI", "transport": "symmetric", "dtype": "float32",
        "op": "sum", "root": None, "in_place": False, "ranks": 4, "bytes_total": size,
        "correct": True, "samples": 3, "samples_us": [0.99 * us, us, 1.01 * us],
        "time_us": Times(us, 0.99 * us, 1.01 * us), "speedup_vs_native": ratio,
    }  # fmt: skip
    return CaseRecord(**{**known, **more})  # type: ignore[arg-type]


def launched(
    truth: Truth, algorithms: Iterable[str], environment: str = "mpich", count: int = 10,
    forced: str = "", seed: int = 0,
) -> list[Record]:  # fmt: skip
    """Return the records of launches that differ by 2 %, in all algorithms alike."""
    random, found = Random(f"{environment} {forced} {seed}"), list[Record]()
    native = native_name(forced) if forced else "native"
    how = {"allreduce": Forced(forced, "ring", {}, True)} if forced else {}
    for launch in range(count):
        run, drift = f"{environment}-{forced}-{launch}-{seed}", random.gauss(1, 0.02)
        found.append(
            LaunchRecord(
                configuration=f"{environment}{forced}",
                launch=launch,
                run=run,
                environment=environment,
                ranks=4,
                forced=how,
            )
        )
        for size in SIZES:
            own = truth(native, size, launch) * drift
            found.append(case(native, size, own, run, launch, environment))
            for each in algorithms:
                us = truth(each, size, launch) * drift * random.gauss(1, 0.004)
                found.append(_side_by_side(each, size, us, own, run, launch, environment, forced))
    return found


def _side_by_side(
    algorithm: str, size: int, us: float, native: float, run: str, launch: int, environment: str,
    forced: str,
) -> CaseRecord:  # fmt: skip
    made = case(algorithm, size, us, run, launch, environment, native)
    if forced and made.speedup_vs_native:
        found = made.speedup_vs_native
        made.speedup_vs_native = None
        made.speedup_vs_other = SpeedupVsOther(
            found.ratio, found.low, found.high, "tie", against=f"mpi4py {native_name(forced)}"
        )
    return made


def told(records: list[Record], section: str) -> str:
    found = findings(study_of(records), Crossings(records, environments_of(records)))
    return "\n".join(each.text for each in found if each.section == section)


def constant(**us: float) -> Truth:
    return lambda algorithm, size, launch: us[algorithm.split("(")[0]] * (1 + size / 65536)


def test_a_winner_is_told_with_sizes_factor_and_launches() -> None:
    records = launched(constant(native=10.0, ring=5.0), ["ring"])
    found = told(records, WINNERS)
    assert found.startswith("allreduce on 4 ranks, 64 B to 1M: mpicoll's ring in mpich is 2.0")
    assert "times as fast as the strongest native (native of mpich), in 40 of 40" in found
    assert "launches (10 at each size): 5.0" in found and found.endswith(" us at 1M.")
    assert not told(records, OPEN)


def test_a_tie_is_called_one() -> None:
    records = launched(constant(native=10.0, ring=10.0), ["ring"])
    assert "64 B to 1M: mpicoll's ring in mpich ties with the strongest native" in told(
        records, WINNERS
    )
    assert "times as fast as the" not in told(records, WINNERS)


@pytest.mark.parametrize(("factor", "said"), [(0.05, "20"), (20.0, "0.05")])
def test_a_lie_of_one_launch_changes_no_verdict(factor: float, said: str) -> None:
    """Whichever way the lie goes, the others decide; and it never makes a winner of a tie."""

    def truth(algorithm: str, size: int, launch: int) -> float:
        us = {"native": 10.0, "ring": 9.0, "bruck": 10.0}[algorithm]
        return us * factor if launch == 3 and algorithm != "native" else us

    assert "mpicoll's ring in mpich is 1.11" in told(launched(truth, ["ring"]), WINNERS)
    found = told(launched(truth, ["bruck"]), WINNERS)
    assert "ties with" in found and said not in found


@pytest.mark.parametrize("liar", ["native", "ring", "native:reduce+broadcast", FORCED])
@pytest.mark.parametrize("factor", [0.02, 50.0])
def test_one_launch_of_ten_decides_nothing_anywhere(liar: str, factor: float) -> None:
    """All is level, but for one algorithm in one launch: no sentence makes a winner of it."""

    def truth(algorithm: str, size: int, launch: int) -> float:
        return 10.0 * (factor if launch == 3 and algorithm == liar else 1.0)

    over = "native:reduce+broadcast"
    records = [
        *launched(truth, ["ring", over]),
        *launched(truth, ["ring"], forced="ring"),
        *launched(constant(native=1e5), [], "slow"),
    ]
    for each in [one for one in records if isinstance(one, CaseRecord)]:
        if each.environment == "mpich" and each.algorithm == "ring" and each.time_us:
            us = each.time_us.median
            records.append(case("auto", each.bytes_total, us, each.run.id, 0))
            more = {"backend": "torch", "library": "gloo"}
            for name in ("auto", "native"):
                records.append(case(name, each.bytes_total, 10.0, each.run.id, 0, **more))
    for section in (WINNERS, OTHERS, SAME, ONE_OR_TWO, BACKENDS):
        found = told(records, section)
        assert found and "slow" not in found
        assert not re.search(r"is [\d.]+ (to [\d.]+ )?times as fast as|beats one call", found)
        # Lines through the times have microseconds of their own.
        told_us = re.findall(r"([\d.]+) us(?! \+)", found)
        assert all(9 < float(each) < 11 for each in told_us)
    assert "faster than the strongest native in none and slower in none" in told(records, SHORT)


def test_the_best_of_twenty_that_are_level_is_seldom_called_a_winner() -> None:
    """Launches differ by 5 %, and one of twenty schedules always looks the fastest."""
    wins = 0
    for seed in range(15):
        random = Random(seed)

        def truth(*_: object, random: Random = random) -> float:
            return 10 * random.gauss(1, 0.05)

        records = launched(truth, [f"ring_{number}" for number in range(20)], seed=seed)
        wins += told(records, WINNERS).count("times as fast as the strongest")
    assert wins <= 0.05 * 15 * len(SIZES)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_clock_that_runs_at_another_rate_makes_no_winner(factor: float) -> None:
    """What is compared with a native call is compared by one clock, wherever it can be."""

    def study(rate: float) -> list[Record]:
        found: list[Record] = []
        for name, own in ("mpich", 1.0), ("openmpi", rate):
            truth = lines(own, native=(9, 9e-3), ring=(9, 9e-3), recursive_doubling=(2, 2e-2))
            found += launched(truth, ["ring", "recursive_doubling"], name)
            found += launched(truth, ["ring"], name, forced="ring")
        return found

    true, false = study(1.0), study(factor)
    for section in ("Ring or tree", CROSSOVERS):
        assert told(false, section) == told(true, section) and "in mpich and openmpi" in told(
            true, section
        )
    for section in (WINNERS, OWN, OTHERS, SAME):
        found = [factors(told(each, section)) for each in (false, true)]
        assert found[0] == pytest.approx(found[1], rel=0.02), section
        assert "ties with" in told(false, section) or section == OTHERS


def test_a_crossover_of_one_environment_is_told_of_it_alone() -> None:
    algorithms = ["ring", "recursive_doubling"]
    crossing = lines(native=(9, 9e-3), ring=(6, 1e-3), recursive_doubling=(2, 4e-3))
    level = lines(native=(9, 9e-3), ring=(6, 1e-3), recursive_doubling=(8, 2e-3))
    later = lines(native=(9, 9e-3), ring=(400, 1e-3), recursive_doubling=(2, 4e-3))
    records = [*launched(crossing, algorithms), *launched(level, algorithms, "openmpi")]
    (found,) = told(records, CROSSOVERS).splitlines()
    assert "in mpich: our ring overtakes our recursive_doubling between 64 B and 4K;" in found
    questions = told(records, "Ring or tree").splitlines()
    assert len(questions) == 3 and "mpich and openmpi" not in "".join(questions)
    assert any("64 B to 1M, in openmpi: our ring is" in each for each in questions)
    first, second = told([*records, *launched(later, algorithms, "intel")], CROSSOVERS).splitlines()
    assert first == found
    assert "in intel: our ring overtakes our recursive_doubling between 64K and 1M;" in second


def factors(text: str) -> list[float]:
    """Return how many times as fast the sentences say that something is."""
    found = re.findall(r"([\d.]+) (?:to ([\d.]+) )?times as fast", text)
    return [float(each) for pair in found for each in pair if each]


def lines(rate: float = 1.0, **costs: tuple[float, float]) -> Truth:
    """Return the truth of algorithms that cost so much a call, and a byte, by a clock's rate."""

    def truth(algorithm: str, size: int, launch: int) -> float:
        alpha, beta = costs[algorithm.split("(")[0]]
        return rate * (alpha + beta * size)

    return truth


def test_a_reversal_with_size_is_two_sentences_and_a_crossover() -> None:
    truth = lines(native=(9.0, 9e-3), ring=(6.0, 1e-3), recursive_doubling=(2.0, 4e-3))
    records = launched(truth, ["ring", "recursive_doubling"])
    found = told(records, "Ring or tree")
    assert "64 B, in mpich: our recursive_doubling is 2.6" in found
    assert "4K to 1M, in mpich: our ring is" in found
    crossing = "our ring overtakes our recursive_doubling between 64 B and 4K"
    text = told(records, CROSSOVERS)
    assert f"{crossing}; there is no alpha and beta of symmetric" in text
    pairs = convert(fit("symmetric"), FitRecord)
    pairs.run = Run(id="pairs")
    where = LaunchRecord(configuration="pairs", launch=0, run="pairs", environment="mpich", ranks=4)
    text = told([*records, where, pairs], CROSSOVERS)
    assert f"{crossing}; the cost model has it at" in text


def test_the_strongest_native_is_of_any_environment_and_algorithm() -> None:
    records = [
        *launched(constant(native=10.0, ring=9.0), ["ring"]),
        *launched(constant(native=5.0, ring=9.0), ["ring"], "openmpi"),
        *launched(constant(native=4.0, ring=9.0), ["ring"], "openmpi", forced="ring"),
    ]
    found = told(records, WINNERS)
    assert "the strongest native (native(algorithm=ring) of openmpi) is 2.2" in found
    within = told(records, OWN)
    assert "in mpich: the fastest schedule is 1.11 times as fast as the strongest native" in within
    assert "in openmpi: the strongest native is 2.2" in within
    beaten = told(records, OTHERS)
    assert "native(algorithm=ring) of openmpi is 1.2" in beaten
    assert "mpich" not in beaten
    same = told(records, SAME)
    assert "native(algorithm=ring) of openmpi is 2.2" in same and "as fast as our ring" in same


def test_no_more_launches_agree_than_there_are() -> None:
    """Ours run in more launches than the native call that they are compared with."""
    records = [
        *launched(constant(native=5.0, ring=10.0), ["ring"], count=9),
        *launched(constant(native=20.0), [], "openmpi", count=7),
        *launched(constant(native=4.0), [], "intel", count=7),
    ]
    found = told(records, WINNERS)
    assert "native of intel) is 2.5" in found and "in 28 of 28 launches (7 at each size)" in found


def test_places_with_one_verdict_share_a_sentence() -> None:
    algorithms = ["ring", "recursive_doubling"]
    fast, slow = (constant(native=9.0, ring=us, recursive_doubling=5.0 * us) for us in (1.0, 2.0))
    records = [*launched(fast, algorithms), *launched(slow, algorithms, "openmpi")]
    found = told(records, "Ring or tree")
    assert "64 B to 1M, in mpich and openmpi: our ring is" in found and "in 80 of 80" in found
    other = constant(native=9.0, ring=5.0, recursive_doubling=1.0)
    found = told([*records, *launched(other, algorithms, "intel")], "Ring or tree")
    assert (
        "in intel: our recursive_doubling is" in found and "in mpich and openmpi: our ring" in found
    )


def test_the_first_sentences_count_all_cells() -> None:
    def truth(algorithm: str, size: int, launch: int) -> float:
        return {"native": 8.0, "ring": 2.0 if size < 65536 else 16.0}[algorithm]

    found = told(launched(truth, ["ring"]), SHORT)
    assert "Of 4 collectives and sizes" in found and "in 2 and slower in 2." in found
    assert re.search(r"It leads by (3.9|4.0)\d times \(allreduce on 4 ranks, ", found)
    assert re.search(r"It is behind by (1.9|2.0)\d times", found)


def test_algorithms_that_do_not_beat_the_choice_are_told() -> None:
    records = [
        *launched(constant(native=5.0), []), *launched(constant(native=9.0), [], forced="ring")
    ]  # fmt: skip
    one = "1M: native(algorithm=ring) of mpich does not beat the library's choice; it is 0.5"
    assert one in told(records, OTHERS)
    records += launched(constant(native=9.0), [], forced="tree")
    several = "none of 2 other algorithms of mpich beats its choice; the best is 0.5"
    assert several in told(records, OTHERS)


def changed(records: list[Record], algorithm: str, **to: object) -> list[Record]:
    """Return the records, those of an algorithm with other fields."""
    return [
        replace(each, **to) if isinstance(each, CaseRecord) and each.algorithm == algorithm
        else each for each in records
    ]  # fmt: skip


def test_wrong_results_are_told_first_and_win_nothing() -> None:
    both = launched(constant(native=10.0, ring=5.0), ["ring"])
    records = changed(both, "ring", correct=False, wrong=3)
    assert told(records, SHORT) == (
        "allreduce on 4 ranks, 64 B, 4K, 64K, 1M: mpicoll's ring in mpich gave wrong results in "
        "10 of 10 launches: they are left out."
    )
    assert not told(records, WINNERS)


def test_what_was_refused_is_told_with_its_reason() -> None:
    both = launched(constant(native=10.0, ring=5.0), ["ring"])
    gone = {"time_us": None, "samples_us": [], "samples": 0, "correct": None, "message": "no float"}
    assert told(changed(both, "native", **gone), OPEN) == (
        "allreduce on 4 ranks, 64 B, 4K, 64K, 1M: native of mpich was not measured in 10 of 10 "
        "launches: no float"
    )


@pytest.mark.parametrize(
    ("field", "where"), [("in_place", "4 ranks in place"), ("allocated", "4 ranks allocated")]
)
def test_arrays_of_another_kind_are_another_figure(field: str, where: str) -> None:
    """As where one run was made with --in-place and the other without."""
    slow = launched(constant(native=10.0, ring=20.0), ["ring"], seed=1)
    records = [
        *launched(constant(native=10.0, ring=5.0), ["ring"]),
        *changed(changed(slow, "ring", **{field: True}), "native", **{field: True}),
    ]
    first, second = told(records, WINNERS).splitlines()
    assert "on 4 ranks, 64 B to 1M: mpicoll's ring in mpich is 2.0" in first
    assert f"on {where}, 64 B to 1M: the strongest native" in second


@pytest.mark.parametrize("ring", [5.0, 10.0])
def test_few_samples_of_one_launch_decide_nothing_and_it_is_said_why(ring: float) -> None:
    records = launched(constant(native=10.0, ring=ring), ["ring"], count=1)
    assert told(records, OPEN).endswith("from one launch: too few samples for a verdict.")
    assert "is at the end, in 1 sentence." in told(records, SHORT)


def test_what_is_not_known_is_not_told() -> None:
    random = Random(5)
    records = launched(lambda *_: random.lognormvariate(0, 0.5), ["ring"])
    assert not told(records, WINNERS)
    assert "whether mpicoll's ring in mpich is faster" in told(records, OPEN)
    few = launched(constant(native=10.0, ring=5.0), ["ring"], count=3)
    assert not told(few, WINNERS)


def test_one_calm_launch_of_several_carries_no_verdict() -> None:
    """As one launch that was all that there is would, by its samples."""
    records = launched(constant(native=10.0, ring=5.0), ["ring"], count=2)
    for each in only(CaseRecord, records):
        each.undisturbed = each.launch == 0
        each.samples_us = [each.samples_us[1]] * 10
    assert not told(records, WINNERS)
    assert "There is no verdict yet" in told(records, SHORT)


def test_what_too_few_launches_compare_is_counted() -> None:
    """Of two environments, where no order of three launches each would be significant."""
    records = [
        *launched(constant(native=10.0), [], count=3),
        *launched(constant(native=30.0, ring=5.0), ["ring"], "openmpi", count=3),
    ]
    assert "8 comparisons with fewer than 6 launches" in told(records, OPEN)


def test_environments_are_compared_where_only_natives_were_measured() -> None:
    slow = {"slow": constant(native=9.0), "slower": constant(native=12.0)}
    records = launched(constant(native=5.0), [])
    for name, truth in slow.items():
        records += launched(truth, [], name)
    found = told(records, BETWEEN)
    assert re.search(
        r"allreduce on 4 ranks, 64 B to 1M, in slow and slower: the strongest native "
        r"\(native of mpich\) is 1.[78]\d to 2.4\d times as fast as the strongest there, in 80 ",
        found,
    )
    assert not told(records, WINNERS) and not told(records, MEASURED)


def test_no_range_has_a_size_that_was_not_compared() -> None:
    def is_kept(record: Record) -> bool:
        left_out = isinstance(record, CaseRecord) and record.bytes_total == SIZES[1]
        return not (left_out and record.algorithm == "ring")

    records = [
        each for each in launched(constant(native=10.0, ring=5.0), ["ring"]) if is_kept(each)
    ]
    found = told(records, WINNERS)
    assert (
        "4 ranks, 64 B: mpicoll's ring" in found and "4 ranks, 64K to 1M: mpicoll's ring" in found
    )


@pytest.mark.parametrize("count", [1, 2, 10])
def test_what_cannot_be_compared_is_told_with_its_times(count: int) -> None:
    records = launched(constant(native=5.0), [], count=count)
    found = told(records, MEASURED)
    assert re.fullmatch(
        r"allreduce on 4 ranks: native of mpich takes (4.9|5.0|5.1)\d us at 64 B and 8\d.\d us at "
        rf"1M, from {count} launch(es)?\.",
        found,
    )


def test_the_first_page_says_that_there_are_too_few_launches_on_a_busy_machine() -> None:
    found = launched(constant(native=10.0, ring=5.0), ["ring"], count=3)
    assert told(found, SHORT) == (
        "There is no verdict yet: one takes 6 launches, and what is compared here has 3 at most."
    )
    machines = [Machine("host", 2, "CPU", cores=2)]
    for before, said in (140.0, "140 on 2 cores: other programs ran"), (2.0, "2.0."):
        study = study_of(described(found, load=before, machines=machines))
        assert f"The load before the launches was {said}" in "\n".join(facts(study))


def test_a_side_with_two_speeds_is_told() -> None:
    """The median of its times is one of them, that of the ratios over launches another."""

    def truth(algorithm: str, size: int, launch: int) -> float:
        native, ring = [(120.0, 20.0), (30.0, 20.0), (100.0, 90.0)][launch % 3]
        return {"native": native, "ring": ring}[algorithm]

    found = told(launched(truth, ["ring"], count=12), WINNERS)
    assert re.search(r"1.5\d times as fast as .* \(launches differ: 1.1\d to 5.9\d times\)", found)


def described(records: Iterable[Record], **run: Any) -> list[Record]:
    """Return records with the description of each run, and without an environment."""
    found = [each for each in records if isinstance(each, CaseRecord)]
    ids = dict.fromkeys(each.run.id for each in found)
    for each in found:
        each.environment = None
    return [*(RunRecord(run=FullRun(id=name, **run)) for name in ids), *found]


MPICH, INTEL = {"mpi4py": "MPICH Version:      5.0.2"}, {"mpi4py": "Intel(R) MPI 1 for Linux*"}


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        ({"libraries": MPICH}, {"libraries": INTEL}, ["MPICH 5.0.2", "Intel(R) MPI 1"]),
        ({"threads": "single"}, {"threads": "multiple"}, ["single", "multiple"]),
        ({"libraries": MPICH, "machines": [Machine("a", 4, "Old CPU")]},
         {"libraries": MPICH, "machines": [Machine("a", 4, "New CPU")]},
         ["Old CPU", "New CPU"]),
        ({"libraries": MPICH}, {"libraries": {"torch": "gloo"}}, [""]),
    ],
)  # fmt: skip
def test_records_of_several_libraries_and_machines_are_told_apart(
    one: dict[str, Any], other: dict[str, Any], names: list[str]
) -> None:
    records = [
        *described(launched(constant(native=5.0), []), **one),
        *described(launched(constant(native=9.0), [], seed=1), **other),
    ]
    study, found = found_in(records)
    assert study.environments() == names
    if len(names) > 1:
        assert [each.section for each in found] == [BETWEEN]


@pytest.mark.parametrize("count", [3, 10])
def test_nothing_is_told_of_forms_in_too_few_launches(count: int) -> None:
    over = "native:reduce+broadcast"
    found = told(launched(constant(native=10.0, **{over: 5.0}), [over], count=count), ONE_OR_TWO)
    few = "allreduce on 4 ranks, in mpich: too few measurements to say which form is the fastest."
    assert (found == few) == (count == 3)


def test_backends_are_compared_side_by_side() -> None:
    records = launched(constant(native=10.0, auto=5.0), ["auto"])
    for each in [one for one in records if isinstance(one, CaseRecord)]:
        more = {"backend": "torch", "library": "gloo"}
        us = each.time_us.median * (30 if each.algorithm == "native" else 1) if each.time_us else 0
        records.append(case(each.algorithm, each.bytes_total, us, each.run.id, 0, **more))
    found = told(records, BACKENDS)
    theirs = "native of gloo (torch in mpich)"
    assert f"native of mpich is 30.0 times as fast as {theirs}, in 40 of 40" in found
    assert (
        "mpicoll's auto in mpich (auto@symmetric) ties with torchcoll's auto in mpich (torch)"
        in found
    )


def test_a_winner_needs_the_library_s_own_choice() -> None:
    """It is missing where all launches of it failed, has no time at a size, or is wrong."""
    truth = constant(native=10.0, ring=5.0)
    records = launched(truth, ["ring"], forced="ring")
    found = told(records, SHORT)
    assert "4 cells of 4 have no winner: native of mpich was not measured there" in found
    assert "leads" not in found and "faster" not in found and not told(records, WINNERS)
    records += launched(truth, ["ring"])
    assert "no winner" not in told(records, SHORT) and "leads" in told(records, SHORT)
    for each in only(CaseRecord, records):
        if each.algorithm == "native" and each.bytes_total == 64:
            each.time_us, each.message = None, "it hung"
        elif each.algorithm == "native" and each.bytes_total == 4096:
            each.correct = False
    assert "2 cells of 4 have no winner: native of mpich was not" in told(records, SHORT)
    assert told(records, WINNERS).startswith("allreduce on 4 ranks, 64K to 1M: ")


def test_a_library_without_the_call_is_no_rival() -> None:
    """As torch.distributed, which has no scan: it refuses at every size, in every launch."""
    records = launched(constant(native=10.0, ring=5.0), ["ring"])
    torch = {"backend": "torch", "library": "gloo"}
    for each in [one for one in only(CaseRecord, records) if one.algorithm == "ring"]:
        more = each.run.id, 0, "mpich", None
        records.append(case("ring", each.bytes_total, 6.0, *more, **torch))
        refusal = {"time_us": None, "message": "torch.distributed has no scan", "correct": None}
        records.append(case("native", each.bytes_total, 6.0, *more, **torch, **refusal))
    assert "leads" in told(records, SHORT) and "no winner" not in told(records, SHORT)


def test_a_headline_of_one_launch_says_so() -> None:
    records = launched(constant(native=10.0, ring=5.0), ["ring"], count=1)
    for each in only(CaseRecord, records):
        each.samples_us = [value for value in each.samples_us for _ in range(3)]
    leads = next(line for line in told(records, SHORT).splitlines() if "leads" in line)
    assert leads.count("in one launch)") == 2
    assert "in one launch" not in told(launched(constant(native=10.0, ring=5.0), ["ring"]), SHORT)


def test_a_single_sample_is_no_winner() -> None:
    """The interval of one sample is a point."""
    records = [
        case(name, 64, us, "run", 0, samples=1, samples_us=[], time_us=Times(us, us, us))
        for name, us in (("native", 10.0), ("ring", 1.0))
    ]
    assert "faster than the strongest native in none" in told(records, SHORT)


def test_configurations_whose_launches_all_failed_come_first() -> None:
    lost = [
        LaunchRecord(configuration=name, launch=launch, environment=name, ranks=4, message="no MPI")
        for name in ("a", "b") for launch in range(2)
    ]  # fmt: skip
    records = [*launched(constant(native=10.0, ring=5.0), ["ring"]), *lost]
    first, second, *_ = told(records, SHORT).splitlines()
    assert first == "Every launch of a and b failed: no MPI"
    assert second.startswith("Of 4 collectives and sizes") and "no MPI" not in told(records, OPEN)


def test_cells_tell_of_failed_launches(tmp_path: Path) -> None:
    """So that a report of them has a warning."""
    lost = LaunchRecord(configuration="a", launch=0, environment="a", ranks=4, message="no MPI")
    records = [*launched(constant(native=10.0, ring=5.0), ["ring"]), lost]
    (tmp_path / "a.jsonl").write_text("".join(f"{encoded(each)}\n" for each in records))
    write_outcome([tmp_path / "a.jsonl"], tmp_path)
    first, *_ = report(load_report([tmp_path / "cells.jsonl"])).notices
    assert (first.severity, first.what) == ("error", "1 launch of a study failed")
    assert first.where == ("a: no MPI",)


def test_no_form_is_the_fastest_where_one_call_was_not_measured() -> None:
    over = "native:reduce+broadcast"
    records = launched(constant(native=10.0, **{over: 5.0}), [over])
    kept = [
        each for each in records
        if not (isinstance(each, CaseRecord) and each.algorithm == "native")
    ]  # fmt: skip
    (forms,) = forms_of(study_of(kept))
    assert not any("*" in cell for row in rows(forms) for cell in row)
    assert "the one call was not measured beside these" in told(kept, ONE_OR_TWO)


def test_failed_launches_and_refusals_are_told() -> None:
    records = launched(constant(native=10.0, ring=5.0), ["ring"])
    records += [
        LaunchRecord(configuration="mpichtree", launch=0, environment="mpich", ranks=4,
                     message="exit status 1: no memory"),
        LaunchRecord(configuration="mpichtree", launch=1, environment="mpich", ranks=4,
                     forced={"allreduce": Forced("tree", None, {}, True, "cannot", [64])}),
    ]  # fmt: skip
    found = told(records, OPEN)
    assert "1 of 2 launches of mpichtree failed: exit status 1: no memory" in found
    assert "mpich does not run allreduce by tree at 64 B: it says “cannot”" in found


def test_compare_and_report_take_intervals_from_launches(tmp_path: Path) -> None:
    """Samples of a launch that agree to 1 % say nothing about launches that differ by half."""
    cases: list[CaseRecord] = []
    for launch, us in enumerate([10.0, 15.0, 11.0, 14.0, 12.0, 13.0, 12.5, 11.5, 13.5, 10.5]):
        cases.append(case("ring", 64, us, f"r{launch}", launch, native=2 * us))
    (found,) = summed_up(cases)
    assert found.launches == 10 and found.samples_us == [each.samples_us[1] for each in cases]
    assert found.time_us and found.time_us.low < 11 and found.time_us.high > 13.5
    assert found.spread_within == pytest.approx(0.005, rel=0.1)
    assert found.spread_between == pytest.approx(0.1, rel=0.3)
    assert found.speedup_vs_native and found.speedup_vs_native.verdict == "faster"
    path = tmp_path / "launches.jsonl"
    path.write_text("".join(encoded(each) + "\n" for each in cases))
    assert [each.launches for each in load(path).values()] == [10]


def test_the_outcome_links_every_figure_and_sums_up_every_cell(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    records = launched(constant(native=10.0, ring=5.0), ["ring"])
    path = tmp_path / "records.jsonl"
    path.write_text("".join(encoded(each) + "\n" for each in records))
    write_outcome([path], tmp_path)
    text, page = ((tmp_path / name).read_text() for name in ("findings.md", "study.html"))
    assert text.startswith("# Findings\n\n- 10 launches of 1 configuration")
    assert "## Who wins where" in text
    for anchor in re.findall(r"\(study\.html#([^)]*)\)", text):
        assert f'<article id="{anchor}">' in page
    cells = {
        each.algorithm: each for each in only(CaseRecord, load_records(tmp_path / "cells.jsonl"))
    }
    ring = cells["ring"]
    assert ring.launches == 10 and isinstance(ring.speedup_vs_strongest, SpeedupVsStrongest)
    assert ring.speedup_vs_strongest.ratio == pytest.approx(2, rel=0.01)
    assert ring.speedup_vs_strongest.against == "mpi4py native"
    assert ring.speedup_vs_strongest.environment == "mpich"
    assert not isinstance(cells["native"].speedup_vs_strongest, SpeedupVsStrongest)


PRINTED = """addEventListener("beforeprint", () => {
  window.printed = [...document.querySelectorAll(".main-svg .legendtext, .main-svg .xtick text")]
    .map(text => [text.closest(".js-plotly-plot").dataset.figure, getComputedStyle(text).fill]);
})"""


@pytest.mark.browser
def test_a_printer_gets_every_figure_in_dark_ink(tmp_path: Path, browser: Any) -> None:
    """Those below the end of the screen, too, on a screen that is dark."""
    pytest.importorskip("plotly")
    records = launched(constant(native=10.0), [FORCED])
    for name in ("allgather", "broadcast", "reduce", "scatter"):
        more = [case(FORCED, size, 9.0, "run", 0, collective=name) for size in SIZES]
        records += more
    study = study_of(records)
    (tmp_path / "study.html").write_text(page(study, findings(study)))
    opened = Opened(browser, tmp_path / "study.html", 1280, "[data-figure]", color_scheme="dark")
    opened.tab.evaluate(PRINTED)
    opened.tab.pdf()
    printed = opened.tab.evaluate("window.printed")
    places = opened.tab.locator("[data-figure]").evaluate_all(
        "all => all.map(p => p.dataset.figure)"
    )
    assert len(places) == 5 and {place for place, _ in printed} == {*places}
    assert {colour for _, colour in printed} == {"rgb(29, 35, 43)"}
    # On the screen those in view are drawn again.
    opened.tab.locator("[data-figure] .main-svg").first.wait_for(state="attached")
    assert not opened.complaints
    opened.tab.context.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_draws_its_figures(width: int, tmp_path: Path, browser: Any) -> None:
    """With names beside them, or below where they would leave no room; sizes as sentences say."""
    pytest.importorskip("plotly")
    algorithm = native_name("scatter_recursive_doubling_allgather")
    records = launched(constant(native=10.0), [algorithm])
    (tmp_path / "study.html").write_text(page(study_of(records), findings(study_of(records))))
    opened = Opened(browser, tmp_path / "study.html", width, "[data-figure]")
    assert opened.tab.locator(".main-svg").count() and not opened.complaints
    plot, names, buttons = (
        opened.tab.locator(each).first.bounding_box()
        for each in (".nsewdrag", ".legend .traces", ".modebar-group")
    )
    assert plot["width"] > width / 2 and plot["height"] > 200
    assert names["x"] > plot["x"] + plot["width"] or names["y"] > plot["y"] + plot["height"]
    assert buttons["y"] + buttons["height"] <= min(plot["y"], names["y"])
    ticks = opened.tab.locator(".xtick").all_text_contents()
    assert ticks == ["64 B", "4K", "64K", "1M"]
    assert opened.tab.evaluate("document.documentElement.scrollWidth") <= width
    opened.shoot(f"study-{width}")
