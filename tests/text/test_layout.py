"""The pages for people: the answer and its chart on the first screen, the machine last."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import Opened
from recordings import recorded
from reporting import case, reported
from synthetic_studies import constant, make_launches

from mpicoll.errors import RankLost
from mpicoll.flight.diagnosis import diagnose
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.postmortem.page import page as postmortem_page
from mpicoll.records.lines import CaseRecord
from mpicoll.report.page import page as report_page
from mpicoll.study.findings import findings
from mpicoll.study.page import page as study_page
from mpicoll.study.reading import study_of
from mpicoll.verdict.judging import judge

pytestmark = pytest.mark.browser
HEIGHTS = {400: 800, 1400: 900}
"""The height of a screen of each width, pixels."""
_SCREEN = """() => {
  const box = selector => document.querySelector(selector).getBoundingClientRect();
  return {
    answer: box("#answer h1").bottom, chart: box("#answer figure, #answer .study-figure").bottom,
    width: document.documentElement.scrollWidth,
    text: Math.min(...[...document.querySelectorAll("#answer figure text, #answer td, #answer th")]
      .map(part => parseFloat(getComputedStyle(part).fontSize))),
    sections: [...document.querySelectorAll("main > section")].map(section => section.id),
  };
}"""


def of_study(place: Path) -> str:
    records = []
    for name in COLLECTIVES:
        launches = make_launches(constant(native=10.0, ring=5.0), ["ring"], count=6)
        for record in launches:
            if isinstance(record, CaseRecord):
                record.collective = name
        records += launches
    study = study_of(records)
    return study_page(study, findings(study))


def of_report(place: Path) -> str:
    records = [
        case(algorithm, us, size, collective=name) for name in COLLECTIVES
        for algorithm, us in (("native", 10.0), ("ring", 5.0), ("naive", 30.0))
        for size in (8, 1024, 65536, 1 << 20)
    ]  # fmt: skip
    return report_page(reported(place, *records))


def of_job(place: Path) -> str:
    dumps = recorded(place, lambda c: [c.barrier() for _ in range(20)], size=8)
    return postmortem_page(place, diagnose(dumps, time.time_ns()), dumps, [], judge(dumps))


MAKERS = {"study": of_study, "report": of_report, "postmortem": of_job}


@pytest.mark.parametrize("width", HEIGHTS)
@pytest.mark.parametrize("name", MAKERS)
def test_the_first_screen_has_the_answer_and_its_chart(
    name: str, width: int, tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path))
    monkeypatch.setattr(RankLost, "found_in", "")
    make: Callable[[Path], str] = MAKERS[name]
    path = tmp_path / "page.html"
    path.write_text(make(tmp_path), encoding="utf-8")
    opened = Opened(browser, path, width, "#answer", "h1")
    opened.tab.set_viewport_size({"width": width, "height": HEIGHTS[width]})
    screen = opened.tab.evaluate(_SCREEN)
    opened.shoot(f"first-screen-{name}-{width}")
    assert screen["answer"] < screen["chart"] <= HEIGHTS[width]
    assert screen["width"] <= width, "nothing makes the page wider than the screen"
    assert screen["text"] >= 8, "pixels of the smallest text in the chart"
    assert (screen["sections"][0], screen["sections"][-1]) == ("answer", "machine")
    assert opened.complaints == []
    opened.tab.context.close()
