"""Ranks as threads that run one test after the other, on one group as those of a launch do."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest

from mpicoll import Collectives
from mpicoll.threads import Threads

Test = Callable[[Collectives], Any]


class KeptRanks:
    """Runs functions on the ranks of one group; of a new one after one has failed."""

    def __init__(self, threads: Threads) -> None:
        self.threads, self.size = threads, threads.size
        self.given: list[SimpleQueue[Test | None]] = []
        self.ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def open(self) -> None:
        """Let the ranks make their group, unless they have one."""
        if not self.given:
            self.given = [SimpleQueue() for _ in range(self.size)]
            self.ended = SimpleQueue()
            Thread(target=self._group, args=(self.given, self.ended), daemon=True).start()
            self(lambda c: None)

    def __call__(self, test: Test) -> None:
        """Run a function on all ranks.

        Raises:
            Exception: what it raises, as `Threads` does.
        """
        self.open()
        for each in self.given:
            each.put(test)
        skipped = None
        try:
            for _ in self.given:
                error = self.ended.get()
                if isinstance(error, pytest.skip.Exception):
                    skipped = error
                elif error:
                    raise error
        except BaseException:
            self.end()
            raise
        if skipped:
            raise skipped

    def end(self) -> None:
        """Let the ranks free their group."""
        for each in self.given:
            each.put(None)
        self.given = []

    def _group(self, given: list[SimpleQueue[Test | None]], ended: SimpleQueue[Any]) -> None:
        def serve(c: Collectives) -> None:
            for test in iter(given[c.rank].get, None):
                try:
                    test(c)
                except pytest.skip.Exception as skipped:  # as all ranks do
                    ended.put(skipped)
                except BaseException:
                    for each in given:
                        each.put(None)
                    raise
                else:
                    ended.put(None)

        try:
            self.threads(serve)
        except BaseException as error:
            ended.put(error)
