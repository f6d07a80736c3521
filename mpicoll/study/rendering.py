"""Tables and sentences of the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mpicoll.measurement.hockney import Fit
from mpicoll.study.analysis import crossing, fits, ranges, unbeaten
from mpicoll.study.forms import FORMS, ONE_CALL, FormTimes, Time
from mpicoll.text.sizes import size_text

LEGEND = "* fastest median; =: a tie with one call, where the intervals of the medians overlap"

_TEXTBOOK = {
    "native": "at best log2 p rounds of m when small, 2(p-1)/p m when large",
    "native:reduce+broadcast": "2 log2 p rounds of m through the root",
    "native:reduce_scatter+allgather": "2 log2 p rounds at least, 2(p-1)/p m: the lower bound",
}
"""The cost of each form in theory (Chan, Heimlich, Purkayastha and van de Geijn 2007)."""


def times_table(measured: FormTimes) -> Table:
    """Return a row per size: the time of each form, and its ratio to that of the one call."""
    table = Table(title=Text(str(measured)), title_justify="left")
    table.add_column("size", justify="right")
    for name in FORMS.values():
        table.add_column(f"{name}, us", justify="right")
    for size, times in measured.times.items():
        table.add_row(size_text(size), *(_cell(form, times) for form in FORMS))
    return table


def markdown(measured: FormTimes) -> str:
    """Return the same table for a README."""
    lines = ["| size | " + " | ".join(f"{name}, us" for name in FORMS.values()) + " |"]
    lines.append("| ---: " * (len(FORMS) + 1) + "|")
    for size, times in measured.times.items():
        cells = " | ".join(_cell(form, times) for form in FORMS)
        lines.append(f"| {size_text(size)} | {cells} |")
    return "\n".join(lines)


def _cell(form: str, times: Mapping[str, Time]) -> str:
    if form not in times:
        return "-"
    own, star = times[form], " *" if unbeaten(times)[0] == form else ""
    if form == ONE_CALL or ONE_CALL not in times:
        return f"{own.median:.4g}{star}"
    tie = " =" if own.ties(times[ONE_CALL]) else ""
    return f"{own.median:.4g} ({own.median / times[ONE_CALL].median:.2f}x{tie}){star}"


def findings(measured: FormTimes) -> list[str]:
    """Return sentences: which form is fastest where, the cost of each, where the lines cross."""
    lines = [
        f"{FORMS[each.form]}: {size_text(each.first)} to {size_text(each.last)}"
        for each in ranges(measured)
    ]
    known = fits(measured)
    lines += [
        f"{FORMS[form]} costs {each.alpha_us:.3g} us + {each.beta_ns_per_byte:.3g} ns a byte "
        f"(median error {each.error:.0%}); in theory {_TEXTBOOK[form]}"
        for form, each in known.items()
    ]
    if ONE_CALL in known:
        lines += [
            _crossing_line(measured, form, known) for form in known if form != ONE_CALL
        ]  # fmt: skip
    return lines


def _crossing_line(measured: FormTimes, form: str, known: Mapping[str, Fit]) -> str:
    expected = crossing(known[ONE_CALL], known[form])
    first = next(
        (size for size, times in measured.times.items()
         if {form, ONE_CALL} <= times.keys() and times[form] < times[ONE_CALL]
         and not times[form].ties(times[ONE_CALL])),
        None,
    )  # fmt: skip
    model = f"at about {size_text(_rounded(expected))}" if expected else "at no size"
    where = f"first at {size_text(first)}" if first is not None else "nowhere"
    return f"{FORMS[form]} beats one call {where}; the lines cross {model}"


def _rounded(size: float) -> int:
    """Return a size in whole KiB: a fit is no more precise than that."""
    return max(1, round(size)) if size < 1024 else round(size / 1024) * 1024


def rows(found: Sequence[FormTimes]) -> list[dict[str, Any]]:
    """Return all times as rows of one table, by the names of its columns."""
    return [
        {"backend": each.backend, "library": each.library, "device": each.device,
         "ranks": each.ranks, "bytes": size, "form": FORMS[form], **times[form]._asdict(),
         "ratio_to_one_call":
             times[form].median / times[ONE_CALL].median if ONE_CALL in times else None,
         "unbeaten": form in unbeaten(times)}
        for each in found for size, times in each.times.items() for form in times
    ]  # fmt: skip
