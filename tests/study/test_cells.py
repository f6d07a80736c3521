"""The cells of a study."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_studies import case, constant, make_launches

from mpicoll.measurement.launches import summed_up
from mpicoll.records.lines import CaseRecord, LaunchRecord, Record
from mpicoll.records.reading import encoded, only
from mpicoll.report.data import report
from mpicoll.report.loading import load as load_report
from mpicoll.study.cells import Contestant, Name, Ratio, compare_contestants
from mpicoll.study.outcome import write_outcome
from mpicoll.study.reading import study_of


def test_cells_tell_of_failed_launches(tmp_path: Path) -> None:
    """So that a report of them has a warning."""
    lost = LaunchRecord(configuration="a", launch=0, environment="a", ranks=4, message="no MPI")
    records = [*make_launches(constant(native=10.0, ring=5.0), ["ring"]), lost]
    (tmp_path / "a.jsonl").write_text("".join(f"{encoded(record)}\n" for record in records))
    write_outcome([tmp_path / "a.jsonl"], tmp_path)
    first, *_ = report(load_report([tmp_path / "cells.jsonl"])).notices
    assert (first.severity, first.title) == ("error", "1 launch of a study failed")
    assert [place.text for place in first.places] == ["a: no MPI"]


# -- like with like -----------------------------------------------------------------------


def contestants(records: list[Record]) -> list[Contestant]:
    """Return native and ring of the smallest size."""
    study = study_of(records)
    (panel,) = study.panels()
    cell, *_ = study.of(panel)
    return [cell.contestants[Name("mpich", "mpi4py", name)] for name in ("native", "ring")]


def slow_phase(count: int) -> list[Record]:
    """Return launches of which some are three times as slow for both, and mark one side's."""

    def truth(algorithm: str, size: int, launch: int) -> float:
        return (10.0 if algorithm == "native" else 9.0) * (3.0 if launch < count else 1.0)

    records = make_launches(truth, ["ring"])
    for record in only(CaseRecord, records):
        record.undisturbed = not (record.algorithm == "ring" and (record.launch or 0) < count)
    return records


@pytest.mark.parametrize("count", [0, 4, 5, 6])
def test_both_sides_of_a_ratio_count_the_same_launches(count: int) -> None:
    """Disturbed launches of the schedule alone would otherwise flatter it by their slow phase."""
    native, ring = contestants(slow_phase(count))
    assert native.launches == ring.launches == 10
    assert compare_contestants(ring, native).ratio == pytest.approx(10 / 9, rel=0.02)
    assert native.us / ring.us == pytest.approx(10 / 9, rel=0.02)


@pytest.mark.parametrize("count", [0, 4, 5, 6])
def test_both_sides_of_a_sum_count_the_same_launches(count: int) -> None:
    sums = {
        record.algorithm: record for record in summed_up(only(CaseRecord, slow_phase(count)))
        if record.bytes_total == 64
    }  # fmt: skip
    assert [record.launches for record in sums.values()] == [10, 10]
    times = [sums[name].time_us for name in ("native", "ring")]
    assert times[0] and times[1]
    assert times[0].median / times[1].median == pytest.approx(10 / 9, rel=0.02)


def test_the_strongest_call_meets_the_schedule_of_its_own_launches() -> None:
    """A faster schedule of another environment ran in other launches."""
    records = [
        *make_launches(constant(native=10.0, ring=5.0), ["ring"], "mpich"),
        *make_launches(constant(native=30.0, ring=4.0), ["ring"], "openmpi"),
        *make_launches(constant(ring=3.0, native=40.0), ["ring"], "intel"),
    ]
    study = study_of(records)
    (panel,) = study.panels()
    for cell in study.of(panel):
        schedule, native = cell.rivals()
        assert schedule and native
        assert schedule.name.environment == native.name.environment == "mpich"
        fastest = cell.fastest_ours()
        assert fastest and fastest.name.environment == "intel"
        assert compare_contestants(schedule, native).is_paired


@pytest.mark.parametrize(("count", "decision"), [(1, "undecided"), (5, "undecided"), (6, "faster")])
def test_a_launch_without_six_samples_decides_nothing(count: int, decision: str) -> None:
    """Published records have no samples, only their number and their interval."""
    records: list[Record] = [
        case(name, 64, us, "a", 0, samples=count, samples_us=[])
        for name, us in (("native", 10.0), ("ring", 5.0))
    ]
    native, ring = contestants(records)
    ratio: Ratio = compare_contestants(ring, native)
    assert ratio.decision == decision
