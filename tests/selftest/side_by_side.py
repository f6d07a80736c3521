"""Run several parts of a command side by side, each in a separate process."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import TypeVar

from mpicoll.errors import CollectiveError
from mpicoll.machine.children import end_with_parent

T = TypeVar("T")


def side_by_side(parts: Sequence[Iterator[T]]) -> Iterator[T]:
    """Yield the items of several iterators as they arrive; each iterator runs in a forked process.

    Raises:
        CollectiveError: an iterator raises it.
        RuntimeError: a process ends in another way.
    """
    if len(parts) == 1:
        yield from parts[0]
        return
    context = multiprocessing.get_context("fork")
    going = {}
    for part in parts:
        reading, writing = context.Pipe(duplex=False)
        process = context.Process(target=_give, args=(part, writing), daemon=True)
        process.start()
        writing.close()
        going[reading] = process
    try:
        while going:
            come = wait(list(going))
            for reading in [pipe for pipe in going if pipe in come]:
                try:
                    kind, item = reading.recv()
                except EOFError:
                    raise RuntimeError("a process of this command has ended early") from None
                if kind == "error":
                    raise item
                if kind == "end":
                    going.pop(reading).join()
                    reading.close()
                else:
                    yield item
    finally:
        for reading, process in going.items():
            process.kill()
            process.join()
            reading.close()


def _give(part: Iterator[T], writing: Connection) -> None:
    end_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends the parent, which then ends this process
    with suppress(BrokenPipeError):
        try:
            for item in part:
                writing.send(("item", item))
        except CollectiveError as error:
            writing.send(("error", error))
        else:
            writing.send(("end", None))
