"""The page that plays schedules, in a real browser, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Opened

from mpicoll.algorithms.registry import find
from mpicoll.explain.page import page
from mpicoll.explain.trace import trace_rounds

pytestmark = pytest.mark.browser

NAMES = ("ring", "recursive_doubling")
_MASKS = """name => [...document.querySelectorAll(`[data-algorithm="${name}"] .cell`)]
  .map(cell => Number(cell.dataset.mask))"""
_ALONG = f"""([name, path]) => path.map(now => {{
  const slider = document.getElementById("round");
  slider.value = now;
  slider.dispatchEvent(new Event("input"));
  return ({_MASKS})(name);
}})"""
_SHOWN = "() => document.getElementById('now').textContent"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "allreduce.html"
    path.write_text(page([find("allreduce", name) for name in NAMES], 4), encoding="utf-8")
    return path


def opened(browser: Any, file: Path, width: int = 1280, **more: Any) -> Opened:
    return Opened(browser, file, width, ".stage", ".rank", **more)


@pytest.fixture
def view(browser: Any, file: Path) -> Iterator[Opened]:
    """The page on a desk, where nothing moves by itself; it must never complain."""
    viewer = opened(browser, file, reduced_motion="reduce")
    yield viewer
    assert viewer.complaints == []
    viewer.tab.context.close()


def expected(name: str, size: int, now: int) -> list[int]:
    """Return the masks of all cells as the simulator saw them."""
    shown = trace_rounds(find("allreduce", name), size)
    return [cell.mask for row in shown.states[min(now, shown.rounds)] for cell in row]


def states(view: Opened) -> list[list[int]]:
    return [view.tab.evaluate(_MASKS, name) for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [2, 3, 7, 16])
def test_every_round_forwards_and_backwards_is_the_simulators(
    view: Opened, name: str, size: int
) -> None:
    view.tab.select_option("#ranks", str(size))
    rounds = 2 * (size - 1)
    path = [*range(rounds + 1), *reversed(range(rounds))]
    assert view.tab.evaluate(_ALONG, [name, path]) == [expected(name, size, now) for now in path]


def test_buttons_and_keys_step(view: Opened) -> None:
    steps = [
        ("#on", 1), ("#on", 2), ("#back", 1), ("#last", 6), ("#on", 6), ("#first", 0),
        ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 6), ("Home", 0),
        ("ArrowLeft", 0),
    ]  # fmt: skip
    for target, now in steps:
        if target.startswith("#"):
            view.tab.click(target)
            view.tab.evaluate("document.activeElement.blur()")
        else:
            view.tab.keyboard.press(target)
        assert view.tab.evaluate(_SHOWN) == f"round {now} of 6"


def test_plus_and_minus_change_the_ranks(view: Opened) -> None:
    for key, ranks in (("+", "5"), ("+", "6"), ("-", "5")):
        view.tab.keyboard.press(key)
        assert view.tab.input_value("#ranks") == ranks


def test_space_plays_to_the_end_and_pauses(view: Opened) -> None:
    view.tab.select_option("#speed", "600")
    view.tab.evaluate("document.activeElement.blur()")
    view.tab.keyboard.press("Space")
    assert view.tab.text_content("#play") == "Pause"
    view.tab.wait_for_function(f"() => ({_SHOWN})() === 'round 2 of 6'")
    view.tab.keyboard.press("Space")
    assert view.tab.text_content("#play") == "Play"
    view.tab.keyboard.press("Space")
    view.tab.wait_for_function(f"() => ({_SHOWN})() === 'round 6 of 6'")
    view.tab.wait_for_function("() => document.getElementById('play').textContent === 'Play'")
    assert states(view) == [expected(name, 4, 6) for name in NAMES]


def test_messages_travel(browser: Any, file: Path) -> None:
    """Between two pictures of a playing page they have moved, and land where they should."""
    viewer = opened(browser, file)
    positions = """() => [...document.querySelectorAll('[data-algorithm=ring] .hop circle')]
      .map(each => [Number(each.getAttribute('cx')), Number(each.getAttribute('cy'))])"""
    viewer.tab.click("#play")
    viewer.tab.wait_for_function(f"() => ({positions})().length === 4")
    first = viewer.tab.evaluate(positions)
    viewer.tab.wait_for_function(f"before => String(({positions})()) !== before", arg=str(first))
    assert viewer.complaints == []
    viewer.tab.context.close()


def test_the_slider_of_bytes_shows_where_they_cross(view: Opened) -> None:
    """Few rounds win while vectors are small, few bytes when they are large."""
    view.tab.select_option("#ranks", "8")
    winners = []
    for power in (10, 24):
        view.tab.evaluate("power => { const b = document.getElementById('bytes'); b.value = power;"
                          " b.dispatchEvent(new Event('input')); }", power)  # fmt: skip
        winners.append(view.tab.text_content(".fastest .name"))
    assert winners == ["recursive_doubling", "ring"]


def test_a_rank_can_be_followed(view: Opened) -> None:
    view.tab.click("#on")
    view.tab.click("[data-algorithm=ring] [data-rank='1']")
    assert view.tab.locator("[data-algorithm=ring] .hop.faded").count() == 2
    assert view.tab.locator("[data-algorithm=ring] .rank.chosen").count() == 1


def test_sizes_that_are_not_served_say_why(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "swing.html"
    path.write_text(page([find("allgather", "swing")], 4), encoding="utf-8")
    viewer = opened(browser, path)
    option = viewer.tab.locator("#ranks option[value='5']")
    assert option.is_disabled()
    assert "needs an even number of ranks, not 5" in str(option.get_attribute("title"))
    viewer.tab.keyboard.press("+")
    assert viewer.tab.input_value("#ranks") == "6"
    assert viewer.complaints == []
    viewer.tab.context.close()


def test_long_names_fit_a_phone_too(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "nodes.html"
    path.write_text(page([find("allreduce", "two_level")], 4, nodes=2), encoding="utf-8")
    viewer = opened(browser, path, 360)
    assert viewer.tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert viewer.tab.locator(".rank.odd").count() == 2
    assert viewer.complaints == []
    viewer.tab.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Any, file: Path, scheme: str) -> None:
    viewer = opened(browser, file, 360, color_scheme=scheme, has_touch=True)
    viewer.tab.select_option("#ranks", "16")
    viewer.tab.tap("#on")
    assert viewer.tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert viewer.tab.evaluate(_SHOWN) == "round 1 of 30"
    viewer.shoot(f"explain-phone-{scheme}")
    assert viewer.complaints == []
    viewer.tab.context.close()


def test_a_phone_shows_two_schedules_and_the_controls_together(browser: Any, file: Path) -> None:
    """One above the other, with nothing of them behind the controls."""
    viewer = opened(browser, file, 400, has_touch=True)
    viewer.tab.set_viewport_size({"width": 400, "height": 800})
    viewer.tab.tap("#on")
    viewer.tab.evaluate("scrollTo(0, 0)")
    first, second, controls = (
        viewer.tab.locator(selector).bounding_box()
        for selector in (
            "[data-algorithm=ring] .watch", "[data-algorithm=recursive_doubling] .watch", "nav"
        )
    )  # fmt: skip
    assert first["y"] + first["height"] <= second["y"]
    assert second["y"] + second["height"] <= controls["y"]
    assert controls["y"] + controls["height"] <= 800
    viewer.shoot("explain-phone-two")
    assert viewer.complaints == []
    viewer.tab.context.close()


def test_a_phone_on_its_side_leaves_room_for_the_picture(browser: Any, file: Path) -> None:
    viewer = opened(browser, file, 740)
    viewer.tab.set_viewport_size({"width": 740, "height": 360})
    assert viewer.tab.locator("nav").bounding_box()["height"] < 60
    assert viewer.tab.evaluate("document.documentElement.scrollWidth") <= 740
    viewer.tab.context.close()


def test_paper_has_no_buttons(browser: Any, file: Path) -> None:
    viewer = opened(browser, file)
    viewer.tab.emulate_media(media="print")
    assert not viewer.tab.locator("nav").is_visible()
    viewer.tab.context.close()


def test_it_fills_a_desk(browser: Any, file: Path) -> None:
    """Two schedules stand side by side."""
    viewer = opened(browser, file)
    boxes = [viewer.tab.locator("article").nth(index).bounding_box() for index in range(2)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    viewer.shoot("explain-desk")
    viewer.tab.context.close()
