"""The modules whose names are stable, as the documentation lists them."""

from __future__ import annotations

import re

from launcher import ROOT


def stable_modules() -> list[str]:
    """Return the modules that the documentation calls stable."""
    text = (ROOT / "mpicoll" / "docs" / "reference" / "stability.md").read_text("utf-8")
    (item,) = re.findall(r"the names in `__all__` of (.*?);", text, re.DOTALL)
    return re.findall(r"`((?:mpicoll|torchcoll)[\w.]*)`", item)
