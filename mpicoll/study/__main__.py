"""Allreduce as one call, as reduce + broadcast, as reduce_scatter + allgather: which, and why.

``python -m mpicoll.study FILES`` reads records of the benchmark, of as many numbers of ranks and
backends as there are, and says for each which form wins at which sizes, and what decides: the
start-up and the time per byte of each form, fitted to the same records (`bench.hockney`), and
where the lines cross. `jobs/allreduce.sbatch` makes such records.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
from rich.console import Console
from rich.table import Table

from mpicoll.errors import ArgumentError
from mpicoll.measurement.hockney import Fit, fit
from mpicoll.records import journal
from mpicoll.text.files import write_whole
from mpicoll.text.sizes import size_text

FORMS = {
    "native": "one call",
    "native:reduce+broadcast": "reduce + broadcast",
    "native:reduce_scatter+allgather": "reduce_scatter + allgather",
}
ONE = "native"

_TEXTBOOK = {
    "native": "at best log2 p rounds of m when small, 2(p-1)/p m when large",
    "native:reduce+broadcast": "2 log2 p rounds of m on the root's way; all passes the root",
    "native:reduce_scatter+allgather": "2 log2 p rounds at least, 2(p-1)/p m: the lower bound",
}
"""What the forms cost by the book (Chan, Heimlich, Purkayastha and van de Geijn 2007)."""


class Time(NamedTuple):
    """The microseconds of one form at one size, and the interval of the median."""

    median: float
    low: float
    high: float

    def ties(self, other: Time) -> bool:
        """Whether either may be the faster one."""
        return self.low <= other.high and other.low <= self.high


@dataclass
class Setting:
    """Everything measured on one backend with one number of ranks.

    Attributes:
        times: by size in bytes, then by form.
    """

    backend: str
    library: str
    device: str
    ranks: int
    times: dict[int, dict[str, Time]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.backend}, {self.library}, {self.device}, {self.ranks} ranks"


class Range(NamedTuple):
    """Sizes in which one form is never beaten."""

    form: str
    first: int
    last: int


def settings(records: Iterable[Mapping[str, Any]]) -> list[Setting]:
    """Return what the records say of the three forms, each setting apart.

    A wrong result or a refused form counts for nothing; of a case measured twice the later
    record counts.
    """
    found: dict[tuple[Any, ...], Setting] = {}
    for each in records:
        if each.get("collective") != "allreduce" or each.get("algorithm") not in FORMS:
            continue
        if not each["time_us"] or each["correct"] is False:
            continue
        key = each["backend"], each["library"], each["device"], each["ranks"]
        setting = found.setdefault(key, Setting(*key))
        us = each["time_us"]
        setting.times.setdefault(each["bytes_total"], {})[each["algorithm"]] = Time(
            us["median"], us["low"], us["high"]
        )
    return [
        Setting(
            each.backend, each.library, each.device, each.ranks, dict(sorted(each.times.items()))
        )
        for _, each in sorted(found.items(), key=lambda item: item[0])
    ]


def unbeaten(times: Mapping[str, Time]) -> list[str]:
    """Return the forms that may be the fastest, in the order of their medians."""
    best = min(times.values())
    return [form for form in sorted(times, key=times.__getitem__) if times[form].ties(best)]


def ranges(setting: Setting) -> list[Range]:
    """Cut the sizes into the fewest ranges in each of which one form is never beaten."""
    open_: dict[str, int] = {}
    found: list[Range] = []
    last = 0
    for size, times in setting.times.items():
        good = unbeaten(times)
        still = [form for form in open_ if form in good]
        if open_ and not still:
            found.append(Range(next(iter(open_)), next(iter(open_.values())), last))
            open_ = {}
        open_ = {form: open_[form] for form in still} if still else dict.fromkeys(good, size)
        last = size
    if open_:
        found.append(Range(next(iter(open_)), next(iter(open_.values())), last))
    return found


def fits(setting: Setting) -> dict[str, Fit]:
    """Return the start-up and time per byte of each form that was measured at two sizes."""
    found = {
        form: fit(
            [(size, times[form].median) for size, times in setting.times.items() if form in times]
        )
        for form in FORMS
    }
    return {form: each for form, each in found.items() if each is not None}


def crossing(one: Fit, other: Fit) -> float | None:
    """Return the bytes at which two forms should take as long, None where one always wins."""
    slope = one.beta_ns_per_byte - other.beta_ns_per_byte
    if not slope:
        return None
    size = 1000 * (other.alpha_us - one.alpha_us) / slope
    return size if size > 0 else None


# -- telling ------------------------------------------------------------------------------


def times_table(setting: Setting) -> Table:
    """Return a row per size: what each form takes, and how many times the one call's time."""
    table = Table(title=str(setting), title_justify="left")
    table.add_column("size", justify="right")
    for name in FORMS.values():
        table.add_column(f"{name}, us", justify="right")
    for size, times in setting.times.items():
        table.add_row(size_text(size), *(_cell(form, times) for form in FORMS))
    return table


