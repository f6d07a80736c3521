"""The self-check over launches, on launches whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from pathlib import Path
from random import Random

import pytest
from reporting import case, typed

from mpicoll.compare.comparison import load
from mpicoll.measurement.statistics import ratio_of
from mpicoll.records.lines import AARecord, CaseRecord, Record, Speedup, Times
from mpicoll.records.reading import encoded
from tests.selftest.trust import Claim, claims, disagreements

LAUNCHES, CASES = 10, 200


def write(path: Path, records: Sequence[Record]) -> Path:
    path.write_text("".join(encoded(record) + "\n" for record in records))
    return path


def claims_by_name(paths: Sequence[Path]) -> dict[str, Claim]:
    return {claim.name: claim for claim in claims(paths)}


def twins(random: Random, factor: float, delay: float, spread: float) -> list[AARecord]:
    """Return the comparisons of a launch, which spread around a factor from call to call."""
    records: list[AARecord] = []
    for number in range(CASES):
        ratio = factor * exp(random.gauss(0, spread))
        ratio_record = ratio_of([ratio * exp(random.gauss(0, 0.01)) for _ in range(40)])
        assert ratio_record is not None
        records.append(
            AARecord(
                case=f"call {number}",
                backend="mpi4py",
                ranks=2,
                delay=delay,
                **ratio_record._asdict(),
            )
        )
    return records


def test_a_tie_and_five_per_cent_are_found_over_launches(tmp_path: Path) -> None:
    """Launches differ by 2 %, which one launch takes for a difference half of the time."""
    random = Random(1)
    paths = [
        write(
            tmp_path / f"{launch}.jsonl",
            [*twins(random, 1.0, 0.0, 0.02), *twins(random, 1 / 1.05, 5.0, 0.02)],
        )
        for launch in range(LAUNCHES)
    ]
    results = claims_by_name(paths)
    assert not results["a call ties with itself"].holds
    for name in (
        "over launches, a call ties with itself",
        "over launches, a delay of 5 % is found",
    ):
        assert results[name].trials == CASES and results[name].holds, results[name]


def test_sets_of_launches_are_counted_together(tmp_path: Path) -> None:
    """A set of too few launches at the end claims nothing."""
    paths = [
        write(tmp_path / f"{launch:02}.jsonl", twins(Random(launch), 1.0, 0.0, 0.005))
        for launch in range(14)
    ]
    results = {claim.name: claim for claim in claims(paths, 6)}
    assert results["over launches, a call ties with itself"].trials == 2 * CASES


def test_a_few_launches_claim_nothing(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{launch}.jsonl", twins(Random(launch), 1.0, 0.0, 0.02))
        for launch in range(5)
    ]
    assert [name for name in claims_by_name(paths) if "over launches" in name] == []


def study(random: Random, truths: Sequence[float], flips: float = 0.0) -> list[CaseRecord]:
    """Return the launches of schedules that are so many times as fast as native."""
    records: list[CaseRecord] = []
    for launch in range(LAUNCHES):
        for number, truth in enumerate(truths):
            ratio = truth * exp(random.gauss(0, 0.03))
            if random.random() < flips:
                ratio = 1 / ratio
            us = 10 / ratio
            launch_fields = {"run": {"id": f"{launch}"}, "environment": "mpich", "launch": launch}
            times = {"samples": 1, "samples_us": [us], "time_us": Times(us, us, us)}
            against = Speedup(ratio, ratio, ratio, "tie")
            fields = case(
                "ring", us, 4 + 4 * number, speedup_vs_native=against, **launch_fields, **times
            )
            records.append(typed(fields))
    return records


@pytest.mark.parametrize(("flips", "holds"), [(0.0, True), (0.5, False)])
def test_two_studies_agree(flips: float, holds: bool, tmp_path: Path) -> None:
    random = Random(2)
    truths = [exp(random.uniform(-1, 1)) if n % 3 else 1.0 for n in range(CASES // 2)]
    truths = [truth if flips == 0 else 1.2 for truth in truths]
    paths = [write(tmp_path / f"{name}.jsonl", study(random, truths, flips)) for name in ("a", "b")]
    name = "two studies agree: against native"
    results = claims_by_name(paths)
    differing = disagreements(*map(load, paths))
    assert len(differing) == (results[name].trials - results[name].right if name in results else 0)
    if holds:
        assert results[name].trials > CASES / 4 and results[name].holds, results[name]
    else:
        assert name not in results or results[name].trials < 0.2 * CASES
