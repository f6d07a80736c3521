"""Which form is fastest at which sizes, the cost of each, and where their lines cross."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mpicoll.measurement.hockney import Fit, fit
from mpicoll.study.forms import FORMS, FormTimes, Time


class Range(NamedTuple):
    """Sizes at which one form is never beaten."""

    form: str
    first: int
    last: int


def unbeaten(times: Mapping[str, Time]) -> list[str]:
    """Return the forms that may be the fastest, in the order of their medians."""
    best = min(times.values())
    return [form for form in sorted(times, key=times.__getitem__) if times[form].ties(best)]


def ranges(measured: FormTimes) -> list[Range]:
    """Return the fewest ranges of sizes in each of which one form is never beaten."""
    found: list[Range] = []
    candidates: list[str] = []
    for size, times in measured.times.items():
        good = unbeaten(times)
        if still := [form for form in candidates if form in good]:
            candidates = still
            found[-1] = Range(still[0], found[-1].first, size)
        else:
            candidates = good
            found.append(Range(good[0], size, size))
    return found


def fits(measured: FormTimes) -> dict[str, Fit]:
    """Return the start-up and time per byte of each form that was measured at two sizes."""
    found = {
        form: fit(
            [(size, times[form].median) for size, times in measured.times.items() if form in times]
        )
        for form in FORMS
    }
    return {form: each for form, each in found.items() if each is not None}


def crossing(one: Fit, other: Fit) -> float | None:
    """Return the bytes at which two forms take equally long, None if one always wins."""
    slope = one.beta_ns_per_byte - other.beta_ns_per_byte
    if not slope:
        return None
    size = 1000 * (other.alpha_us - one.alpha_us) / slope
    return size if size > 0 else None
