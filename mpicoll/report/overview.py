"""The overview: which side is faster in each case, and by which factor.

A case is a collective at a size. The sides are a project and the library, several libraries, or
several algorithms. An overview gives the first sentence of a page, and its first chart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Literal, NamedTuple

from mpicoll.measurement.judgement import SIGNS, Decision
from mpicoll.text.numbers import number

Certainty = Literal["sure", "single", "tie", "open", "disturbed"]
LIBRARY = "the best library call"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_WITHOUT_NUMBER = {"open": SIGNS["undecided"], "disturbed": SIGNS["disturbed"]}
_MARKS = {
    "single": "from one launch",
    "tie": "a tie: the difference is within 5 %",
    "open": "not decided",
    "disturbed": "disturbed: samples were late or preempted, or native contradicts itself",
}


class Case(NamedTuple):
    """The faster side of a case.

    Attributes:
        ratio: how many times as fast it is as the next side.
        verdict: ``sure`` for a significant difference, ``single`` for one from a single launch,
            ``tie`` for a difference that is surely small, ``disturbed`` if the samples cannot
            tell, else ``open``.
        explanation: the names and times of both sides.
    """

    side: str
    ratio: float
    verdict: Certainty
    explanation: str

    @property
    def share(self) -> int:
        """The intensity of its colour, per cent."""
        return min(62, round(16 + 20 * log2(max(self.ratio, 1.0))))

    @property
    def is_decided(self) -> bool:
        """Whether one side is faster."""
        return self.verdict in ("sure", "single")


class Row(NamedTuple):
    """The cases of a collective by size in bytes, and the anchor of its figure."""

    label: str
    anchor: str
    cases: Mapping[int, Case]


@dataclass(frozen=True)
class Overview:
    """All cases of one setting.

    Attributes:
        setting: in words, for example ``on 4 ranks``.
        sides: the names of the sides; a chart shows the ratio of the first of two to the second.
        caption: the meaning of the numbers, and their strength.
    """

    setting: str
    sides: tuple[str, ...]
    rows: Sequence[Row]
    caption: str

    @property
    def sizes(self) -> list[int]:
        """All sizes, ascending."""
        return sorted({size for row in self.rows for size in row.cases})

    @property
    def cases(self) -> list[Case]:
        """All cases."""
        return [case for row in self.rows for case in row.cases.values()]

    @property
    def legend(self) -> list[str]:
        """The sides of the legend: both of two, of several those that are faster in a case."""
        faster = {case.side for case in self.cases}
        return [side for side in self.sides if len(self.sides) == 2 or side in faster]

    def colour(self, side: str) -> str:
        """Return the colour of a side."""
        return _COLOURS[self.sides.index(side) % len(_COLOURS)]

    def letter(self, side: str) -> str:
        """Return the letter that stands for one of more than two sides."""
        return f"{chr(ord('A') + self.sides.index(side) % 26)}: " if len(self.sides) > 2 else ""

    def text(self, case: Case) -> str:
        """Return the number of a case, ``?`` if it is not decided, ``~`` if it is disturbed."""
        if case.verdict in _WITHOUT_NUMBER:
            return _WITHOUT_NUMBER[case.verdict]
        if len(self.sides) > 2:
            return f"{self.letter(case.side)[0]} {number(case.ratio, 2)}"
        return number(case.ratio if case.side == self.sides[0] else 1 / case.ratio, 2)

    def marks(self) -> Iterator[tuple[str, str]]:
        """Yield the verdicts in the chart that need an explanation."""
        verdicts = {case.verdict for case in self.cases}
        yield from ((mark, text) for mark, text in _MARKS.items() if mark in verdicts)


def certainty(decision: Decision, *, is_single: bool = False) -> Certainty:
    """Return how sure a decision is that names the faster side.

    Args:
        is_single: the decision is from one launch of a study.

    >>> certainty("slower"), certainty("faster", is_single=True), certainty("undecided")
    ('sure', 'single', 'open')
    """
    sure: Certainty = "single" if is_single else "sure"
    by_decision: dict[Decision, Certainty] = {
        "faster": sure, "slower": sure, "tie": "tie", "undecided": "open", "disturbed": "disturbed",
    }  # fmt: skip
    return by_decision[decision]


def headline(overview: Overview) -> str:
    """Return the sentence that an overview shows.

    >>> case = Case("mpicoll", 2.0, "sure", "")
    >>> row = Row("allreduce", "", {8: case, 64: case._replace(verdict="open")})
    >>> headline(Overview("on 2 ranks", ("mpicoll", LIBRARY), [row], ""))
    'On 2 ranks, mpicoll is faster than the best library call in 1 of 2 cases, by 2.0 times.'
    """
    total = len(overview.cases)
    disturbed = sum(case.verdict == "disturbed" for case in overview.cases)
    if disturbed == total:
        return (
            f"{_start(overview.setting)}, disturbances hide who is faster in {_of(total, total)}."
        )
    if not disturbed:
        return _decided(overview)
    remark = f"Disturbances hide who is faster in {_of(disturbed, total)}."
    parts = [_decided(overview), remark]
    return " ".join(parts if 2 * disturbed <= total else reversed(parts))


def _decided(overview: Overview) -> str:
    decided = [case for case in overview.cases if case.is_decided]
    if not decided:
        return _undecided(overview)
    (first, count), *remaining = Counter(case.side for case in decided).most_common()
    text = (
        f"{_setting_text(overview, decided)}, {_is_fastest(overview, first)} in "
        f"{_of(count, len(overview.cases))}, by {_factors(decided, first)} times."
    )
    if remaining:
        counts = (f"{side} in {number_of_cases}" for side, number_of_cases in remaining)
        text += f" Faster elsewhere: {', '.join(counts)}."
    return text


def _setting_text(overview: Overview, decided: Sequence[Case]) -> str:
    is_single = all(case.verdict == "single" for case in decided)
    return _start(f"in one launch {overview.setting}" if is_single else overview.setting)


def _start(text: str) -> str:
    return text[:1].upper() + text[1:]


def _is_fastest(overview: Overview, side: str) -> str:
    if len(overview.sides) > 2:
        return f"{side} is fastest"
    (rival,) = [name for name in overview.sides if name != side]
    return f"{side} is faster than {rival}"


def _of(count: int, total: int) -> str:
    if count == total:
        return f"all {total} cases" if total > 1 else "the only case"
    return f"{count} of {total} cases"


def _factors(decided: Sequence[Case], side: str) -> str:
    ratios = [case.ratio for case in decided if case.side == side]
    low, high = number(min(ratios), 2), number(max(ratios), 2)
    return low if low == high else f"{low} to {high}"


def _undecided(overview: Overview) -> str:
    ties = sum(case.verdict == "tie" for case in overview.cases)
    names = " or ".join(overview.sides)
    setting = _start(overview.setting)
    text = f"{setting}, neither {names.replace(' or ', ' nor ')} is surely faster in any case"
    if len(overview.sides) > 2:
        text = f"{setting}, no side is surely the fastest in any case"
    total = len(overview.cases)
    return f"{text}: {ties} of {total} are ties." if ties else f"{text} of {total}."
