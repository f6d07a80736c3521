"""The page in a real browser, without a network."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import EVERY, Opened
from reporting import case, pair, run, story, write

from mpicoll.report.data import report
from mpicoll.report.loading import load
from mpicoll.report.page import page as content_of
from mpicoll.report.tables import tables

pytestmark = pytest.mark.browser

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    other_run = run("other", host="h2", libraries={"mpi4py": "Open MPI v5"}, oversubscribed=True)
    wrong = case("ring", 5.0, correct=False, run=other_run, message=f'WRONG "a", "b" {HOSTILE}')
    place = tmp_path_factory.mktemp("records") / "a.jsonl"
    return write(place, [*story(HOSTILE), wrong, case(run=other_run)])


@pytest.fixture(scope="module")
def whole_report(records: Path) -> Any:
    return report(load([records]))


@pytest.fixture(scope="module")
def file(whole_report: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(content_of(whole_report), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def desktop(browser: Any, file: Path) -> Iterator[Opened]:
    opened_page = Opened(browser, file, 1280)
    yield opened_page
    opened_page.tab.context.close()


@pytest.fixture
def opened(desktop: Opened) -> Iterator[Opened]:
    """The page as it was at first: to open it anew for every test would take too long."""
    desktop.tab.emulate_media(media="screen")
    desktop.tab.locator("[data-collective=allreduce] select").select_option("1")
    desktop.tab.locator("#reset").click()
    desktop.show("allreduce")
    yield desktop
    assert desktop.complaints == []


def test_every_picture_is_drawn(opened: Opened) -> None:
    for name in ("barrier", "allreduce"):
        opened.show(name)
    drawn = opened.tab.locator(".chart.js-plotly-plot")
    # Of allreduce time, bandwidth, speed-up, bound; of a barrier time and bound; a heat map.
    assert drawn.count() == 7
    assert opened.tab.locator("table.winners").count() == 3
    opened.shoot("desktop")


def test_warnings_stand_beside_their_charts_and_the_worst_comes_first(opened: Opened) -> None:
    first = opened.tab.locator("[data-collective=allreduce] .notice").first
    assert "error" in str(first.get_attribute("class")) and HOSTILE in first.inner_text()
    general = " ".join(opened.tab.locator("#answer .notice").all_inner_texts())
    assert "Oversubscribed" in general and "Setup B" in general
    assert any("rank 1" in text for text in opened.tab.locator("#pairs .notice").all_inner_texts())


def test_what_records_hold_is_text(opened: Opened) -> None:
    facts = opened.tab.locator("#machine dl").first.inner_text()
    assert HOSTILE in facts
    # The script, its data and the library are all scripts that there are.
    assert opened.tab.locator("script").count() == 3


def test_at_first_the_best_are_shown(opened: Opened) -> None:
    shown = [name.split()[1] for name in opened.curves() if name.startswith("torch")]
    assert shown == ["native", "auto", "ring", "rabenseifner", "one_shot", "two_shot"]
    assert "torch naive" in opened.tab.evaluate(EVERY, ["allreduce", "time"])


@pytest.mark.parametrize("press", ["click", "keyboard"])
def test_toggling_a_backend(opened: Opened, press: str) -> None:
    curves = opened.curves()
    _press(opened, "[data-backend=torch]", press)
    assert opened.curves() == [curve for curve in curves if curve.startswith("mpi4py")]
    _press(opened, "[data-backend=torch]", press)
    assert opened.curves() == curves


@pytest.mark.parametrize("press", ["click", "keyboard"])
@pytest.mark.parametrize("kind", ["time", "bandwidth", "speedup"])
def test_toggling_an_algorithm(opened: Opened, press: str, kind: str) -> None:
    first_curves = opened.curves(kind=kind)
    assert "mpi4py naive" not in first_curves and "mpi4py ring" in first_curves
    _press(opened, "[data-algorithm=naive]", press)
    _press(opened, "[data-algorithm=ring]", press)
    second_curves = opened.curves(kind=kind)
    assert {"mpi4py naive", "torch naive"} == {*second_curves} - {*first_curves}
    assert {"mpi4py ring", "torch ring"} == {*first_curves} - {*second_curves}
    opened.tab.locator("#reset").click()
    assert opened.curves(kind=kind) == first_curves


def _press(opened: Opened, button: str, how: str) -> None:
    place = opened.tab.locator(button)
    state = place.get_attribute("aria-pressed")
    if how == "click":
        place.click()
    else:
        place.focus()
        opened.tab.keyboard.press("Enter")
    assert place.get_attribute("aria-pressed") != state


def test_another_panel_is_another_picture(opened: Opened) -> None:
    select = opened.tab.locator("[data-collective=allreduce] select")
    options = select.locator("option").all_inner_texts()
    assert [label[:10] for label in options] == ["A: 2 ranks", "A: 4 ranks", "B: 4 ranks"]
    assert "oversubscribed" in options[2]
    select.select_option("2")
    assert opened.curves() == ["mpi4py ring", "mpi4py native"]


def test_ranks_of_all_panels_at_once(opened: Opened) -> None:
    ranks = opened.tab.get_by_label("ranks", exact=True)
    ranks.select_option("2")
    shown = opened.tab.locator(".collective select").evaluate_all(
        "all => all.map(each => each.selectedOptions[0].textContent)"
    )
    assert [label[:10] for label in shown] == ["A: 2 ranks", "A: 2 ranks"]
    assert ranks.input_value() == ""


@pytest.mark.parametrize("name", ["warnings", "machines", "runs", "variables", "cases", "winners",
                                  "model", "pairs", "fits"])  # fmt: skip
def test_every_table_is_a_download(opened: Opened, whole_report: Any, name: str) -> None:
    with opened.tab.expect_download() as waiting:
        opened.tab.locator(f"[data-csv={name}]").click()
    got = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text(encoding="utf-8"))))
    expected = tables(whole_report)[name]
    assert waiting.value.suggested_filename == f"{name}.csv"
    assert got[0] == list(expected.columns) and len(got) == len(expected.rows) + 1
    for row, expected_row in zip(got[1:], expected.rows, strict=True):
        assert [_plain(cell) for cell in row] == [_plain(cell) for cell in expected_row]


def _plain(cell: object) -> object:
    """A number reads the same however many zeros it is written with."""
    try:
        return float(str(cell))
    except ValueError:
        return "" if cell is None else str(cell)


def test_hovering_tells_what_ran(opened: Opened) -> None:
    chart = opened.tab.locator("[data-collective=allreduce] [data-kind=time] .chart")
    chart.scroll_into_view_if_needed()
    box = chart.locator(".trace:has(.point) .point").first.bounding_box()
    opened.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    chart.locator(".hovertext").wait_for()
    shown = chart.locator(".hovertext").text_content()
    for words in ("mpi4py native", "ran native over native", "interval", "100 samples", "bound"):
        assert words in shown


# Buttons of a chart that share pixels with its plot area, and how many buttons there are.
BUTTONS = """chart => {
  const area = chart.querySelector(".nsewdrag").getBoundingClientRect();
  const buttons = [...chart.querySelectorAll(".modebar-btn")].map(b => b.getBoundingClientRect());
  const covering = buttons.filter(b => b.left < area.right && b.right > area.left &&
    b.top < area.bottom && b.bottom > area.top);
  return [buttons.length, covering.length];
}"""


@pytest.mark.parametrize("width", [360, 1280])
def test_no_button_covers_the_plot_area(browser: Any, file: Path, width: int) -> None:
    opened_page = Opened(browser, file, width)
    for name in ("barrier", "allreduce"):
        opened_page.show(name)
    opened_page.tab.locator("#pair-maps .main-svg").first.wait_for()
    charts = opened_page.tab.locator(".chart.js-plotly-plot")
    buttons = [chart.evaluate(BUTTONS) for chart in charts.all()]
    assert len(buttons) == 7 and all(count > 0 for count, _ in buttons)
    assert [covering for _, covering in buttons] == [0] * 7
    opened_page.tab.context.close()


def test_no_button_sends_a_chart_away(opened: Opened) -> None:
    titles = opened.tab.locator(".modebar-btn").evaluate_all("all => all.map(b => b.dataset.title)")
    assert {*titles} == {"Download plot", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"}


def test_a_long_table_is_filled_when_it_opens(opened: Opened, whole_report: Any) -> None:
    table = opened.tab.locator("details[data-table=cases]")
    assert table.locator("tr").count() == 0
    table.locator("summary").click()
    table.locator("tr").first.wait_for()
    assert table.locator("tbody tr").count() == len(tables(whole_report)["cases"].rows)


@pytest.mark.parametrize(
    ("page_records", "first", "shown"),
    [
        ([case(), case("ring", 5.0)], ".collective", "-m mpicoll.p2p -o pairs.jsonl"),
        ([pair(0, 1), pair(0, 2)], "#pair-maps", "brighter is better"),
    ],
)
def test_half_of_the_records_make_a_page_too(
    browser: Any, tmp_path: Path, page_records: list[dict[str, Any]], first: str, shown: str
) -> None:
    path = tmp_path / "half.html"
    path.write_text(
        content_of(report(load([write(tmp_path / "a.jsonl", page_records)]))), encoding="utf-8"
    )
    opened_page = Opened(browser, path, 1280, first=first)
    assert shown in opened_page.tab.locator("main").inner_text()
    assert opened_page.complaints == []
    opened_page.tab.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(browser: Any, file: Path, scheme: str) -> None:
    opened_page = Opened(browser, file, 390, color_scheme=scheme)
    opened_page.show("barrier")
    assert opened_page.tab.evaluate("document.documentElement.scrollWidth") <= 390
    opened_page.shoot(f"phone-{scheme}")
    assert opened_page.complaints == []
    opened_page.tab.context.close()


def test_pictures_are_drawn_when_they_come_near_or_are_printed(
    browser: Any, tmp_path: Path
) -> None:
    names = ("broadcast", "reduce", "allreduce", "gather", "scatter", "scan", "exscan")
    page_records = [case(collective=name) for name in names]
    path = tmp_path / "many.html"
    path.write_text(
        content_of(report(load([write(tmp_path / "a.jsonl", page_records)]))), encoding="utf-8"
    )
    opened_page = Opened(browser, path, 390, color_scheme="dark")
    drawn = opened_page.tab.locator("[data-kind=time] .js-plotly-plot")
    assert 0 < drawn.count() < len(names)
    ink = "all => [...new Set(all.map(text => getComputedStyle(text).fill))]"
    ticks = opened_page.tab.locator(".xtick text")
    assert ticks.evaluate_all(ink) == ["rgb(230, 234, 240)"]
    opened_page.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert drawn.count() == len(names) and opened_page.complaints == []
    widths = drawn.evaluate_all("all => all.map(c => c.querySelector('.main-svg').clientWidth)")
    assert {*widths} == {670}, "a phone has one column, which is as wide as the paper"
    assert ticks.evaluate_all(ink) == ["rgb(29, 35, 43)"]
    opened_page.tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert "rgb(230, 234, 240)" in ticks.evaluate_all(ink)
    opened_page.tab.context.close()


def test_a_page_can_be_printed(opened: Opened) -> None:
    opened.tab.emulate_media(media="print")
    assert len(opened.tab.pdf()) > 10_000
