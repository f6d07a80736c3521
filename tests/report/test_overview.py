"""The overview of cases: which side is faster, how sure that is, and the sentence about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reporting import case, pair, reported, run

from mpicoll.report.notices import PAIRS, Notice, Place
from mpicoll.report.overview import LIBRARY, Case, Overview, Row, headline
from mpicoll.report.page import page
from mpicoll.report.record_overviews import overviews
from mpicoll.report.winners import DISTURBED

ONE_SAMPLE: dict[str, Any] = {"samples": 1, "samples_us": [1.0]}


def only_overview(place: Path, *records: dict[str, Any]) -> Overview:
    report = reported(place, *records)
    (overview,) = overviews(report.panels, report.records)
    return overview


def chart(*cases: Case, sides: tuple[str, ...] = ("mpicoll", LIBRARY)) -> Overview:
    rows = [Row("allreduce", "", {8**number: entry for number, entry in enumerate(cases, 1)})]
    return Overview("on 2 ranks", sides, rows, "")


def of(side: str, ratio: float = 2.0, verdict: Any = "sure") -> Case:
    return Case(side, ratio, verdict, "")


@pytest.mark.parametrize(
    ("ring", "more", "side", "verdict", "text"),
    [
        (5.0, {}, "mpicoll", "sure", "2.0"),
        (20.0, {}, LIBRARY, "sure", "0.50"),
        (10.01, {}, LIBRARY, "tie", "1.00"),
        (1.0, ONE_SAMPLE, "mpicoll", "open", "?"),
    ],
)
def test_a_case_names_the_faster_side_and_how_sure_it_is(
    tmp_path: Path, ring: float, more: dict[str, Any], side: str, verdict: str, text: str
) -> None:
    overview = only_overview(tmp_path, case(us=10.0), case("ring", ring, **more))
    (entry,) = overview.cases
    assert (entry.side, entry.verdict, overview.text(entry)) == (side, verdict, text)
    assert overview.sides == ("mpicoll", LIBRARY)


def test_without_native_calls_algorithms_are_compared(tmp_path: Path) -> None:
    records = [case("ring", 5.0), case("naive", 10.0), case("ring", 9.0, 8), case("naive", 3.0, 8)]
    overview = only_overview(tmp_path, *records)
    assert overview.legend == ["ring", "naive"]
    text = "On 4 ranks, naive is faster than ring in 1 of 2 cases, by 3.0 times."
    assert headline(overview) == f"{text} Faster elsewhere: ring in 1."


def test_an_algorithm_that_never_wins_is_a_side(tmp_path: Path) -> None:
    overview = only_overview(tmp_path, case("ring", 5.0), case("naive", 10.0))
    text = "On 4 ranks, ring is faster than naive in the only case, by 2.0 times."
    assert headline(overview) == text


def test_ranks_that_waited_for_cores_are_not_shown_first(tmp_path: Path) -> None:
    busy = run("busy", ranks=8, oversubscribed=True)
    crowded = [case(name, 5.0, size, run=busy, ranks=8) for name in ("native", "ring")
               for size in (8, 64)]  # fmt: skip
    report = reported(tmp_path, *crowded, case(), case("ring", 5.0))
    settings = [entry.setting for entry in overviews(report.panels, report.records)]
    assert [setting.partition(" (")[0] for setting in settings] == [
        "on 4 ranks", "on 8 ranks that share cores"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("overview", "text"),
    [
        (chart(of("mpicoll")), f"mpicoll is faster than {LIBRARY} in the only case, by 2.0 times."),
        (chart(of(LIBRARY), of(LIBRARY, 3.0), of("mpicoll")),
         f"{LIBRARY} is faster than mpicoll in 2 of 3 cases, by 2.0 to 3.0 times. "
         "Faster elsewhere: mpicoll in 1."),
        (chart(of("mpicoll"), of("mpicoll", verdict="open")),
         f"mpicoll is faster than {LIBRARY} in 1 of 2 cases, by 2.0 times."),
        (chart(of("mpicoll", 1.01, "tie"), of("mpicoll", verdict="open")),
         f"neither mpicoll nor {LIBRARY} is surely faster in any case: 1 of 2 are ties."),
        (chart(of("b"), of("b"), of("a"), sides=("a", "b", "c")),
         "b is fastest in 2 of 3 cases, by 2.0 times. Faster elsewhere: a in 1."),
    ],
)  # fmt: skip
def test_the_headline_counts_what_is_decided(overview: Overview, text: str) -> None:
    assert headline(overview) == f"On 2 ranks, {text}"
    assert all(len(sentence.split()) <= 25 for sentence in headline(overview).split(". "))


def test_a_verdict_from_one_launch_says_so() -> None:
    overview = chart(of("mpicoll", verdict="single"))
    assert headline(overview).startswith("In one launch on 2 ranks, mpicoll is faster")
    assert ("single", "from one launch") in [*overview.marks()]


def test_one_of_several_sides_has_a_letter() -> None:
    overview = chart(of("b"), sides=("a", "b", "c"))
    assert overview.text(overview.cases[0]) == "B 2.0" and overview.letter("c") == "C: "


def test_a_notice_counts_the_places_that_it_is_about() -> None:
    places = (Place("x", "allreduce"), Place("y", "allreduce"), Place("z", "scan"))
    notice = Notice("warning", "started late", "", places, "case")
    assert notice.heading == "3 cases started late"
    part = notice.about("scan".__eq__)
    assert part is not None and part.heading == "1 case started late"
    assert notice.about(PAIRS.__eq__) is None
    assert Notice("note", "x", "").about(lambda subject: not subject) is not None


def test_a_notice_stands_beside_its_collective(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    records = [case(), case("ring", 5.0), case(collective="scan", late_share=0.5)]
    text = page(reported(tmp_path, *records))
    article = text.index('data-collective="scan"')
    assert text.index("started late") > article > text.index('data-collective="allreduce"')


@pytest.mark.parametrize(
    ("records", "answer"),
    [
        ([case(us=1.5), case(us=9.0, size=4096)],
         "allreduce by native on 4 ranks takes 1.50 us at 1K to 9.00 us at 4K."),
        ([pair(0, 1), pair(0, 2, 9.0), pair(0, 3)], "3 measurements of pairs of ranks"),
    ],
)  # fmt: skip
def test_records_that_compare_nothing_have_an_answer_too(
    tmp_path: Path, records: list[dict[str, Any]], answer: str
) -> None:
    pytest.importorskip("plotly")
    assert f"<h1>{answer}" in page(reported(tmp_path, *records))


# -- disturbed samples, and native's ways -------------------------------------------------

NO_WINNER = "On 4 ranks, disturbances hide who is faster in the only case."


def planted() -> list[dict[str, Any]]:
    """Return native by its plan and its method, which exclude each other, and a schedule."""
    return [case(us=142.0), case(us=3.26, call="method"), case("ring", 0.26)]


@pytest.mark.parametrize(
    "records",
    [
        [case(us=142.0, undisturbed=False), case("ring", 0.26)],
        [case(us=142.0), case("ring", 0.26, undisturbed=False)],
        [case(us=142.0, late_share=0.97), case("ring", 0.26)],
        [case(us=142.0, preempted=900), case("ring", 0.26)],
        [case("naive", 142.0), case("ring", 0.26, undisturbed=False)],
        planted(),
    ],
)  # fmt: skip
def test_disturbed_records_have_no_winner_in_any_part_of_the_page(
    tmp_path: Path, records: list[dict[str, Any]]
) -> None:
    report = reported(tmp_path, *records)
    overview = overviews(report.panels, report.records)[0]
    assert headline(overview) == NO_WINNER
    assert [overview.text(entry) for entry in overview.cases] == ["~"]
    assert [mark for mark, _ in overview.marks()] == ["disturbed"]
    assert [(entry.cells, *entry.undecided.values()) for entry in report.maps] == [
        ({}, DISTURBED)
    ] * len(report.maps)
    pytest.importorskip("plotly")
    text = page(report)
    assert (
        f"<h1>{NO_WINNER}" in text and "by 542" not in text and "<small>disturbed</small>" in text
    )


def test_ways_that_exclude_each_other_are_an_error_beside_the_chart(tmp_path: Path) -> None:
    notices = reported(tmp_path, *planted()).notices
    assert notices[0].heading == "1 case in which native's plan and method contradict each other"
    assert "sum: 142 us as a plan and 3.26 us as a method" in notices[0].places[0].text
    calm = reported(tmp_path, case(us=10.0), case(us=9.0, call="method"), case("ring", 5.0))
    assert not any("contradict" in notice.title for notice in calm.notices)


@pytest.mark.parametrize(
    ("other", "ratio"),
    [
        (case(us=8.0, call="method"), 1.6), (case("native_persistent", 8.0), 1.6),
        (case("native_persistent", 12.0), 2.0), (case(us=8.0, backend="torch"), 1.6),
    ],
)  # fmt: skip
def test_a_headline_is_against_the_strongest_way_of_native(
    tmp_path: Path, other: dict[str, Any], ratio: float
) -> None:
    report = reported(tmp_path, case(us=10.0), other, case("ring", 5.0))
    (overview, *_) = overviews(report.panels, report.records)
    assert headline(overview).endswith(f"in the only case, by {ratio} times.")
    assert [cell.times_native for cell in report.maps[0].cells.values()] == [ratio]


def test_native_by_its_method_can_win_against_a_plan(tmp_path: Path) -> None:
    report = reported(tmp_path, case(us=6.0), case(us=4.5, call="method"), case("ring", 5.0))
    (overview, *_) = overviews(report.panels, report.records)
    assert headline(overview).startswith(f"On 4 ranks, {LIBRARY} is faster than mpicoll")
    assert [cell.label for cell in report.maps[0].cells.values()] == ["native"]


def test_ways_of_other_cases_are_no_yardstick(tmp_path: Path) -> None:
    others = [case(us=1.0, call="method", **more) for more in (
        {"size": 64}, {"dtype": "float64"}, {"in_place": True}, {"collective": "scan"},
        {"ranks": 2, "run": run("r2", 2)}, {"run": run("r3", environment={"UCX_TLS": "sm"})},
    )]  # fmt: skip
    report = reported(tmp_path, case(us=10.0), case("ring", 5.0), *others)
    (winners, *_) = [
        entry for entry in report.maps if entry.cells and entry.variant == "float32 sum"
    ]
    assert winners.cells[(4, 1), 1024].times_native == 2.0


@pytest.mark.parametrize(
    ("disturbed", "start"),
    [(1, "On 2 ranks, mpicoll is faster"), (3, "Disturbances hide who is faster in 3 of 5 cases.")],
)
def test_a_headline_begins_with_what_most_cases_say(disturbed: int, start: str) -> None:
    cases = [of("mpicoll")] * 2 + [of("mpicoll", verdict="disturbed")] * disturbed
    text = headline(chart(*cases))
    assert text.startswith(start) and f"in {disturbed} of {2 + disturbed} cases" in text
    assert all(len(sentence.split()) <= 25 for sentence in text.split(". "))
