"""The pages are complete, short sentences, and build without a warning into pages with a search."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from launcher import ROOT, python
from pages import DOCS, PAGES
from sentences import long_share, sentences
from stable_names import stable_modules

import mpicoll
from mpicoll.docs import __main__ as command
from mpicoll.docs.generated import commands, fill
from mpicoll.notation.contract import COLLECTIVES

SAME = {f"torchcoll.{name}" for name in {*mpicoll.__all__} - {"world", "threads"}} | {
    "mpicoll.threads.threads", "mpicoll.mpi.communicator.Comm",
}  # fmt: skip
"""Names of what stands on the page under another one."""
_VARIABLE = re.compile(r"\b(?:MPICOLL|TORCHCOLL)_[A-Z_]+\b")
INTERNAL = {
    "MPICOLL_JOBS", "MPICOLL_SUITE_STEP", "MPICOLL_TEST_BACKEND", "MPICOLL_TEST_GPU",
    "TORCHCOLL_AS_GLOO",
}  # fmt: skip
"""Variables of the tests, and those that scripts and processes set for each other."""


def page(name: str) -> str:
    return (DOCS / name).read_text()


# -- complete -----------------------------------------------------------------------------


@pytest.mark.parametrize("module", stable_modules())
def test_the_api_reference_has_every_public_name(module: str) -> None:
    if module.startswith("torchcoll"):
        pytest.importorskip("torch")
    text = page("reference/api.md") + page("reference/modules.md")
    directives = re.findall(
        r"^\.\. auto\w+:: ([\w.]+)(?:\(.*\))?\n(?:   :members: (.*))?", text, re.M
    )
    names = {f"{module}.{name}" for name in getattr(import_module(module), "__all__", ())}
    documented = {name for name, _ in directives}
    documented |= {f"{name}.{member}" for name, members in directives
                   for member in members.split(", ")}  # fmt: skip
    if f".. automodule:: {module}\n   :members:\n" not in text:
        assert names - documented - SAME == set()


def test_the_commands_have_a_section_each() -> None:
    pytest.importorskip("torch")
    headings = re.findall(r"^## (.*)$", fill(page("reference/commands.md")), re.M)
    assert headings == sorted(commands())
    assert {"mpicoll.bench", "mpicoll.run", "torchcoll.run", "mpicoll.tune export"} <= {*headings}


def test_the_catalogue_has_every_algorithm() -> None:
    text = fill(page("reference/algorithms.md"))
    names = {algorithm.name for name in mpicoll.collectives.names()
             for algorithm in mpicoll.algorithms.algorithms(name)}  # fmt: skip
    assert [name for name in names if f"`{name}" not in text] == []


def test_every_variable_has_a_line() -> None:
    files = [*ROOT.glob("mpicoll/**/*.py"), *ROOT.glob("torchcoll/**/*.py"), *ROOT.glob("jobs/*")]
    texts = [path.read_text() for path in files if path.is_file()]
    variables = {name for text in texts for name in _VARIABLE.findall(text)} - INTERNAL
    pages = " ".join(path.read_text() for path in PAGES)
    assert [name for name in variables if name not in pages] == []


def test_generated_keys_have_the_names_of_the_file() -> None:
    assert "| ``launches`` | int | ``10`` |" in fill(page("reference/study_toml.md"))
    assert "| ``time_us`` | Times | required |" in fill(page("reference/records.md"))


@pytest.mark.parametrize("name", ["study_toml", "records"])
def test_every_generated_key_has_a_meaning(name: str) -> None:
    rows = re.findall(r"^\| ``.*", fill(page(f"reference/{name}.md")), re.M)
    assert [row for row in rows if row.endswith("|  |")] == []


# -- sentences ----------------------------------------------------------------------------


def test_few_sentences_are_long() -> None:
    assert long_share(DOCS) <= 1


def test_sentences_end_at_items_and_cells() -> None:
    text = "One two. Three `a. B` four.\n\n- five\n- six\n\n| a | b |\n\n```python\nno. No.\n```\n"
    assert [*sentences(text)] == [
        "One two.", "Three Code four.", "five", "six", " a ", " b "
    ]  # fmt: skip


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_pages_are_short(path: Path) -> None:
    if path == DOCS / "study" / "index.md":
        pytest.skip("it is written from records")
    text = re.sub(r"^```\{toctree\}.*?^```$", "", path.read_text(), flags=re.M | re.S)
    most_lines = 140 if path.name == "glossary.md" else 110  # a list is looked up, not read
    assert len(text.splitlines()) <= most_lines


# -- built --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx")
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("docs") / "html"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        (ROOT / ".ci" / "docs", str(folder)), env={**os.environ, "PATH": path}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    return folder


def test_the_pages_build_without_a_warning(html: Path) -> None:
    api = (html / "reference" / "api.html").read_text()
    assert "mpicoll.Collectives.allreduce" in api
    assert "<math" in (html / "howto" / "price_a_network.html").read_text()
    assert "--oversubscription" in (html / "reference" / "commands.html").read_text()


def test_the_pages_load_nothing_from_a_network(html: Path) -> None:
    loads = r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?:[^\"]*)"
    texts = [path.read_text() for path in html.rglob("*.html")]
    assert [address for text in texts for address in re.findall(loads, text)] == []


@pytest.mark.browser
def test_the_search_works_from_a_file(html: Path, browser: Any) -> None:
    tab = browser.new_page()
    tab.goto(f"{(html / 'search.html').as_uri()}?q=oversubscription")
    tab.wait_for_selector("#search-results li")
    assert "Price a fat-tree" in tab.inner_text("#search-results")
    tab.close()


ANSWERS = {
    "affinity": "Bind ranks to cores",
    "algbw": "Bandwidth: algbw, busbw, and what is normal",
    "bitwise": "Questions",
    "busbw factor": "Bandwidth: algbw, busbw, and what is normal",
    "deterministic": "Questions",
    "exposed communication": "Does communication overlap with computation?",
    "GLOO_SOCKET_IFNAME": "Choose the network interface",
    "MPI_THREAD_MULTIPLE": "Questions",
    "NCCL_ALGO": "See and set the algorithm of a library",
    "NUMA": "Bind ranks to cores",
    "pinning": "Bind ranks to cores",
    "straggler": "Find out why a job is slow",
    "uninstall": "Remove mpicoll",
}
"""The page that answers each word of the field."""


@pytest.mark.browser
@pytest.mark.parametrize("words", ANSWERS)
def test_the_search_for_a_word_of_the_field_finds_an_answer(
    words: str, html: Path, browser: Any
) -> None:
    tab = browser.new_page()
    tab.goto(f"{(html / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
    tab.wait_for_selector(f"#search-results li:has-text({ANSWERS[words]!r})")
    tab.close()


_CUT = """() => [...document.querySelectorAll('.table-wrapper')]
  .filter(table => table.scrollWidth > table.clientWidth + 1).length"""
_LEAST_TEXT = """() => Math.min(...[...document.querySelectorAll('svg.collective')].map(
  svg => 13 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width))"""


def opened(html: Path, name: str, browser: Any, width: int) -> Any:
    """Return a tab with a page in a window of a width, in which the page does not scroll."""
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.goto((html / name).as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    return tab


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1400])
def test_every_collective_has_a_picture_before_its_text(
    width: int, html: Path, browser: Any
) -> None:
    tab = opened(html, "reference/api.html", browser, width)
    firsts = [
        tab.locator(f"dt[id='mpicoll.Collectives.{name}'] + dd > *").first for name in COLLECTIVES
    ]
    assert [first.get_attribute("data-collective") for first in firsts] == [*COLLECTIVES]
    assert tab.evaluate(_LEAST_TEXT) >= 12
    tab.close()


@pytest.mark.browser
def test_no_column_of_the_catalogue_is_cut_off(html: Path, browser: Any) -> None:
    tab = opened(html, "reference/algorithms.html", browser, 1400)
    assert tab.evaluate(_CUT) == 0
    tab.close()


@pytest.mark.browser
@pytest.mark.parametrize("name", ["reference/algorithms.html", "study/index.html", "index.html"])
def test_a_page_fits_into_a_phone(name: str, html: Path, browser: Any) -> None:
    tab = opened(html, name, browser, 400)
    tab.close()


@pytest.mark.browser
def test_a_phone_shows_all_columns_of_the_fastest(html: Path, browser: Any) -> None:
    tab = opened(html, "study/index.html", browser, 400)
    first, second = (tab.locator(".table-wrapper").nth(index) for index in (0, 1))
    for table in (first, second):
        assert "library, us" in table.inner_text()
        assert table.evaluate("table => table.scrollWidth - table.clientWidth") <= 1
    tab.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1400])
def test_the_figures_of_the_study_can_be_read(width: int, html: Path, browser: Any) -> None:
    tab = opened(html, "study/index.html", browser, width)
    widths = tab.evaluate("[...document.querySelectorAll('.scrolling img')].map(img => img.width)")
    assert widths
    assert min(widths) >= 600
    tab.close()


# -- the command --------------------------------------------------------------------------


def test_the_command_prints_where_the_pages_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses: list[str] = []
    monkeypatch.setattr(command, "PAGES", tmp_path)
    monkeypatch.setattr(command.webbrowser, "open", addresses.append)
    (tmp_path / "index.html").touch()
    command.main([], standalone_mode=False)
    assert capsys.readouterr().out == f"{tmp_path / 'index.html'}\n"
    assert addresses == [(tmp_path / "index.html").as_uri()]
    command.main(["--path"], standalone_mode=False)
    assert len(addresses) == 1


@pytest.mark.skipif(command.PAGES.exists(), reason="this source tree has built pages")
def test_without_pages_the_command_says_how_to_build_them() -> None:
    result = python("-m", "mpicoll.docs")
    assert (result.returncode, result.stdout.count("\n")) == (2, 1)
    assert ".ci/docs" in result.stdout


def test_the_modules_import_without_sphinx() -> None:
    assert import_module("mpicoll.docs.conf").html_theme == "furo"
