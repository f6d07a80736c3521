"""The choices that follow from records of a study."""

from __future__ import annotations

import pytest
from library_studies import case, launch, study, table_of

from mpicoll.errors import ArgumentError
from mpicoll.records.lines import LaunchRecord, Record
from mpicoll.tune.exports import mpich, openmpi


def test_what_is_faster_by_more_than_three_per_cent_is_taken() -> None:
    (choice,) = table_of(study(), "MPICH", mpich.takes)
    assert choice[:3] == ("allreduce", 4, 1)
    assert [part[:2] for part in choice.ranges] == [(4095, None), (None, "ring")]


def test_between_sizes_the_library_s_choice_stays_and_algorithms_change_half_way() -> None:
    records = study()
    for number in range(4):
        forced, native_run = f"doubling{number}", f"own{number}"
        records.append(launch(forced, "recursive_doubling"))
        for nbytes, us in ((4096, 30.0), (65536, 10.0)):
            records.append(case(forced, "native(algorithm=recursive_doubling)", nbytes, us))
        records.append(case(native_run, "native", 1 << 20, 1.0))
    (choice,) = table_of(records, "MPICH", mpich.takes)
    assert [part[:2] for part in choice.ranges] == [
        (4095, None), (16384, "ring"), (65536, "recursive_doubling"), (None, None)
    ]  # fmt: skip


def test_what_one_launch_contradicts_is_not_taken() -> None:
    """Ring's launches beside the native's: faster in the median, but not surely."""
    slow = [case("slow", "native(algorithm=ring)", nbytes, 1e3) for nbytes in (4096, 65536)]
    assert table_of([*study(), launch("slow", "ring"), *slow], "MPICH", mpich.takes) == []


def test_what_few_launches_say_is_not_taken() -> None:
    """Three of each are in the extreme order by chance one time in ten."""
    records = [record for record in study() if "3" not in getattr(record.run, "id", record.run)]
    assert table_of(records, "MPICH", mpich.takes) == []


def test_a_library_that_cannot_be_left_the_choice_gets_all_sizes_or_none() -> None:
    (choice,) = table_of(study(), "MPICH", mpich.takes, says_own=False)
    assert [part[:2] for part in choice.ranges] == [(None, "ring")]
    # At one size it is slower in three launches of four: not surely, but likely.
    ring = "native(algorithm=ring)"
    likely = [case(f"ring{n}", ring, 16, us) for n, us in enumerate((9, 2, 3, 9))]
    likely += [case(f"own{n}", "native", 16, us) for n, us in enumerate((2, 1, 4, 2))]
    assert table_of([*study(), *likely], "MPICH", mpich.takes, says_own=False) == []
    slow = [case(f"ring{n}", "native(algorithm=ring)", 16, 1e6) for n in range(4)]
    slow += [case(f"own{n}", "native", 16, 1.0) for n in range(4)]
    assert table_of([*study(), *slow], "MPICH", mpich.takes, says_own=False) == []


def relaunch_study(**more: object) -> list[Record]:
    """Return the study with launches in which the library said more."""
    return [
        launch(record.run, "ring", **more)
        if isinstance(record, LaunchRecord) and record.run
        else record
        for record in study()
    ]


def test_an_algorithm_that_did_not_run_is_not_taken() -> None:
    with pytest.raises(ArgumentError, match="no launch forced an algorithm of MPICH"):
        table_of(relaunch_study(obeyed=False), "MPICH", mpich.takes)


def test_nor_is_one_at_sizes_that_the_library_refused() -> None:
    assert table_of(relaunch_study(refused=[4096, 65536]), "MPICH", mpich.takes) == []


def test_several_environments_need_one_to_be_named() -> None:
    records = [*study(), case("x", "native", 64, 1.0, environment="mpich-single")]
    with pytest.raises(ArgumentError, match="choose one of mpich, mpich-single"):
        table_of(records, "MPICH", mpich.takes)
    assert table_of(records, "MPICH", mpich.takes, "mpich")


def test_the_library_s_own_choice_must_have_been_measured() -> None:
    records = [record for record in study() if getattr(record, "algorithm", "") != "native"]
    with pytest.raises(ArgumentError, match="MPICH's own choice was not measured"):
        table_of(records, "MPICH", mpich.takes)


def test_another_library_has_no_records() -> None:
    with pytest.raises(ArgumentError, match="no native calls of Open MPI were measured"):
        table_of(study(), "Open MPI", openmpi.takes)
