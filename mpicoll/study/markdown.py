"""Findings as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpicoll.report.figures import slug
from mpicoll.study.cells import Panel, Study
from mpicoll.study.findings import Finding
from mpicoll.study.questions import QUESTIONS

PAGE = "study.html"


def anchor(panel: Panel) -> str:
    """Return the name of a panel's figure on the page."""
    return "figure-" + slug(str(panel)).lower()


def markdown(study: Study, found: Sequence[Finding], remarks: Sequence[str] = ()) -> str:
    """Return the findings with their headings, each with a link to its figure."""
    return "\n".join(_lines(study, found, remarks)) + "\n"


def facts(study: Study) -> Iterator[str]:
    """Yield how much was measured, and with which libraries."""
    good = [each for each in study.launches if not each.message]
    if study.launches:
        names = dict.fromkeys(each.configuration for each in study.launches)
        minutes = sum(each.seconds for each in study.launches) / 60
        yield (
            f"{len(good)} launches of {len(names)} configurations in random order, {minutes:.0f} "
            f"minutes; {len(study.launches) - len(good)} more failed."
        )
    for name, library in study.libraries.items():
        yield f"{name}: {' '.join(library.split())[:80]}"


def _lines(study: Study, found: Sequence[Finding], remarks: Sequence[str]) -> Iterator[str]:
    yield "# Findings"
    yield ""
    for fact in (*facts(study), *remarks):
        yield f"- {fact}"
    texts = {each.title: each.text for each in QUESTIONS}
    for section in dict.fromkeys(each.section for each in found):
        yield from ("", f"## {section}", "")
        if section in texts:
            yield from (texts[section], "")
        for each in found:
            if each.section == section:
                link = f" [figure]({PAGE}#{anchor(each.panel)})" if each.panel else ""
                yield f"- {each.text}{link}"