def _cell(form: str, times: Mapping[str, Time]) -> str:
    if form not in times:
        return "-"
    own, star = times[form], " *" if unbeaten(times)[0] == form else ""
    if form == ONE or ONE not in times:
        return f"{own.median:.4g}{star}"
    tie = " =" if own.ties(times[ONE]) else ""
    return f"{own.median:.4g} ({own.median / times[ONE].median:.2f}x{tie}){star}"


def findings(setting: Setting) -> list[str]:
    """Return which form serves which sizes, what each costs, and where the lines cross."""
    lines = [
        f"{FORMS[each.form]}: {size_text(each.first)} to {size_text(each.last)}"
        for each in ranges(setting)
    ]
    known = fits(setting)
    for form, each in known.items():
        lines.append(
            f"{FORMS[form]} costs {each.alpha_us:.3g} us + {each.beta_ns_per_byte:.3g} ns a byte "
            f"(off by {each.error:.0%} in the median); by the book {_TEXTBOOK[form]}"
        )
    for form in list(FORMS)[1:]:
        if ONE in known and form in known:
            lines.append(_crossing_line(setting, form, known))
    return lines


def _crossing_line(setting: Setting, form: str, known: Mapping[str, Fit]) -> str:
    expected = crossing(known[ONE], known[form])
    seen = next(
        (size for size, times in setting.times.items()
         if {form, ONE} <= times.keys() and times[form] < times[ONE]
         and not times[form].ties(times[ONE])),
        None,
    )  # fmt: skip
    model = f"at about {size_text(_rounded(expected))}" if expected else "at no size"
    where = f"first at {size_text(seen)}" if seen is not None else "nowhere"
    return f"{FORMS[form]} beats one call {where}; the lines cross {model}"


def _rounded(size: float) -> int:
    """Return a size in whole KiB, as a fit knows it no better."""
    return max(1, round(size)) if size < 1024 else round(size / 1024) * 1024


def rows(found: Sequence[Setting]) -> list[dict[str, Any]]:
    """Return everything as one flat table."""
    return [
        {"backend": each.backend, "library": each.library, "device": each.device,
         "ranks": each.ranks, "bytes": size, "form": FORMS[form], **times[form]._asdict(),
         "ratio_to_one_call": times[form].median / times[ONE].median if ONE in times else None,
         "unbeaten": form in unbeaten(times)}
        for each in found for size, times in each.times.items() for form in times
    ]  # fmt: skip


def markdown(setting: Setting) -> str:
    """Return the table of a setting for a README."""
    lines = ["| size | " + " | ".join(f"{name}, us" for name in FORMS.values()) + " |"]
    lines.append("| ---: " * (len(FORMS) + 1) + "|")
    for size, times in setting.times.items():
        cells = " | ".join(_cell(form, times) for form in FORMS)
        lines.append(f"| {size_text(size)} | {cells} |")
    return "\n".join(lines)


def load(paths: Sequence[Path]) -> list[Setting]:
    """Return the settings of files of records.

    Raises:
        ArgumentError: a file cannot be read, or none has such records.
    """
    records: list[dict[str, Any]] = []
    for path in paths:
        try:
            records += journal.cases(journal.read(path))
            settings(records)
        except (KeyError, TypeError, AttributeError) as error:
            raise ArgumentError(f"{path} is no file of records: {error!r}") from None
    found = settings(records)
    if not found:
        raise ArgumentError(
            f"no allreduce in these files: run the benchmark with --algorithms '{','.join(FORMS)}'"
        )
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--csv", "table", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write everything there as one table.")  # fmt: skip
@click.option("--markdown", "plain", is_flag=True, help="Print tables for a README.")
def main(files: Sequence[Path], table: Path | None, plain: bool) -> NoReturn:
    """Say which form of allreduce wins where, and what decides, from records in FILES."""
    try:
        found = load(files)
        if table is not None:
            _write(table, rows(found))
    except (ArgumentError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    console = Console(width=None if sys.stdout.isatty() else 130)
    for each in found:
        if plain:
            print(f"{each}\n\n{markdown(each)}\n")
        else:
            console.print(times_table(each))
        for line in findings(each):
            print(f"- {line}")
        print()
    print("* fastest median; =: a tie with one call, where the intervals of the medians overlap")
    sys.exit(0)


def _write(path: Path, table: Sequence[Mapping[str, Any]]) -> None:
    def save(fresh: Path) -> None:
        with fresh.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)

    write_whole(path, save)


if __name__ == "__main__":
    main()
