"""The progress of a long command on standard error: a bar with the remaining time.

The bar appears after two seconds, on a terminal alone, and goes when the command ends. ``-q`` shows
none. With ``-v`` and no terminal, each step takes a line instead, as for the log of a batch job.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from mpicoll.cli.ending import say
from mpicoll.cli.verbosity import Verbosity, verbosity
from mpicoll.machine.launchers import find_launch, is_first_process
from mpicoll.machine.launches import launcher_terminal
from mpicoll.text.numbers import span
from mpicoll.text.printable import printable

Item = TypeVar("Item")
_DELAY = 2.0
"""Seconds before the bar appears."""
_WIDTH = 80
"""Columns of a bar that passes through a launcher's pipe, unless COLUMNS says another width."""


class ProgressBar:
    """A bar of `total` steps; a context manager.

    Args:
        total: the number of steps.
        has_thread: a thread keeps the bar up to date between two steps. Without it, nothing
            disturbs a measurement.
    """

    def __init__(self, total: int, *, has_thread: bool = True) -> None:
        self.total, self.has_thread, self.completed = total, has_thread, -1
        self.begin = time.monotonic()
        self.is_shown = verbosity() > Verbosity.QUIET and is_progress_visible()
        self.is_printed = verbosity() is Verbosity.VERBOSE and not self.is_shown
        self._lock = threading.Lock()
        self._bar: Any = None
        self._text = ""
        self._end: float | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> ProgressBar:
        if self.is_shown and self.has_thread:
            self._timer = threading.Timer(_DELAY, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.is_shown = False
        self.hide()

    def step(
        self, text: str, *, completed: int | None = None, remaining: float | None = None
    ) -> None:
        """Begin a step.

        Args:
            text: the name of the step.
            completed: the number of completed steps, one more than before by default.
            remaining: seconds until the end; by default, those of the steps so far tell.
        """
        self.completed = self.completed + 1 if completed is None else completed
        spent = time.monotonic() - self.begin
        if remaining is None and self.completed:
            remaining = spent / self.completed * (self.total - self.completed)
        self._end = None if remaining is None else time.monotonic() + remaining
        self.describe(text)
        if self.is_printed and is_first_process():
            remaining_text = "" if remaining is None else f" about {span(max(remaining, 0))} left:"
            say(f"[{self.completed + 1}/{self.total}]{remaining_text} {text}")

    def describe(self, text: str) -> None:
        """Show what the step does now."""
        self._text = printable(text)
        if self.is_shown and time.monotonic() > self.begin + _DELAY:
            self._show()

    def hide(self) -> None:
        """Remove the bar until the next step, for lines of the command's own."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _show(self) -> None:
        with self._lock:
            if not self.is_shown:
                return
            if self._bar is None:
                self._bar = _new_bar(self.has_thread, self._remaining)
                self._bar.add_task(self._text, total=self.total)
                self._bar.start()
            (task,) = self._bar.task_ids
            count = max(self.completed, 0)
            self._bar.update(task, description=self._text, completed=count, total=self.total)
            if not self.has_thread:
                self._bar.refresh()

    def _remaining(self) -> str:
        if self._end is None:
            return ""
        return f"about {span(max(self._end - time.monotonic(), 0))} left"


def _new_bar(has_thread: bool, remaining_text: Callable[[], str]) -> Any:
    """Return rich's bar, which shows the text of `remaining_text` behind it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
    from rich.text import Text

    class RemainingColumn(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(remaining_text())

    width = None if sys.stderr.isatty() else int(os.environ.get("COLUMNS", "") or _WIDTH)
    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn(),
        RemainingColumn(),
        console=Console(stderr=True, force_terminal=True, width=width), transient=True,
        auto_refresh=has_thread, redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip


def is_progress_visible() -> bool:
    """Whether a person sees this process's standard error: as a terminal, or behind a launcher."""
    if find_launch() is None:
        return sys.stderr.isatty()
    return is_first_process() and launcher_terminal() is not None


def tracked(items: Sequence[Item], text: Callable[[Item], str]) -> Iterator[Item]:
    """Yield items with progress.

    Args:
        text: returns the name of an item.
    """
    with ProgressBar(len(items)) as bar:
        for item in items:
            bar.step(text(item))
            yield item
