"""The report of records with known answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reporting import case, fit, pair, reported, run, story, typed, write

from mpicoll.errors import ArgumentError
from mpicoll.report.charts import panel_values
from mpicoll.report.colours import colours
from mpicoll.report.loading import load
from mpicoll.report.winners import FEW, Winner, winner

# -- loading ------------------------------------------------------------------------------


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [case(), pair(0, 1)])
    records = load([path, path])
    assert len(records.cases) == len(records.pairs) == 1


def test_a_file_without_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(ArgumentError, match="nothing to report"):
        load([tmp_path / "a.jsonl"])


def test_older_records_lack_keys(tmp_path: Path) -> None:
    old = case()
    for name in ("device", "allocated", "nodes", "kind", "samples_us", "undisturbed"):
        del old[name]
    old.update(nodes=1)
    (panel,) = reported(tmp_path, old).panels
    assert str(panel.scope) == "4 ranks · float32 sum"


# -- setups and panels -------------------------------------------------------------------


def test_runs_with_other_numbers_of_ranks_share_a_setup(tmp_path: Path) -> None:
    report = reported(tmp_path, case(), case(run=run("r2", 2), ranks=2))
    assert [setup.name for setup in report.setups] == ["A"]


@pytest.mark.parametrize(
    "change",
    [
        {"libraries": {"mpi4py": "Open MPI v5.0.11"}},
        {"machines": [{"host": "h", "ranks": 4, "processor": "Q", "kernel": "K", "cores": 8}]},
        {"environment": {"UCX_TLS": "sm"}},
        {"settings": {"timing": "loop"}},
    ],
)
def test_other_conditions_are_another_setup(tmp_path: Path, change: dict[str, Any]) -> None:
    report = reported(tmp_path, case(), case(us=3.0, run=run("r2", **change)))
    assert [setup.name for setup in report.setups] == ["A", "B"]
    assert len(report.panels) == len(report.maps) == 2
    assert any("Setup B" in notice.title and notice.places for notice in report.notices)


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": 2, "run": run("r2", 2)}, {"nodes": 2}, {"dtype": "float64"}, {"op": "max"},
        {"in_place": True}, {"allocated": True}, {"device": "cuda"}, {"collective": "scan"},
    ],
)  # fmt: skip
def test_another_case_is_another_panel(tmp_path: Path, change: dict[str, Any]) -> None:
    report = reported(tmp_path, case(), case(**change))
    assert [len(panel.curves) for panel in report.panels] == [1, 1]


def test_backends_algorithms_and_transports_are_curves_of_one_panel(tmp_path: Path) -> None:
    records = [case(), case(backend="torch"), case("ring"), case("ring@symmetric"), case(size=64)]
    (panel,) = reported(tmp_path, *records).panels
    assert [(curve.backend, curve.name) for curve in panel.curves] == [
        ("mpi4py", "native"), ("torch", "native"), ("mpi4py", "ring"), ("mpi4py", "ring@symmetric"),
    ]  # fmt: skip
    assert [record.bytes_total for record in panel.curves[0].points] == [64, 1024]


def test_the_latest_run_of_a_case_counts(tmp_path: Path) -> None:
    later = run("r0", started="2026-01-02T00:00:00+0000")
    report = reported(tmp_path, case(us=7.0, run=later), case(us=9.0))
    (record,) = report.panels[0].records()
    assert record.time_us and record.time_us.median == 7.0
    assert any("more than once" in notice.title for notice in report.notices)


def test_native_auto_and_the_best_four_are_shown_at_first(tmp_path: Path) -> None:
    report = reported(tmp_path, *story())
    assert report.panels[-1].shown() == [
        "native", "auto", "ring", "rabenseifner", "one_shot", "two_shot",
    ]  # fmt: skip


def test_of_several_transports_the_fastest_is_shown(tmp_path: Path) -> None:
    records = [case("ring", 5.0), case("ring@symmetric", 4.0), case("naive@cma", 9.0)]
    assert reported(tmp_path, *records).panels[0].shown() == ["ring@symmetric", "naive@cma"]


def test_an_algorithm_has_one_colour(tmp_path: Path) -> None:
    report = reported(tmp_path, *story())
    hues = colours(report.panels, report.maps)
    assert hues["native"] == "" and len(set(hues.values())) == len(hues) == 7


# -- winners ------------------------------------------------------------------------------


def fastest(*records: dict[str, Any]) -> Winner | str:
    return winner(list(map(typed, records)))


def test_the_winner_is_the_fastest_correct_one() -> None:
    leader = fastest(case(us=20.0), case("ring", 5.0), case("naive", 1.0, correct=False))
    assert isinstance(leader, Winner) and leader.label == "ring"
    assert leader.times_native == 4.0 and leader.decision == "faster"


@pytest.mark.parametrize(("us", "ties"), [(10.1, True), (10.4, False)])
def test_overlapping_intervals_tie(us: float, ties: bool) -> None:
    leader = fastest(case("ring", 10.0), case("naive", us))
    assert isinstance(leader, Winner) and leader.times_native is None
    assert leader.decision == ("tie" if ties else "faster")
    assert leader.sign == ("= " if ties else "")


def test_leaders_that_differ_by_more_than_a_tie_are_undecided() -> None:
    wide = {"median": 10.0, "low": 7.0, "high": 13.0}
    native = case(time_us={"median": 10.5, "low": 8.0, "high": 13.0})
    leader = fastest(case("ring", time_us=wide), case("naive", time_us=wide), native)
    assert isinstance(leader, Winner) and leader.decision == "undecided" and leader.sign == "? "
    assert "shares the lead with" in leader.explanation and leader.times_native is None


def test_auto_does_not_tie_with_what_it_runs() -> None:
    leader = fastest(case("ring", 10.0), case("auto", 10.0, executed="ring"), case(us=20.0))
    assert isinstance(leader, Winner) and leader.decision == "faster"
    assert leader.runner_up is not None and leader.runner_up.algorithm == "native"


def test_the_same_schedule_on_the_other_backend_is_a_rival() -> None:
    leader = fastest(case("ring", 10.0), case("ring", 10.05, backend="torch"))
    assert isinstance(leader, Winner) and leader.decision == "tie"


@pytest.mark.parametrize("count", [1, 5])
def test_too_few_samples_never_win(count: int) -> None:
    too_few: dict[str, Any] = {"samples": count, "samples_us": [1.0] * count}
    leader = fastest(case("ring", 1.0, **too_few), case("naive", 10.0), case(us=20.0, **too_few))
    assert isinstance(leader, Winner) and leader.label == "naive" and leader.runner_up is None
    assert leader.times_native is None
    assert fastest(case("ring", 1.0, **too_few)) == FEW


def test_cells_of_too_few_samples_are_undecided(tmp_path: Path) -> None:
    too_few: dict[str, Any] = {"samples": 1, "samples_us": [1.0]}
    records = [case("ring", 1.0, 64, **too_few), case("ring", 1.0, 4096), case("naive", 2.0, 4096)]
    report = reported(tmp_path, *records)
    (winners,) = report.maps
    assert winners.undecided == {((4, 1), 64): FEW} and winners.cells.keys() == {((4, 1), 4096)}
    assert winners.sizes == (64, 4096)
    (curve, *_) = panel_values(report)[0]["curves"]
    assert curve["few"] == [True, False] and "1 sample: too few for an interval" in curve["text"][0]
    few_notice = next(notice for notice in report.notices if "too few samples" in notice.title)
    assert few_notice.places == (
        ("allreduce ring on mpi4py, 4 ranks, 64 B, float32 sum", "allreduce"),
    )


def test_the_map_and_the_star_follow_ratios_within_blocks() -> None:
    """A drift by a factor of three hits all alike: the medians' intervals overlap."""
    drift = [10.0, 30.0] * 6
    rows = [
        case(name, samples=12, blocks=list(range(12)), samples_us=[factor * us for us in drift],
             time_us={"median": factor * 20, "low": factor * 10, "high": factor * 30})
        for name, factor in (("native", 1.0), ("ring", 0.9))
    ]  # fmt: skip
    leader = fastest(*rows)
    assert isinstance(leader, Winner) and leader.label == "ring" and leader.decision == "faster"
    assert leader.times_native == pytest.approx(1 / 0.9)


