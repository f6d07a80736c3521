"""Findings as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from mpicoll.study.findings import SHORT
from mpicoll.study.forms import COLUMNS, LEGEND, Forms, forms_of, rows
from mpicoll.study.questions import ONE_OR_TWO, QUESTIONS
from mpicoll.study.reading import Study
from mpicoll.study.run_environments import short_name
from mpicoll.study.sentences import Finding
from mpicoll.text.numbers import count_text, number, span
from mpicoll.text.printable import plain_markdown

PAGE = "study.html"
TEXTS = {
    SHORT: "A case is one collective at one size. A native call is the library's own, with the "
    "algorithm that the library chooses or with a forced one. A schedule is one of this project, "
    "run by its own executor. The strongest native is the fastest native call of all environments. "
    "A ratio is a median over launches. Faster means significantly more than 1 % faster, and a tie "
    "means significantly within 5 %.",
    **{question.title: question.text for question in QUESTIONS},
}
"""The introduction of each section."""


def markdown(
    study: Study, findings: Sequence[Finding], remarks: Sequence[str] = (), *, linked: bool = True
) -> str:
    """Return the findings with their headings, and tables of the forms of allreduce.

    Args:
        linked: add links to the figures on the page.
    """
    return "\n".join(_lines(study, findings, remarks, linked)) + "\n"


def facts(study: Study) -> Iterator[str]:
    """Yield the number of launches, the machines and the libraries."""
    good = [launch for launch in study.launches if not launch.message]
    if study.launches:
        names = dict.fromkeys(launch.configuration for launch in study.launches)
        taken = span(sum(launch.seconds for launch in study.launches))
        failed = len(study.launches) - len(good)
        launches = f"{count_text(len(good), 'launch')} of {count_text(len(names), 'configuration')}"
        more = f"; {failed} more failed" if failed else ""
        yield f"{launches} in random order, {taken}{more}."
    yield from dict.fromkeys(_machines(study))
    levels = {launch.environment: launch.threads for launch in study.launches if launch.threads}
    for name, library in study.libraries.items():
        environment, _, backend = name.rpartition(" ")
        level = levels.get(environment) if backend == "mpi4py" else None
        how = f", thread level {level}" if level else ""
        prefix = f"{environment}: " if environment else ""
        yield f"{prefix}{short_name(library)} by {backend}{how}."


def _machines(study: Study) -> Iterator[str]:
    """Yield the processors, the binding of ranks, the load and the commits."""
    for run in study.runs:
        bound = "bound to cores" if all(rank.bound for rank in run.binding) else "not bound"
        hosts = f"{len(run.machines)} hosts: " if len(run.machines) > 1 else ""
        share = f" ({number(run.quota, 3)} for the ranks of a host)" if run.quota else ""
        for machine in {entry.processor: entry for entry in run.machines}.values():
            processor = f"{hosts}{machine.processor or 'a processor'}"
            yield f"{processor}, {machine.cores} cores{share}, ranks {bound}."
    loads = [run.load for run in study.runs if run.load is not None]
    if loads:
        ends = dict.fromkeys(number(load, 2) for load in (min(loads), max(loads)))
        cores = study.runs[0].cores_of_load
        # The load includes the previous launch.
        is_busy = median(loads) > 2 * cores > 0
        busy = f" on {cores} cores: other programs ran, and times may be longer for it"
        yield f"The load before the launches was {' to '.join(ends)}{busy if is_busy else ''}."
    commits = dict.fromkeys(run.git.commit[:7] for run in study.runs if run.git)
    if len(commits) > 1:
        yield f"Measured by several commits of this project: {', '.join(commits)}."


def _lines(
    study: Study, findings: Sequence[Finding], remarks: Sequence[str], linked: bool
) -> Iterator[str]:
    yield "# Findings"
    yield ""
    for fact in (*facts(study), *remarks):
        yield f"- {plain_markdown(fact)}"
    for section in dict.fromkeys(finding.section for finding in findings):
        yield from ("", f"## {section}", "")
        if section in TEXTS:
            yield from (TEXTS[section], "")
        if section == ONE_OR_TWO:
            for forms in forms_of(study):
                yield from _table(forms)
        for finding in findings:
            if finding.section == section:
                link = (
                    f" [figure]({PAGE}#{finding.panel.anchor})" if finding.panel and linked else ""
                )
                yield f"- {plain_markdown(finding.text)}{link}"


def _table(forms: Forms) -> Iterator[str]:
    yield from (f"{plain_markdown(str(forms))} ({LEGEND}):", "")
    for row in (COLUMNS, ["---:"] * len(COLUMNS), *rows(forms)):
        yield f"| {' | '.join(row)} |"
    yield ""
