"""Which functions a test calls, itself or through the helpers and fixtures of its module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import pytest


def reaches(item: pytest.Function, names: Sequence[str]) -> bool:
    """Whether a test calls a function of one of these names."""
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    functions = (item.function, *(each.func for found in fixtures for each in found))
    return _reach(functions, tuple(names))


@cache  # the cases of a test call the same functions
def _reach(functions: tuple[Any, ...], names: tuple[str, ...]) -> bool:
    open_ = [*functions]
    seen: set[Any] = set()
    while open_:
        found = open_.pop()
        function = getattr(found, "__wrapped__", found)
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        if function.__name__ in names:
            return True
        open_ += _called(function)
    return False


def _called(function: FunctionType) -> Iterator[Any]:
    """Yield the functions whose names a function's code has."""
    for name in _names(function.__code__):
        found = function.__globals__.get(name)
        if isinstance(found, type):
            yield from filter(callable, vars(found).values())
        elif callable(found):
            yield found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)
