"""Allreduce as one call or as two: the times, the cost of each form, and where they cross."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from mpicoll.errors import ArgumentError
from mpicoll.measurement.hockney import Fit, fit
from mpicoll.study.cells import Cell, Contestant, Name, Panel, Ratio, Study, compared
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
LEGEND = "* surely the fastest; = not surely different from one call"


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
    """Return the forms wherever one of two calls was measured."""
    found = [
        Forms(panel, environment, backend, _times(study.of(panel), environment, backend))
        for panel in study.panels() if panel.collective == "allreduce"
        for environment in study.environments() for backend in ("mpi4py", "torch")
    ]  # fmt: skip
    return [each for each in found if {*chain(*each.times.values())} - {ONE_CALL}]


def _times(
    cells: Sequence[Cell], environment: str, backend: str
) -> dict[int, dict[str, Contestant]]:
    found = {
        cell.size: {
            form: cell.contestants[name]
            for form in FORMS
            if (name := Name(environment, backend, form)) in cell.contestants
        }
        for cell in cells
    }
    return {size: times for size, times in found.items() if times}


def rows(forms: Forms) -> Iterator[list[str]]:
    """Yield a row for each size: the time of each form, and its ratio to that of the one call."""
    for size, times in forms.times.items():
        yield [size_text(size), *(_cell(form, times) for form in FORMS)]


def _cell(form: str, times: Mapping[str, Contestant]) -> str:
    if form not in times:
        return "-"
    own = times[form]
    if ONE_CALL not in times:
        return number(own.us)  # there is nothing to be faster than
    star = " *" if unbeaten(times) == [form] else ""
    if form == ONE_CALL:
        return f"{number(own.us)}{star}"
    tie = "" if _is_sure(compared(own, times[ONE_CALL])) else " ="
    return f"{number(own.us)} ({number(own.us / times[ONE_CALL].us)}x{tie}){star}"


def _is_sure(found: Ratio) -> bool:
    return found.verdict != "tie" and not found.has_few


def unbeaten(times: Mapping[str, Contestant]) -> list[str]:
    """Return the forms than which none is surely faster, in the order of their times."""
    order = sorted(times, key=lambda form: times[form].us)
    best = times[order[0]]
    return [form for form in order if form == order[0] or not _is_sure(compared(best, times[form]))]


def ranges(forms: Forms) -> list[tuple[str, int, int]]:
    """Return the fewest ranges of sizes in each of which one form is never beaten."""
    found: list[tuple[str, int, int]] = []
    candidates: list[str] = []
    for size, times in forms.times.items():
        good = unbeaten(times)
        if still := [form for form in candidates if form in good]:
            candidates = still
            found[-1] = still[0], found[-1][1], size
        else:
            candidates = good
            found.append((good[0], size, size))
    return found


def fits(forms: Forms) -> dict[str, Fit]:
    """Return the start-up and time per byte of each form that was measured at three sizes.

    Through two points a line always goes.
    """
    points = {
        form: [(size, times[form].us) for size, times in forms.times.items() if form in times]
        for form in FORMS
    }
    found = {form: fit(own) for form, own in points.items() if len(own) > 2}
    return {form: each for form, each in found.items() if each is not None}


def crossing(one: Fit, other: Fit) -> float | None:
    """Return the bytes at which two forms take equally long, None if one always wins."""
    slope = one.beta_ns_per_byte - other.beta_ns_per_byte
    size = 1000 * (other.alpha_us - one.alpha_us) / slope if slope else 0.0
    return size if size > 0 else None


def sentences(forms: Forms) -> Iterator[str]:
    """Yield which form is never beaten where, what each costs, and where their lines cross."""
    ratios = [
        compared(own, times[ONE_CALL]) for times in forms.times.values() if ONE_CALL in times
        for form, own in times.items() if form != ONE_CALL
    ]  # fmt: skip
    if not ratios:
        yield f"{forms}: the one call was not measured beside these, so no form is the fastest."
        return
    if all(each.has_few for each in ratios):
        yield f"{forms}: too few measurements to say which form is the fastest."
        return
    forms = replace(forms, times={size: t for size, t in forms.times.items() if ONE_CALL in t})
    found = [(FORMS[form], first, last) for form, first, last in ranges(forms)]
    if all(1 < len(times) == len(unbeaten(times)) for times in forms.times.values()):
        found = [("another", found[0][1], found[-1][2])]
    parts = [
        f"{name} ({bytes_text(first)}{f' to {bytes_text(last)}' if last > first else ''})"
        for name, first, last in found
    ]
    yield f"{forms}: no form is surely faster than {', then '.join(parts)}."
    known = fits(forms)
    if known:
        costs = (
            f"{FORMS[form]} {number(each.alpha_us)} us + {number(each.beta_ns_per_byte)} ns a byte "
            f"(median error {each.error:.0%})"
            for form, each in known.items()
        )
        yield f"{forms}, by lines through the times: {'; '.join(costs)}."
    for form in known:
        if form != ONE_CALL and ONE_CALL in known:
            yield f"{forms}: {_crossing(forms, form, known)}"


def _crossing(forms: Forms, form: str, known: Mapping[str, Fit]) -> str:
    sides = ONE_CALL, form
    both = {
        size: unbeaten({each: times[each] for each in sides})
        for size, times in forms.times.items() if all(each in times for each in sides)
    }  # fmt: skip
    if all(len(best) > 1 for best in both.values()):
        return f"{FORMS[form]} and one call are surely apart at no size."
    first = next((size for size, best in both.items() if best == [form]), None)
    where = "at no size" if first is None else f"first at {bytes_text(first)}"
    model = crossing(known[ONE_CALL], known[form])
    cross = f"at about {rounded_size_text(model)}" if model else "at no size"
    if model and not min(both) <= model <= max(both):
        cross += ", beyond what was measured"
    return f"{FORMS[form]} beats one call {where}; their lines cross {cross}."


def write_times(study: Study, path: Path) -> None:
    """Write all times of the forms as one table of comma-separated values.

    Raises:
        ArgumentError: there are none, or the file cannot be written.
    """
    table = [row for each in forms_of(study) for row in _values(each)]
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
        for form, each in times.items():
            low, high = each.interval
            yield {
                "environment": forms.environment, "backend": forms.backend,
                "library": each.library, "device": forms.panel.device,
                "call": forms.panel.call, "ranks": forms.panel.ranks, "bytes": size,
                "form": FORMS[form], "launches": each.launches, "median": each.us, "low": low,
                "high": high,
                "ratio_to_one_call": each.us / times[ONE_CALL].us if ONE_CALL in times else None,
                "unbeaten": form in unbeaten(times),
            }  # fmt: skip
