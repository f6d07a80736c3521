"""Truths that are planted in synthetic records, and the sentences that must tell them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace
from reporting import fit
from synthetic_studies import FORCED, SIZES, Truth, case, constant, make_launches, section_text

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
    Times,
)
from mpicoll.records.reading import encoded, only
from mpicoll.study.findings import (
    BACKENDS,
    BEATEN_CHOICE,
    BETWEEN,
    CROSSOVERS,
    FASTEST,
    MEASURED,
    SAME_ALGORITHM,
    SHORT,
    WARNINGS,
    WINNERS,
    WITHIN,
)
from mpicoll.study.forms import forms_of, rows
from mpicoll.study.markdown import facts
from mpicoll.study.outcome import found_in
from mpicoll.study.questions import ONE_OR_TWO
from mpicoll.study.reading import study_of
from mpicoll.study.sentences import OPEN


def test_a_winner_is_told_with_sizes_factor_and_launches() -> None:
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"])
    sentences = section_text(records, WINNERS)
    assert sentences.startswith("allreduce on 4 ranks, 64 B to 1M: mpicoll's ring in mpich is 2.0")
    assert "times as fast as the strongest native (native of mpich), in 40 of 40" in sentences
    assert "launches (10 at each size): 5.0" in sentences and sentences.endswith(" us at 1M.")
    assert not section_text(records, OPEN)


def test_a_tie_is_called_one() -> None:
    records = make_launches(constant(native=10.0, ring=10.0), ["ring"])
    assert "64 B to 1M: mpicoll's ring in mpich ties with the strongest native" in section_text(
        records, WINNERS
    )
    assert "times as fast as the" not in section_text(records, WINNERS)


@pytest.mark.parametrize(("factor", "factor_text"), [(0.05, "20"), (20.0, "0.05")])
def test_a_lie_of_one_launch_changes_no_verdict(factor: float, factor_text: str) -> None:
    """Whichever way the lie goes, the others decide; and it never makes a winner of a tie."""

    def truth(algorithm: str, size: int, launch: int) -> float:
        us = {"native": 10.0, "ring": 9.0, "bruck": 10.0}[algorithm]
        return us * factor if launch == 3 and algorithm != "native" else us

    assert "mpicoll's ring in mpich is 1.11" in section_text(
        make_launches(truth, ["ring"]), WINNERS
    )
    sentences = section_text(make_launches(truth, ["bruck"]), WINNERS)
    assert "ties with" in sentences and factor_text not in sentences


@pytest.mark.parametrize("liar", ["native", "ring", "native:reduce+broadcast", FORCED])
@pytest.mark.parametrize("factor", [0.02, 50.0])
def test_one_launch_of_ten_decides_nothing_anywhere(liar: str, factor: float) -> None:
    """All is level, but for one algorithm in one launch: no sentence makes a winner of it."""

    def truth(algorithm: str, size: int, launch: int) -> float:
        return 10.0 * (factor if launch == 3 and algorithm == liar else 1.0)

    over = "native:reduce+broadcast"
    records = [
        *make_launches(truth, ["ring", over]),
        *make_launches(truth, ["ring"], forced="ring"),
        *make_launches(constant(native=1e5), [], "slow"),
    ]
    for record in [item for item in records if isinstance(item, CaseRecord)]:
        if record.environment == "mpich" and record.algorithm == "ring" and record.time_us:
            us = record.time_us.median
            records.append(case("auto", record.bytes_total, us, record.run.id, 0))
            more = {"backend": "torch", "library": "gloo"}
            for name in ("auto", "native"):
                records.append(case(name, record.bytes_total, 10.0, record.run.id, 0, **more))
    for section in (WINNERS, BEATEN_CHOICE, SAME_ALGORITHM, ONE_OR_TWO, BACKENDS):
        sentences = section_text(records, section)
        assert sentences and "slow" not in sentences
        assert not re.search(r"is [\d.]+ (to [\d.]+ )?times as fast as|beats one call", sentences)
        # Lines through the times have microseconds of their own.
        told_us = re.findall(r"([\d.]+) us(?! \+)", sentences)
        assert all(9 < float(value) < 11 for value in told_us)
    assert "is surely faster in any case" in section_text(records, SHORT)


def test_the_best_of_twenty_that_are_level_is_seldom_called_a_winner() -> None:
    """Launches differ by 5 %, and one of twenty schedules always looks the fastest."""
    wins = 0
    for seed in range(15):
        random = Random(seed)

        def truth(*_: object, random: Random = random) -> float:
            return 10 * random.gauss(1, 0.05)

        records = make_launches(truth, [f"ring_{number}" for number in range(20)], seed=seed)
        wins += section_text(records, WINNERS).count("times as fast as the strongest")
    assert wins <= 0.05 * 15 * len(SIZES)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_clock_that_runs_at_another_rate_makes_no_winner(factor: float) -> None:
    """What is compared with a native call is compared by one clock, wherever it can be."""

    def study(rate: float) -> list[Record]:
        records: list[Record] = []
        for name, scale in ("mpich", 1.0), ("openmpi", rate):
            truth = lines(scale, native=(9, 9e-3), ring=(9, 9e-3), recursive_doubling=(2, 2e-2))
            records += make_launches(truth, ["ring", "recursive_doubling"], name)
            records += make_launches(truth, ["ring"], name, forced="ring")
        return records

    true, false = study(1.0), study(factor)
    for section in ("Ring or tree", CROSSOVERS):
        assert section_text(false, section) == section_text(
            true, section
        ) and "in mpich and openmpi" in section_text(true, section)
    for section in (WINNERS, WITHIN, BEATEN_CHOICE, SAME_ALGORITHM):
        values = [factors(section_text(records, section)) for records in (false, true)]
        assert values[0] == pytest.approx(values[1], rel=0.02), section
        assert "ties with" in section_text(false, section) or section == BEATEN_CHOICE


def test_a_crossover_of_one_environment_is_told_of_it_alone() -> None:
    algorithms = ["ring", "recursive_doubling"]
    crossing = lines(native=(9, 9e-3), ring=(6, 1e-3), recursive_doubling=(2, 4e-3))
    level = lines(native=(9, 9e-3), ring=(6, 1e-3), recursive_doubling=(8, 2e-3))
    later = lines(native=(9, 9e-3), ring=(400, 1e-3), recursive_doubling=(2, 4e-3))
    records = [*make_launches(crossing, algorithms), *make_launches(level, algorithms, "openmpi")]
    (sentence,) = section_text(records, CROSSOVERS).splitlines()
    assert "in mpich: our ring overtakes our recursive_doubling between 64 B and 4K;" in sentence
    questions = section_text(records, "Ring or tree").splitlines()
    assert len(questions) == 3 and "mpich and openmpi" not in "".join(questions)
    assert any("64 B to 1M, in openmpi: our ring is" in line for line in questions)
    first, second = section_text(
        [*records, *make_launches(later, algorithms, "intel")], CROSSOVERS
    ).splitlines()
    assert first == sentence
    assert "in intel: our ring overtakes our recursive_doubling between 64K and 1M;" in second


def factors(text: str) -> list[float]:
    """Return how many times as fast the sentences say that something is."""
    pairs = re.findall(r"([\d.]+) (?:to ([\d.]+) )?times as fast", text)
    return [float(value) for pair in pairs for value in pair if value]


def lines(rate: float = 1.0, **costs: tuple[float, float]) -> Truth:
    """Return the truth of algorithms that cost so much a call, and a byte, by a clock's rate."""

    def truth(algorithm: str, size: int, launch: int) -> float:
        alpha, beta = costs[algorithm.split("(")[0]]
        return rate * (alpha + beta * size)

    return truth


def test_a_reversal_with_size_is_two_sentences_and_a_crossover() -> None:
    truth = lines(native=(9.0, 9e-3), ring=(6.0, 1e-3), recursive_doubling=(2.0, 4e-3))
    records = make_launches(truth, ["ring", "recursive_doubling"])
    sentences = section_text(records, "Ring or tree")
    assert "64 B, in mpich: our recursive_doubling is 2.6" in sentences
    assert "4K to 1M, in mpich: our ring is" in sentences
    crossing = "our ring overtakes our recursive_doubling between 64 B and 4K"
    text = section_text(records, CROSSOVERS)
    assert f"{crossing}; there is no alpha and beta of symmetric" in text
    pairs = convert(fit("symmetric"), FitRecord)
    pairs.run = Run(id="pairs")
    launch = LaunchRecord(
        configuration="pairs", launch=0, run="pairs", environment="mpich", ranks=4
    )
    text = section_text([*records, launch, pairs], CROSSOVERS)
    assert f"{crossing}; the cost model has it at" in text


def test_the_strongest_native_is_of_any_environment_and_algorithm() -> None:
    records = [
        *make_launches(constant(native=10.0, ring=9.0), ["ring"]),
        *make_launches(constant(native=5.0, ring=9.0), ["ring"], "openmpi"),
        *make_launches(constant(native=4.0, ring=9.0), ["ring"], "openmpi", forced="ring"),
    ]
    sentences = section_text(records, WINNERS)
    assert "the strongest native (native(algorithm=ring) of openmpi) is 2.2" in sentences
    within = section_text(records, WITHIN)
    assert "in mpich: the fastest schedule is 1.11 times as fast as the strongest native" in within
    assert "in openmpi: the strongest native is 2.2" in within
    beaten = section_text(records, BEATEN_CHOICE)
    assert "native(algorithm=ring) of openmpi is 1.2" in beaten
    assert "mpich" not in beaten
    same_algorithm = section_text(records, SAME_ALGORITHM)
    assert (
        "native(algorithm=ring) of openmpi is 2.2" in same_algorithm
        and "as fast as our ring" in same_algorithm
    )


def test_no_more_launches_agree_than_there_are() -> None:
    """Ours run in more launches than the native call that they are compared with."""
    records = [
        *make_launches(constant(native=5.0, ring=10.0), ["ring"], count=9),
        *make_launches(constant(native=20.0), [], "openmpi", count=7),
        *make_launches(constant(native=4.0), [], "intel", count=7),
    ]
    sentences = section_text(records, WINNERS)
    assert (
        "native of intel) is 2.5" in sentences
        and "in 28 of 28 launches (7 at each size)" in sentences
    )


def test_places_with_one_verdict_share_a_sentence() -> None:
    algorithms = ["ring", "recursive_doubling"]
    fast, slow = (constant(native=9.0, ring=us, recursive_doubling=5.0 * us) for us in (1.0, 2.0))
    records = [*make_launches(fast, algorithms), *make_launches(slow, algorithms, "openmpi")]
    sentences = section_text(records, "Ring or tree")
    assert (
        "64 B to 1M, in mpich and openmpi: our ring is" in sentences and "in 80 of 80" in sentences
    )
    opposite = constant(native=9.0, ring=5.0, recursive_doubling=1.0)
    sentences = section_text(
        [*records, *make_launches(opposite, algorithms, "intel")], "Ring or tree"
    )
    assert (
        "in intel: our recursive_doubling is" in sentences
        and "in mpich and openmpi: our ring" in sentences
    )


def test_the_first_sentences_count_all_cells() -> None:
    def truth(algorithm: str, size: int, launch: int) -> float:
        return {"native": 8.0, "ring": 2.0 if size < 65536 else 16.0}[algorithm]

    sentences = section_text(make_launches(truth, ["ring"]), SHORT)
    headline = (
        "On 4 ranks, mpicoll is faster than the best library call in 2 of 4 cases, by 4.0 times."
    )
    assert sentences.startswith(f"{headline} Faster elsewhere: the best library call in 2.")
    schedule = "The fastest schedule"
    assert re.search(rf"{schedule} leads by (3.9|4.0)\d times \(allreduce on 4 ranks, ", sentences)
    assert re.search(rf"{schedule} is behind by (1.9|2.0)\d times", sentences)


def test_the_environments_of_the_fastest_are_counted() -> None:
    def truth(algorithm: str, size: int, launch: int) -> float:
        return {"native": 10.0, "ring": 2.0 if size < 1 << 20 else 8.0}[algorithm]

    def flat_truth(algorithm: str, size: int, launch: int) -> float:
        return {"native": 20.0, "ring": 4.0}[algorithm]

    mpich = make_launches(truth, ["ring"])
    openmpi = make_launches(flat_truth, ["ring"], "openmpi")
    sentences = section_text([*mpich, *openmpi], SHORT)
    counts = "By medians over 4 cases: the fastest schedule is in mpich in 3 and openmpi in 1."
    assert counts in sentences and "library call is of" not in sentences
    assert "By medians" not in section_text(mpich, SHORT)


def test_algorithms_that_do_not_beat_the_choice_are_told() -> None:
    records = [
        *make_launches(constant(native=5.0), []),
        *make_launches(constant(native=9.0), [], forced="ring"),
    ]  # fmt: skip
    sentence = "1M: native(algorithm=ring) of mpich does not beat the library's choice; it is 0.5"
    assert sentence in section_text(records, BEATEN_CHOICE)
    records += make_launches(constant(native=9.0), [], forced="tree")
    several = "none of 2 other algorithms of mpich beats its choice; the best is 0.5"
    assert several in section_text(records, BEATEN_CHOICE)


def change_records(records: list[Record], algorithm: str, **to: object) -> list[Record]:
    """Return the records, those of an algorithm with other fields."""
    return [
        replace(record, **to) if isinstance(record, CaseRecord) and record.algorithm == algorithm
        else record for record in records
    ]  # fmt: skip


def test_wrong_results_are_told_first_and_win_nothing() -> None:
    measured = make_launches(constant(native=10.0, ring=5.0), ["ring"])
    records = change_records(measured, "ring", correct=False, wrong=3)
    assert section_text(records, WARNINGS) == (
        "allreduce on 4 ranks, 64 B, 4K, 64K, 1M: mpicoll's ring in mpich gave wrong results in "
        "10 of 10 launches: they are left out."
    )
    assert not section_text(records, WINNERS)


def test_what_was_refused_is_told_with_its_reason() -> None:
    measured = make_launches(constant(native=10.0, ring=5.0), ["ring"])
    refusal = {
        "time_us": None,
        "samples_us": [],
        "samples": 0,
        "correct": None,
        "message": "no float",
    }
    assert section_text(change_records(measured, "native", **refusal), OPEN) == (
        "allreduce on 4 ranks, 64 B, 4K, 64K, 1M: native of mpich was not measured in 10 of 10 "
        "launches: no float"
    )


@pytest.mark.parametrize(
    ("field", "panel"), [("in_place", "4 ranks in place"), ("allocated", "4 ranks allocated")]
)
def test_arrays_of_another_kind_are_another_figure(field: str, panel: str) -> None:
    """As where one run was made with --in-place and the other without."""
    slow = make_launches(constant(native=10.0, ring=20.0), ["ring"], seed=1)
    records = [
        *make_launches(constant(native=10.0, ring=5.0), ["ring"]),
        *change_records(change_records(slow, "ring", **{field: True}), "native", **{field: True}),
    ]
    first, second = section_text(records, WINNERS).splitlines()
    assert "on 4 ranks, 64 B to 1M: mpicoll's ring in mpich is 2.0" in first
    assert f"on {panel}, 64 B to 1M: the strongest native" in second


def test_bounds_that_look_alike_are_one_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpicoll.study.sentences.interval", lambda *_: "2.19")
    records = make_launches(constant(native=10.0, ring=4.57), ["ring"], count=1)
    assert ": the ratio is 2.19, from one launch: too few" in section_text(records, OPEN)


@pytest.mark.parametrize("ring", [5.0, 10.0])
def test_few_samples_of_one_launch_decide_nothing_and_it_is_said_why(ring: float) -> None:
    records = make_launches(constant(native=10.0, ring=ring), ["ring"], count=1)
    assert section_text(records, OPEN).endswith("from one launch: too few samples for a verdict.")
    assert "is at the end, in 1 sentence." in section_text(records, SHORT)


def test_what_is_not_known_is_not_told() -> None:
    random = Random(5)
    records = make_launches(lambda *_: random.lognormvariate(0, 0.5), ["ring"])
    assert not section_text(records, WINNERS)
    assert "whether mpicoll's ring in mpich is faster" in section_text(records, OPEN)
    short_records = make_launches(constant(native=10.0, ring=5.0), ["ring"], count=3)
    assert not section_text(short_records, WINNERS)


def test_one_calm_launch_of_several_carries_no_verdict() -> None:
    """As one launch that was all that there is would, by its samples."""
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"], count=2)
    for record in only(CaseRecord, records):
        record.undisturbed = record.launch == 0
        record.samples_us = [record.samples_us[1]] * 10
    assert not section_text(records, WINNERS)
    assert "There is no verdict yet" in section_text(records, SHORT)


def test_what_too_few_launches_compare_is_counted() -> None:
    """Of two environments, where no order of three launches each would be significant."""
    records = [
        *make_launches(constant(native=10.0), [], count=3),
        *make_launches(constant(native=30.0, ring=5.0), ["ring"], "openmpi", count=3),
    ]
    assert "8 comparisons with fewer than 6 launches" in section_text(records, OPEN)


def test_environments_are_compared_where_only_natives_were_measured() -> None:
    slow = {"slow": constant(native=9.0), "slower": constant(native=12.0)}
    records = make_launches(constant(native=5.0), [])
    for name, truth in slow.items():
        records += make_launches(truth, [], name)
    sentences = section_text(records, BETWEEN)
    assert re.search(
        r"allreduce on 4 ranks, 64 B to 1M, in slow and slower: the strongest native "
        r"\(native of mpich\) is 1.[78]\d to 2.4\d times as fast as the strongest there, in 80 ",
        sentences,
    )
    assert not section_text(records, WINNERS) and not section_text(records, MEASURED)


def test_no_range_has_a_size_that_was_not_compared() -> None:
    def is_kept(record: Record) -> bool:
        left_out = isinstance(record, CaseRecord) and record.bytes_total == SIZES[1]
        return not (left_out and record.algorithm == "ring")

    records = [
        record
        for record in make_launches(constant(native=10.0, ring=5.0), ["ring"])
        if is_kept(record)
    ]
    sentences = section_text(records, WINNERS)
    assert (
        "4 ranks, 64 B: mpicoll's ring" in sentences
        and "4 ranks, 64K to 1M: mpicoll's ring" in sentences
    )


@pytest.mark.parametrize("count", [1, 2, 10])
def test_what_cannot_be_compared_is_told_with_its_times(count: int) -> None:
    records = make_launches(constant(native=5.0), [], count=count)
    sentences = section_text(records, MEASURED)
    assert re.fullmatch(
        r"allreduce on 4 ranks: native of mpich takes (4.9|5.0|5.1)\d us at 64 B and 8\d.\d us at "
        rf"1M, from {count} launch(es)?\.",
        sentences,
    )


def test_the_first_page_says_that_there_are_too_few_launches_on_a_busy_machine() -> None:
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"], count=3)
    assert section_text(records, SHORT) == (
        "There is no verdict yet: a verdict needs 6 launches, and these records have 3 at most."
    )
    # Emulated hosts are one machine: their cores are not added up.
    machines = [Machine(host, 2, "CPU", cores=2) for host in ("host0", "host1")]
    for busy_load, text in (140.0, "140 on 2 cores: other programs ran"), (2.0, "2.0."):
        study = study_of(describe_runs(records, load=busy_load, machines=machines))
        assert f"The load before the launches was {text}" in "\n".join(facts(study))
        assert "2 hosts: CPU, 2 cores, ranks" in "\n".join(facts(study))


