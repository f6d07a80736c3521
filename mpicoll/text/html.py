"""HTML for notebooks: tables of facts, and whole pages within a page."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def facts_table(title: str, facts: Mapping[str, object]) -> str:
    """Return a table with a row for each fact; those that are None or empty are left out.

    >>> facts_table("plan", {"algorithm": "a<b", "note": ""})
    '<table><caption>plan</caption><tr><th>algorithm</th><td>a&lt;b</td></tr></table>'
    """
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
        if value is not None and value != ""
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def frame(page: str, height: int = 720) -> str:
    """Return a frame that shows a page; its scripts do not reach the page around it.

    Args:
        height: pixels.
    """
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{escape(page)}" width="100%" height="{height}" '
        'style="border: 0"></iframe>'
    )
