"""The modules that a Python process imports, from its start to its end."""

from __future__ import annotations

import re

from launcher import python

_LINE = re.compile(r"import time:\s+\d+ \|\s+\d+ \|\s*(\S+)")
OURS = ("mpicoll", "torchcoll")


def modules_of(*command: str, environment: dict[str, str] | None = None) -> set[str]:
    """Return the modules that ``python COMMAND`` imports, those at its end included."""
    process = python("-X", "importtime", *command, environment=environment, merged=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return set(_LINE.findall(process.stderr))


def of_ours(modules: set[str]) -> list[str]:
    """Return the modules of both packages, without the packages that only hold them."""
    names = {name for name in modules if name.partition(".")[0] in OURS}
    return sorted(
        name for name in names if not any(other.startswith(f"{name}.") for other in names)
    )