def test_a_side_with_two_speeds_is_told() -> None:
    """The median of its times is one of them, that of the ratios over launches another."""

    def truth(algorithm: str, size: int, launch: int) -> float:
        native, ring = [(120.0, 20.0), (30.0, 20.0), (100.0, 90.0)][launch % 3]
        return {"native": native, "ring": ring}[algorithm]

    sentences = section_text(make_launches(truth, ["ring"], count=12), WINNERS)
    assert re.search(
        r"1.5\d times as fast as .* \(launches differ: 1.1\d to 5.9\d times\)", sentences
    )


def describe_runs(records: Iterable[Record], **run: Any) -> list[Record]:
    """Return records with the description of each run, and without an environment."""
    cases = [record for record in records if isinstance(record, CaseRecord)]
    ids = dict.fromkeys(record.run.id for record in cases)
    for record in cases:
        record.environment = None
    return [*(RunRecord(run=FullRun(id=name, **run)) for name in ids), *cases]


MPICH, INTEL = {"mpi4py": "MPICH Version:      5.0.2"}, {"mpi4py": "Intel(R) MPI 1 for Linux*"}


@pytest.mark.parametrize(
    ("first", "second", "names"),
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
    first: dict[str, Any], second: dict[str, Any], names: list[str]
) -> None:
    records = [
        *describe_runs(make_launches(constant(native=5.0), []), **first),
        *describe_runs(make_launches(constant(native=9.0), [], seed=1), **second),
    ]
    study, results = found_in(records)
    assert study.environments() == names
    if len(names) > 1:
        sections = dict.fromkeys(finding.section for finding in results)
        assert [*sections] == [SHORT, FASTEST, BETWEEN]


@pytest.mark.parametrize("count", [3, 10])
def test_nothing_is_told_of_forms_in_too_few_launches(count: int) -> None:
    over = "native:reduce+broadcast"
    sentences = section_text(
        make_launches(constant(native=10.0, **{over: 5.0}), [over], count=count), ONE_OR_TWO
    )
    sentence = (
        "allreduce on 4 ranks, in mpich: too few measurements to say which form is the fastest."
    )
    assert (sentences == sentence) == (count == 3)


def test_backends_are_compared_side_by_side() -> None:
    records = make_launches(constant(native=10.0, auto=5.0), ["auto"])
    for record in [item for item in records if isinstance(item, CaseRecord)]:
        more = {"backend": "torch", "library": "gloo"}
        us = (
            record.time_us.median * (30 if record.algorithm == "native" else 1)
            if record.time_us
            else 0
        )
        records.append(case(record.algorithm, record.bytes_total, us, record.run.id, 0, **more))
    sentences = section_text(records, BACKENDS)
    gloo_label = "native of gloo (torch in mpich)"
    assert f"native of mpich is 30.0 times as fast as {gloo_label}, in 40 of 40" in sentences
    assert (
        "mpicoll's auto in mpich (auto@symmetric) ties with torchcoll's auto in mpich (torch)"
        in sentences
    )


def test_a_winner_needs_the_library_s_own_choice() -> None:
    """It is missing where all launches of it failed, has no time at a size, or is wrong."""
    truth = constant(native=10.0, ring=5.0)
    records = make_launches(truth, ["ring"], forced="ring")
    warning = "4 cases of 4 have no winner: native of mpich was not measured there"
    assert warning in section_text(records, WARNINGS)
    assert not section_text(records, SHORT) and not section_text(records, WINNERS)
    records += make_launches(truth, ["ring"])
    assert not section_text(records, WARNINGS) and "leads" in section_text(records, SHORT)
    for record in only(CaseRecord, records):
        if record.algorithm == "native" and record.bytes_total == 64:
            record.time_us, record.message = None, "it hung"
        elif record.algorithm == "native" and record.bytes_total == 4096:
            record.correct = False
    assert "2 cases of 4 have no winner: native of mpich was not" in section_text(records, WARNINGS)
    assert section_text(records, WINNERS).startswith("allreduce on 4 ranks, 64K to 1M: ")