def test_a_run_of_one_rank_is_a_warning(tmp_path: Path) -> None:
    report = reported(tmp_path, case(ranks=1, run=run(ranks=1)))
    assert any(notice.title == "Run on a single rank" for notice in report.notices)


def test_no_winner_where_no_result_is_right() -> None:
    assert fastest(case(us=None), case("ring", correct=False)) == FEW


def test_a_winner_map_has_a_row_for_each_number_of_ranks(tmp_path: Path) -> None:
    winner_map = reported(tmp_path, *story()).maps[-1]
    assert winner_map.rows == ((2, 1), (4, 1)) and winner_map.sizes == (64, 1024, 16384)
    assert {cell.label for cell in winner_map.cells.values()} == {"ring"}


# -- warnings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "severity", "words"),
    [
        ([case(correct=False, wrong=3, message="rank 2 has 7")], "error", "wrong results"),
        ([case(correct=None)], "warning", "not checked"),
        ([case(us=None, message="no scan")], "note", "refused"),
        ([case(run=run(oversubscribed=True))], "warning", "more ranks than cores"),
        ([case(run=run(load=8.5))], "warning", "Other work"),
        ([case(run=run(git={"commit": "c", "dirty": True}))], "warning", "changed checkout"),
        ([case(undisturbed=False)], "warning", "disturbed in most samples"),
        ([case(late_share=0.2)], "warning", "started late"),
        ([case(preempted=50)], "warning", "preempted"),
        ([case(sync_error_us=1.0)], "warning", "clocks' error"),
        ([case(time_us={"median": 1.0, "low": 1, "high": 1, "p95": 9.0})], "warning", "outliers"),
        ([pair(0, 1, 9.0), pair(0, 2), pair(0, 3)], "warning", "stand out"),
        ([case(), pair(0, 1, correct=False, message="byte 3")], "error", "bytes were wrong"),
        ([case(), case(run=run("r2", git={"commit": "d", "dirty": False}))], "warning", "commits"),
    ],
)
def test_warnings(tmp_path: Path, records: list[dict[str, Any]], severity: str, words: str) -> None:
    notices = reported(tmp_path, *records).notices
    (notice,) = [candidate for candidate in notices if words in candidate.title]
    assert notice.severity == severity and notice.places


def test_sound_records_give_no_warning(tmp_path: Path) -> None:
    report = reported(tmp_path, case(), case("ring", 5.0), fit(), pair(0, 1), pair(0, 2))
    assert report.notices == []


def test_the_worst_comes_first(tmp_path: Path) -> None:
    records = [case(us=None, message="no"), case("ring", late_share=0.5), case("x", correct=False)]
    notices = reported(tmp_path, *records).notices
    assert [notice.severity for notice in notices] == ["error", "warning", "note"]
