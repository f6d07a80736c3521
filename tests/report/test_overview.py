"""The overview of cases: which side is faster, how sure that is, and the sentence about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reporting import case, pair, reported, run

from mpicoll.report.notices import PAIRS, Notice, Place
from mpicoll.report.overview import LIBRARY, Case, Overview, Row, decision, headline
from mpicoll.report.page import page
from mpicoll.report.record_overviews import overviews

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
    assert [setting.partition(" (")[0] for setting in settings] == ["on 4 ranks", "on 8 ranks"]


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


@pytest.mark.parametrize(
    ("low", "high", "is_sure", "verdict"),
    [(1.2, 1.4, True, "sure"), (0.98, 1.02, False, "tie"), (0.8, 1.02, False, "open")],
)
def test_a_tie_is_a_difference_that_is_surely_small(
    low: float, high: float, is_sure: bool, verdict: str
) -> None:
    assert decision(low, high, is_sure) == verdict


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