def test_a_library_without_the_call_is_no_rival() -> None:
    """As torch.distributed, which has no scan: it refuses at every size, in every launch."""
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"])
    torch = {"backend": "torch", "library": "gloo"}
    for record in [item for item in only(CaseRecord, records) if item.algorithm == "ring"]:
        more = record.run.id, 0, "mpich", None
        records.append(case("ring", record.bytes_total, 6.0, *more, **torch))
        refusal = {"time_us": None, "message": "torch.distributed has no scan", "correct": None}
        records.append(case("native", record.bytes_total, 6.0, *more, **torch, **refusal))
    assert "leads" in section_text(records, SHORT) and not section_text(records, WARNINGS)


def test_a_headline_of_one_launch_says_so() -> None:
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"], count=1)
    for record in only(CaseRecord, records):
        record.samples_us = [value for value in record.samples_us for _ in range(3)]
    leads = next(line for line in section_text(records, SHORT).splitlines() if "leads" in line)
    assert leads.count("in one launch)") == 2
    assert section_text(records, SHORT).startswith("In one launch on 4 ranks, mpicoll is faster")
    assert "in one launch" not in section_text(
        make_launches(constant(native=10.0, ring=5.0), ["ring"]), SHORT
    )


def test_a_single_sample_is_no_winner() -> None:
    """The interval of one sample is a point."""
    records = [
        case(name, 64, us, "run", 0, samples=1, samples_us=[], time_us=Times(us, us, us))
        for name, us in (("native", 10.0), ("ring", 1.0))
    ]
    undecided = "neither mpicoll nor the best library call is surely faster in any case of 1."
    assert undecided in section_text(records, SHORT)


def test_configurations_whose_launches_all_failed_come_first() -> None:
    lost = [
        LaunchRecord(configuration=name, launch=launch, environment=name, ranks=4, message="no MPI")
        for name in ("a", "b") for launch in range(2)
    ]  # fmt: skip
    records = [*make_launches(constant(native=10.0, ring=5.0), ["ring"]), *lost]
    first, second, *_ = found_in(records)[1]
    assert (first.section, first.text) == (WARNINGS, "Every launch of a and b failed: no MPI")
    assert second.text.startswith("On 4 ranks, mpicoll is faster")
    assert "no MPI" not in section_text(records, OPEN)


def test_no_form_is_the_fastest_where_one_call_was_not_measured() -> None:
    over = "native:reduce+broadcast"
    records = make_launches(constant(native=10.0, **{over: 5.0}), [over])
    without_native = [
        record for record in records
        if not (isinstance(record, CaseRecord) and record.algorithm == "native")
    ]  # fmt: skip
    (forms,) = forms_of(study_of(without_native))
    assert not any("*" in cell for row in rows(forms) for cell in row)
    assert "the one call was not measured beside these" in section_text(without_native, ONE_OR_TWO)


def test_failed_launches_and_refusals_are_told() -> None:
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"])
    records += [
        LaunchRecord(configuration="mpichtree", launch=0, environment="mpich", ranks=4,
                     message="exit status 1: no memory"),
        LaunchRecord(configuration="mpichtree", launch=1, environment="mpich", ranks=4,
                     forced={"allreduce": Forced("tree", None, {}, True, "cannot", [64])}),
    ]  # fmt: skip
    sentences = section_text(records, OPEN)
    assert "1 of 2 launches of mpichtree failed: exit status 1: no memory" in sentences
    assert "mpich does not run allreduce by tree at 64 B: it says “cannot”" in sentences


