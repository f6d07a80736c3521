"""Sweeps: one name with ranges of parameters, for many algorithms.

``2:8`` is every number from 2 to 8, ``1:64:*2`` doubles, ``8:32:+8`` adds 8, and ``1|4|16`` lists
values, which may be ranges, words or algorithms. Several parameters make every combination.

>>> expand("knomial(radix=2:4)")
['knomial(radix=2)', 'knomial(radix=3)', 'knomial(radix=4)']
>>> expand("chain(segments=1:64:*8)@symmetric")
['chain(segments=1)@symmetric', 'chain(segments=8)@symmetric', 'chain(segments=64)@symmetric']
>>> expand("two_level(local=binomial|knomial(radix=4:8:+4))")  # doctest: +NORMALIZE_WHITESPACE
['two_level(local=binomial)', 'two_level(local=knomial(radix=4))',
 'two_level(local=knomial(radix=8))']
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate, chain, product
from math import prod

from mpicoll.errors import ArgumentError

MAX_NAMES = 256
"""Algorithms that one name may stand for."""
LONGEST, DEEPEST = 1000, 8
"""Characters of a name with its parameters, and brackets within each other there."""
_RANGE = re.compile(r"([0-9]{1,18}):([0-9]{1,18})(?::([*+])([0-9]{1,18}))?")


def expand(text: str) -> list[str]:
    """Return the names that a name with ranges stands for; other names as they are.

    Raises:
        ArgumentError: a range is empty or none, the name is too long or too deep, or there are
            more than `MAX_NAMES` algorithms.
    """
    _check_form(text)
    name, bracket, tail = text.partition("(")
    inner, close, suffix = tail.rpartition(")")
    if not bracket or not close:
        return [text]
    choices = [_parameter(part, text) for part in outside_brackets(inner, ",")]
    _check_number(prod(map(len, choices)), text)
    return [f"{name}({','.join(combination)}){suffix}" for combination in product(*choices)]


def depth(text: str) -> int:
    """Return how many brackets of a text are within each other."""
    return max(accumulate((letter == "(") - (letter == ")") for letter in text), default=0)


def outside_brackets(text: str, separator: str) -> list[str]:
    """Split at a separator, but not within brackets.

    >>> outside_brackets("ring, two_level(local=knomial(radix=4),across=ring)", ",")
    ['ring', 'two_level(local=knomial(radix=4),across=ring)']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _parameter(text: str, whole: str) -> list[str]:
    """Return ``key=value`` for every value of one parameter."""
    key, sign, values = text.partition("=")
    parts = (_values(part, whole) for part in outside_brackets(values, "|"))
    every = dict.fromkeys(map(str, chain.from_iterable(parts)))
    return [f"{key}{sign}{value}" for value in every]


def _values(text: str, whole: str) -> Iterable[object]:
    if "(" in text or ":" not in text:
        return expand(text)
    form = _RANGE.fullmatch(text.replace(" ", ""))
    if not form:
        raise ArgumentError(
            f"{_cut(text)} in {_cut(whole)} is no range: give whole numbers as first:last, "
            "first:last:*factor or first:last:+step"
        )
    first, last, step = int(form[1]), int(form[2]), int(form[4] or 1)
    if first > last:
        raise ArgumentError(
            f"{_cut(text)} in {_cut(whole)} is empty: the first number is above the last"
        )
    if form[3] == "*":
        return _multiplied(first, last, step, whole)
    if step < 1:
        raise ArgumentError(f"{_cut(text)} in {_cut(whole)} does not grow: add 1 at least")
    _check_number((last - first) // step + 1, whole)
    return range(first, last + 1, step)


def _multiplied(first: int, last: int, factor: int, whole: str) -> list[int]:
    if first < 1 or factor < 2:
        raise ArgumentError(
            f"a range of {_cut(whole)} does not grow: multiply 1 or more by 2 or more"
        )
    numbers = [first]
    while numbers[-1] * factor <= last:
        numbers.append(numbers[-1] * factor)
    return numbers


def _check_form(text: str) -> None:
    if len(text) > LONGEST:
        raise ArgumentError(
            f"{_cut(text)} is no name of an algorithm: it has {len(text)} characters, and may "
            f"have {LONGEST}"
        )
    if depth(text) > DEEPEST:
        raise ArgumentError(f"{_cut(text)} is nested too deeply: at most {DEEPEST} algorithms")


def _cut(text: str) -> str:
    """Return a text in quotation marks, its beginning if it is long."""
    return repr(text if len(text) <= 80 else f"{text[:80]}...")


def _check_number(count: int, whole: str) -> None:
    if count > MAX_NAMES:
        raise ArgumentError(
            f"{_cut(whole)} stands for {count} algorithms: at most {MAX_NAMES} in one name"
        )
