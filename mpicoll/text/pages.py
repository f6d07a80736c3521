"""The templates of pages: one file each that needs no network."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def templates(
    package: str, folder: str = "templates", **filters: Callable[..., Any]
) -> Environment:
    """Return the templates of a package: everything that they show is escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, loader=PackageLoader(package, folder),
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= filters
    # Names keep their order, in which the page shows them.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment
