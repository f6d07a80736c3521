"""Allreduce as one call or as two: times, costs of each form, and crossings."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from mpicoll.errors import ArgumentError
from mpicoll.measurement.hockney import Fit, fit
from mpicoll.study.cells import (
    Cell,
    Contestant,
    Name,
    Panel,
    compare_contestants,
    unbeaten,
)
from mpicoll.study.reading import Study
from mpicoll.study.sentences import place_of
from mpicoll.text.files import write_whole
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text, rounded_size_text, size_text

ONE_CALL = "native"
FORMS = {
    ONE_CALL: "one call",
    "native:reduce+broadcast": "reduce + broadcast",
    "native:reduce_scatter+allgather": "reduce_scatter + allgather",
}
"""The name of each form, by its algorithm."""
COLUMNS = ("size", *(f"{name}, us" for name in FORMS.values()))
LEGEND = "* surely the fastest; = ties with one call, within 5 %; ? undecided; ~ disturbed"


@dataclass(frozen=True)
class Forms:
    """The forms in one environment and on one backend.

    Attributes:
        times: by size in bytes, then by form.
    """

    panel: Panel
    environment: str
    backend: str
    times: dict[int, dict[str, Contestant]]

    def __str__(self) -> str:
        return f"{self.panel}, in {place_of(self.environment, self.backend)}"


def forms_of(study: Study) -> list[Forms]:
    """Return the forms of each panel, environment and backend in which two calls were measured."""
    all_forms = [
        Forms(panel, environment, backend, _times(study.of(panel), environment, backend))
        for panel in study.panels() if panel.collective == "allreduce"
        for environment in study.environments() for backend in ("mpi4py", "torch")
    ]  # fmt: skip
    return [forms for forms in all_forms if {*chain(*forms.times.values())} - {ONE_CALL}]


def _times(
    cells: Sequence[Cell], environment: str, backend: str
) -> dict[int, dict[str, Contestant]]:
    by_size = {
        cell.size: {
            form: cell.contestants[name]
            for form in FORMS
            if (name := Name(environment, backend, form)) in cell.contestants
        }
        for cell in cells
    }
    return {size: times for size, times in by_size.items() if times}


def rows(forms: Forms) -> Iterator[list[str]]:
    """Yield a row for each size: the time of each form, and its ratio to that of the one call."""
    for size, times in forms.times.items():
        yield [size_text(size), *(_cell(form, times) for form in FORMS)]


def _cell(form: str, times: Mapping[str, Contestant]) -> str:
    if form not in times:
        return "-"
    contestant = times[form]
    if ONE_CALL not in times:
        return number(contestant.us)  # there is nothing to be faster than
    star = " *" if unbeaten(times) == [form] else ""
    if form == ONE_CALL:
        return f"{number(contestant.us)}{star}"
    ratio = compare_contestants(contestant, times[ONE_CALL])
    mark = f" {ratio.sign}" if ratio.sign else ""
    return f"{number(contestant.us)} ({number(1 / ratio.ratio)}x{mark}){star}"


def ranges(forms: Forms) -> list[tuple[str, int, int]]:
    """Return the fewest ranges of sizes with one form each that is never beaten."""
    spans: list[tuple[str, int, int]] = []
    candidates: list[str] = []
    for size, times in forms.times.items():
        good = unbeaten(times)
        if still := [form for form in candidates if form in good]:
            candidates = still
            spans[-1] = still[0], spans[-1][1], size
        else:
            candidates = good
            spans.append((good[0], size, size))
    return spans


def fits(forms: Forms) -> dict[str, Fit]:
    """Return the start-up and time per byte of each form with at least three sizes.

    A line through two points has no error.
    """
    points = {
        form: [(size, times[form].us) for size, times in forms.times.items() if form in times]
        for form in FORMS
    }
    lines = {form: fit(form_points) for form, form_points in points.items() if len(form_points) > 2}
    return {form: line for form, line in lines.items() if line is not None}


def crossing(first: Fit, second: Fit) -> float | None:
    """Return the bytes at which two forms take the same time, None if one always wins."""
    slope = first.beta_ns_per_byte - second.beta_ns_per_byte
    size = 1000 * (second.alpha_us - first.alpha_us) / slope if slope else 0.0
    return size if size > 0 else None


def sentences(forms: Forms) -> Iterator[str]:
    """Yield sentences on the unbeaten form of each range, the costs, and the crossings."""
    ratios = [
        compare_contestants(contestant, times[ONE_CALL])
        for times in forms.times.values() if ONE_CALL in times
        for form, contestant in times.items() if form != ONE_CALL
    ]  # fmt: skip
    if not ratios:
        yield f"{forms}: the one call was not measured beside these, so no form is the fastest."
        return
    if all(ratio.has_few for ratio in ratios):
        yield f"{forms}: too few measurements to say which form is the fastest."
        return
    forms = replace(forms, times={size: t for size, t in forms.times.items() if ONE_CALL in t})
    spans = [(FORMS[form], first, last) for form, first, last in ranges(forms)]
    if all(1 < len(times) == len(unbeaten(times)) for times in forms.times.values()):
        spans = [("another", spans[0][1], spans[-1][2])]
    parts = [
        f"{name} ({bytes_text(first)}{f' to {bytes_text(last)}' if last > first else ''})"
        for name, first, last in spans
    ]
    yield f"{forms}: no form is surely faster than {', then '.join(parts)}."
    lines = fits(forms)
    if lines:
        costs = (
            f"{FORMS[form]} {number(line.alpha_us)} us + {number(line.beta_ns_per_byte)} ns a byte "
            f"(median error {line.error:.0%})"
            for form, line in lines.items()
        )
        yield f"{forms}, by lines through the times: {'; '.join(costs)}."
    for form in lines:
        if form != ONE_CALL and ONE_CALL in lines:
            yield f"{forms}: {_crossing(forms, form, lines)}"


def _crossing(forms: Forms, form: str, lines: Mapping[str, Fit]) -> str:
    sides = ONE_CALL, form
    best_by_size = {
        size: unbeaten({side: times[side] for side in sides})
        for size, times in forms.times.items() if all(side in times for side in sides)
    }  # fmt: skip
    if all(len(best) > 1 for best in best_by_size.values()):
        return f"{FORMS[form]} and one call are surely apart at no size."
    first = next((size for size, best in best_by_size.items() if best == [form]), None)
    sizes_text = "at no size" if first is None else f"first at {bytes_text(first)}"
    model = crossing(lines[ONE_CALL], lines[form])
    cross = f"at about {rounded_size_text(model)}" if model else "at no size"
    if model and not min(best_by_size) <= model <= max(best_by_size):
        cross += ", beyond what was measured"
    return f"{FORMS[form]} beats one call {sizes_text}; their lines cross {cross}."


def write_times(study: Study, path: Path) -> None:
    """Write all times of the forms as one table of comma-separated values.

    Raises:
        ArgumentError: there are no forms, or the file cannot be written.
    """
    table = [row for forms in forms_of(study) for row in _values(forms)]
    if not table:
        raise ArgumentError(
            f"no allreduce in two calls: run the benchmark with --algorithms '{','.join(FORMS)}'"
        )

    def save(fresh: Path) -> None:
        with fresh.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)

    write_whole(path, save)


def _values(forms: Forms) -> Iterator[dict[str, Any]]:
    for size, times in forms.times.items():
        for form, contestant in times.items():
            low, high = contestant.interval
            yield {
                "environment": forms.environment, "backend": forms.backend,
                "library": contestant.library, "device": forms.panel.device,
                "call": forms.panel.call, "ranks": forms.panel.ranks, "bytes": size,
                "form": FORMS[form], "launches": contestant.launches, "median": contestant.us,
                "low": low, "high": high,
                "ratio_to_one_call": (
                    1 / compare_contestants(contestant, times[ONE_CALL]).ratio
                    if ONE_CALL in times else None
                ),
                "unbeaten": form in unbeaten(times),
            }  # fmt: skip
