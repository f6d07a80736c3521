"""A page in a browser, with whatever it complains of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from launcher import LIMIT

SHOTS = os.environ.get("MPICOLL_TEST_SHOTS")
"""A folder that keeps pictures of the page, for people to look at."""

# The visible curves of the first chart of a kind; bands are no curves.
_VISIBLE = """([name, kind]) => document.querySelector(
  `[data-collective=${name}] [data-kind=${kind}] .chart`).data
  .filter(t => !t.meta.band && t.visible === true).map(t => `${t.meta.backend} ${t.meta.algorithm}`)
"""
EVERY = _VISIBLE.replace(" && t.visible === true", "")
"""The same of those that are not visible too."""


class Opened:
    """A page, with whatever it complained of or asked the network for."""

    def __init__(
        self, browser: Any, path: Path, width: int, first: str = ".collective",
        drawn: str = ".main-svg", **more: Any,
    ) -> None:  # fmt: skip
        self.complaints: list[str] = []
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, offline=True, accept_downloads=True, **more)
        context.set_default_timeout(1000 * LIMIT)
        self.tab = context.new_page()
        self.tab.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.tab.on("request", self._note)
        self.tab.goto(path.as_uri())
        self.tab.locator(first).first.scroll_into_view_if_needed()
        self.tab.locator(f"{first} {drawn}").first.wait_for(state="attached")

    def _note(self, request: Any) -> None:
        if not request.url.startswith(("file:", "blob:", "data:")):
            self.complaints.append(f"asked for {request.url}")

    def show(self, collective: str) -> None:
        """Scroll to a collective and wait for its charts."""
        chart = f"[data-collective={collective}] [data-kind=time] .js-plotly-plot .main-svg"
        self.tab.locator(f"[data-collective={collective}]").scroll_into_view_if_needed()
        self.tab.locator(chart).first.wait_for()

    def curves(self, collective: str = "allreduce", kind: str = "time") -> list[str]:
        """Return backend and algorithm of each curve that is visible."""
        return list(self.tab.evaluate(_VISIBLE, [collective, kind]))

    def shoot(self, name: str) -> None:
        """Keep a picture where one is wanted."""
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.tab.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)