def test_compare_and_report_take_intervals_from_launches(tmp_path: Path) -> None:
    """Samples of a launch that agree to 1 % say nothing about launches that differ by half."""
    cases: list[CaseRecord] = []
    for launch, us in enumerate([10.0, 15.0, 11.0, 14.0, 12.0, 13.0, 12.5, 11.5, 13.5, 10.5]):
        cases.append(case("ring", 64, us, f"r{launch}", launch, native=2 * us))
    (summary,) = summed_up(cases)
    assert summary.launches == 10 and summary.samples_us == [
        record.samples_us[1] for record in cases
    ]
    assert summary.time_us and summary.time_us.low < 11 and summary.time_us.high > 13.5
    assert summary.spread_within == pytest.approx(0.005, rel=0.1)
    assert summary.spread_between == pytest.approx(0.1, rel=0.3)
    assert summary.speedup_vs_native and summary.speedup_vs_native.verdict == "faster"
    path = tmp_path / "launches.jsonl"
    path.write_text("".join(encoded(record) + "\n" for record in cases))
    assert [record.launches for record in load(path).values()] == [10]


# -- disturbed samples, and native's ways -------------------------------------------------


def with_methods(records: list[Record], us: float) -> list[Record]:
    """Return the records, with native's method beside each of its plans."""
    methods = [
        case("native", record.bytes_total, us * (1 + record.bytes_total / 65536), record.run.id,
             record.launch or 0, call="method")
        for record in only(CaseRecord, records) if record.algorithm == "native"
    ]  # fmt: skip
    return [*records, *methods]


@pytest.mark.parametrize("side", ["native", "ring"])
@pytest.mark.parametrize("count", [1, 3])
def test_disturbed_launches_name_no_winner(side: str, count: int) -> None:
    records = make_launches(constant(native=142.0, ring=0.26), ["ring"], count=count)
    for record in only(CaseRecord, records):
        record.samples_us = [value for value in record.samples_us for _ in range(3)]
    records = change_records(records, side, undisturbed=False)
    text = section_text(records, SHORT)
    assert "faster than" not in text and "leads" not in text and "times" not in text
    assert "of 4 cases half of a contestant's launches or more were disturbed" in section_text(
        records, WARNINGS
    )


def test_launches_enough_contain_their_disturbances_and_it_is_told() -> None:
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"])
    records = change_records(records, "native", undisturbed=False)
    assert "mpicoll is faster than" in section_text(records, SHORT)
    assert "were disturbed" in section_text(records, WARNINGS)


@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.parametrize(("plan", "method"), [(142.0, 3.26), (3.26, 142.0)])
def test_a_native_that_contradicts_itself_is_told_and_beaten_by_nothing(
    plan: float, method: float, count: int
) -> None:
    records = with_methods(
        make_launches(constant(native=plan, ring=0.26), ["ring"], count=count), method
    )
    text = section_text(records, SHORT)
    assert "disturbances hide who is faster in all 4 cases" in text and "leads" not in text
    warning = section_text(records, WARNINGS)
    assert "native of mpich takes" in warning and "so there is no winner" in warning
    assert "by" not in section_text(records, WINNERS)


def test_the_yardstick_is_the_strongest_way_of_native() -> None:
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"])
    assert "by 2.0 times" in section_text(records, SHORT)
    text = section_text(with_methods(records, 8.0), SHORT)
    assert "by 1.6 times" in text and "by 2.0" not in text
    assert "native of mpich by method" in section_text(with_methods(records, 8.0), WINNERS)
    assert "by 2.0 times" in section_text(with_methods(records, 11.0), SHORT)


def test_shared_cores_are_told_first() -> None:
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"])
    runs = {record.run.id for record in only(CaseRecord, records)}
    crowded = [RunRecord(run=FullRun(id=run, oversubscribed=True)) for run in runs]
    assert "ranks shared cores" not in section_text(records, WARNINGS)
    assert "In 10 of 10 runs ranks shared cores" in section_text([*crowded, *records], WARNINGS)
