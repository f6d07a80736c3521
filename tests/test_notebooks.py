"""What a notebook shows: diagrams of algorithms, animated pages, and tables of facts."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpicoll
from mpicoll.algorithms import algorithms, find
from mpicoll.errors import ArgumentError, UnknownName
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import load
from mpicoll.study.default import default_study
from mpicoll.study.reading import study_of

RECORDS = Path(__file__).parent / "records" / "files" / "bench_2.jsonl"


def facts(shown: str) -> dict[str, str]:
    """Return the rows of a table, after a check that it is well-formed."""
    xml.fromstring(shown)
    rows = re.findall("<tr><th>(.*?)</th><td>(.*?)</td></tr>", shown)
    return {html.unescape(name): html.unescape(value) for name, value in rows}


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_an_algorithm_is_shown_as_a_diagram(collective: str) -> None:
    shown: Any = next(algorithms(collective))._repr_html_()
    assert shown.count("<svg") == 1
    xml.fromstring(shown[shown.index("<svg") :])


def test_an_algorithm_for_other_numbers_of_ranks_is_shown_too() -> None:
    for algorithm in algorithms("allreduce"):
        if not algorithm.needs.holds(4):
            assert "<svg" in algorithm._repr_html_()
            return
    pytest.fail("all algorithms serve 4 ranks")


def test_threads_show_the_animated_page_of_as_many_ranks() -> None:
    page = mpicoll.threads(3).show("allreduce", "ring", "recursive_doubling")
    assert '"ranks": 3' in page.text or '"ranks":3' in page.text
    frame = page._repr_html_()
    assert html.unescape(re.search('srcdoc="([^"]*)"', frame)[1]) == page.text  # type: ignore[index]


@pytest.mark.parametrize(
    ("size", "names", "error", "text"),
    [
        (3, (), ArgumentError, "name at least one algorithm"),
        (3, ("rnig",), UnknownName, "did you mean 'ring'"),
        (17, ("ring",), ArgumentError, "plays 2 to 16 ranks, not 17"),
    ],
)
def test_a_page_that_cannot_be_shown_says_why(
    size: int, names: tuple[str, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        mpicoll.threads(size).show("allreduce", *names)


def test_a_plan_is_shown_with_its_algorithm() -> None:
    def show(c: mpicoll.Collectives) -> str:
        with c.plan("allreduce", np.ones(3, "f4"), algorithm="ring") as plan:
            return plan._repr_html_()

    shown = facts(mpicoll.threads(2)(show)[0])
    assert shown["algorithm"] == "ring" and shown["result"] == "float32 (3,)"


def test_records_and_studies_are_shown_as_tables() -> None:
    records = load(RECORDS)
    case = next(record for record in records if isinstance(record, CaseRecord))
    shown = facts(case._repr_html_())
    assert shown["collective"] == "allreduce" and shown["algorithm"] == "native"
    assert re.fullmatch(r"[\d.]+ \([\d.]+ to [\d.]+\)", shown["time_us"])
    assert int(facts(study_of(records)._repr_html_())["cells"]) > 0
    assert facts(default_study()._repr_html_())["launches"] == "10"


def test_text_from_records_is_no_markup() -> None:
    case = next(record for record in load(RECORDS) if isinstance(record, CaseRecord))
    case.note = "<script>"
    assert "<script>" not in case._repr_html_()
    assert facts(case._repr_html_())["note"] == "<script>"


def test_the_diagram_names_the_algorithm() -> None:
    assert (
        "<b>broadcast knomial(radix=3)</b>" in find("broadcast", "knomial(radix=3)")._repr_html_()
    )
