"""The outcome of a study: the page, its figures and its cells."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browsing import Opened
from synthetic_studies import FORCED, SIZES, case, constant, make_launches

from mpicoll.records.lines import CaseRecord, SpeedupVsStrongest
from mpicoll.records.reading import encoded, only
from mpicoll.records.reading import load as load_records
from mpicoll.study.findings import FASTEST, SHORT, WARNINGS, findings, merge_undecided
from mpicoll.study.launching import native_name
from mpicoll.study.outcome import short_answer, write_outcome
from mpicoll.study.page import page
from mpicoll.study.reading import study_of
from mpicoll.study.sentences import OPEN, Finding


def test_the_outcome_links_every_figure_and_sums_up_every_cell(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"])
    path = tmp_path / "records.jsonl"
    path.write_text("".join(encoded(record) + "\n" for record in records))
    write_outcome([path], tmp_path)
    text, page = ((tmp_path / name).read_text() for name in ("findings.md", "study.html"))
    assert text.startswith("# Findings\n\n- 10 launches of 1 configuration")
    assert "## Who wins where" in text
    for anchor in re.findall(r"\(study\.html#([^)]*)\)", text):
        assert f'<article id="{anchor}">' in page
    cells = {
        record.algorithm: record
        for record in only(CaseRecord, load_records(tmp_path / "cells.jsonl"))
    }
    ring = cells["ring"]
    assert ring.launches == 10 and isinstance(ring.speedup_vs_strongest, SpeedupVsStrongest)
    assert ring.speedup_vs_strongest.ratio == pytest.approx(2, rel=0.01)
    assert ring.speedup_vs_strongest.against == "mpi4py native"
    assert ring.speedup_vs_strongest.environment == "mpich"
    assert not isinstance(cells["native"].speedup_vs_strongest, SpeedupVsStrongest)


@pytest.mark.parametrize(("count", "is_guess"), [(1, True), (3, True), (10, False)])
def test_the_terminal_names_the_answer_first(
    count: int, is_guess: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A guess is marked as one, and the last line of the answer says how to decide."""
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"], count=count)
    path = tmp_path / "records.jsonl"
    path.write_text("".join(encoded(record) + "\n" for record in records))
    write_outcome([path], tmp_path, advice="--launches 6, about 25 min")
    lines = capsys.readouterr().out.splitlines()
    case_line = next(line for line in lines if line.startswith("  allreduce on 4 ranks, 64 B:"))
    assert "mpicoll's ring in mpich" in case_line and "native of mpich" in case_line
    assert case_line.count(" us") == 2 and " 2.00 times as fast (" in case_line
    assert "times as fast" in case_line and ("best guess: " in case_line) == is_guess
    advice = "For a verdict: --launches 6, about 25 min"
    assert (advice in lines) == is_guess
    assert lines.index(case_line) < next(i for i, line in enumerate(lines) if "findings.md" in line)
    assert "\n## The fastest of each case\n" in (tmp_path / "findings.md").read_text()


def test_the_terminal_leaves_many_cases_to_the_file() -> None:
    short = [Finding(SHORT, "On 4 ranks, mpicoll is faster.")]
    cases = [Finding(FASTEST, f"case {index}: ring 5 us") for index in range(30)]
    lines = short_answer([*cases, *short], "more launches")
    assert lines[0] == "On 4 ranks, mpicoll is faster." and len(lines) == 26
    assert lines[-1] == "  6 more cases are in findings.md"


def test_the_terminal_says_what_limits_the_answer() -> None:
    """The headline counts the cases that have both sides: a warning says how many lack one."""
    short = [Finding(SHORT, "On 4 ranks, mpicoll is faster.")]
    warnings = [Finding(WARNINGS, f"{count} cases have no winner.") for count in (9, 8, 7)]
    assert short_answer([*warnings, *short], "") == [
        "On 4 ranks, mpicoll is faster.", "  warning: 9 cases have no winner.",
        "  warning: 8 cases have no winner.",
    ]  # fmt: skip


def test_many_undecided_comparisons_of_a_panel_are_one_sentence() -> None:
    """A study without verdicts does not repeat that in every sentence."""
    study = study_of(make_launches(constant(native=10.0, ring=5.0), ["ring"]))
    (panel,) = study.panels()
    texts = [Finding(OPEN, f"{panel}, {size} B: undecided.", panel) for size in range(20)]
    other = Finding(OPEN, "a launch failed")
    merged = list(merge_undecided([*texts, other]))
    assert [finding.text for finding in merged] == [
        "allreduce on 4 ranks: 20 comparisons are undecided.", "a launch failed",
    ]  # fmt: skip
    assert list(merge_undecided(texts[:12])) == texts[:12]


@pytest.mark.browser
def test_a_phone_shows_disturbed_cases_without_scrolling_sideways(
    tmp_path: Path, browser: Any
) -> None:
    pytest.importorskip("plotly")
    records = make_launches(constant(native=10.0, ring=5.0), ["ring"], count=1)
    for record in only(CaseRecord, records):
        record.undisturbed = False
    study = study_of(records)
    (tmp_path / "study.html").write_text(page(study, findings(study)))
    opened = Opened(browser, tmp_path / "study.html", 390, "[data-figure]")
    assert "disturbed: samples were late" in opened.tab.inner_text("main")
    assert opened.tab.evaluate("document.documentElement.scrollWidth") <= 390
    opened.tab.context.close()


PRINTED = """addEventListener("beforeprint", () => {
  window.printed = [...document.querySelectorAll(".main-svg .legendtext, .main-svg .xtick text")]
    .map(text => [text.closest(".js-plotly-plot").dataset.figure, getComputedStyle(text).fill]);
})"""


@pytest.mark.browser
def test_a_printer_gets_every_figure_in_dark_ink(tmp_path: Path, browser: Any) -> None:
    """Those below the end of the screen, too, on a screen that is dark."""
    pytest.importorskip("plotly")
    records = make_launches(constant(native=10.0), [FORCED])
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
    records = make_launches(constant(native=10.0), [algorithm])
    (tmp_path / "study.html").write_text(page(study_of(records), findings(study_of(records))))
    opened = Opened(browser, tmp_path / "study.html", width, "[data-figure]")
    assert opened.tab.locator(".main-svg").count() and not opened.complaints
    plot, names, buttons = (
        opened.tab.locator(selector).first.bounding_box()
        for selector in (".nsewdrag", ".legend .traces", ".modebar-group")
    )
    assert plot["width"] > width / 2 and plot["height"] > 200
    assert names["x"] > plot["x"] + plot["width"] or names["y"] > plot["y"] + plot["height"]
    assert buttons["y"] + buttons["height"] <= min(plot["y"], names["y"])
    ticks = opened.tab.locator(".xtick").all_text_contents()
    assert ticks == ["64 B", "4K", "64K", "1M"]
    assert opened.tab.evaluate("document.documentElement.scrollWidth") <= width
    opened.shoot(f"study-{width}")
