"""Which functions a test calls, itself or through the helpers and fixtures of its module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
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
    open_ = [*_functions(functions)]
    seen: set[FunctionType] = set()
    while open_:
        function = open_.pop()
        if function in seen:
            continue
        seen.add(function)
        if function.__name__ in names:
            return True
        open_ += _called(function)
    return False


@cache  # tests share their helpers
def _called(function: FunctionType) -> tuple[FunctionType, ...]:
    """Return the functions whose names a function's code has, and the methods of such classes."""
    known = function.__globals__
    found = [known[name] for name in _names(function.__code__) if name in known]
    methods = (vars(each).values() for each in found if isinstance(each, type))
    return (*_functions(found), *_functions(chain.from_iterable(methods)))


def _functions(found: Iterable[Any]) -> Iterator[FunctionType]:
    """Yield what is a function, or wraps one."""
    for each in found:
        function = getattr(each, "__wrapped__", each)
        if isinstance(function, FunctionType):
            yield function


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)
