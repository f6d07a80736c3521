"""The templates of pages: one file each that needs no network.

The folder `layout` has the parts that several pages share: the order of a page, its look, and the
overview of cases.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


@cache
def templates(
    package: str, folder: str = "templates", **filters: Callable[..., Any]
) -> Environment:
    """Return the templates of a package, beside the shared ones: all shown values are escaped."""
    loaders = [PackageLoader(package, folder), PackageLoader("mpicoll.text", "layout")]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, loader=ChoiceLoader(loaders),
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= filters
    # Names keep their order, in which the page shows them.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment
