"""Read the stacks that `faulthandler` has written, and pass over whatever else stands there."""

from __future__ import annotations

import re
from typing import NamedTuple

_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]{1,16}).* \(most recent call first\):")
_FRAME = re.compile(r'  File "(.{1,1000})", line (\d{1,9}) in (.{1,300})')
_FATAL = re.compile(r"Fatal Python error: (.{1,200})")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/mpicoll/|/torchcoll/|/lib/python3\.\d+/|^<frozen")
_MOST_LINES = 200_000


class Frame(NamedTuple):
    """A line that a thread is in."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def last_stacks(text: str) -> list[list[Frame]]:
    """Return the stacks of the threads as they were last written, the main thread's last."""
    stacks: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines()[-_MOST_LINES:]:
        if match := _THREAD.match(line):
            stacks.append((match[1], []))
        elif stacks and (match := _FRAME.match(line)):
            stacks[-1][1].append(Frame(match[1], int(match[2]), match[3]))
    # The last writing ends where a thread comes for the second time, from behind.
    seen, last = set[str](), []
    for thread, frames in reversed(stacks):
        if thread in seen:
            break
        seen.add(thread)
        last.append(frames)
    return last[::-1]


def place(stacks: list[list[Frame]]) -> Frame | None:
    """Return where the main thread is: its innermost line that is no library's, or else any."""
    frames = next((stack for stack in reversed(stacks) if stack), [])
    user_frames = (frame for frame in frames if not _LIBRARY.search(frame.file))
    return next(user_frames, frames[0] if frames else None)


def fatal_error(text: str) -> str:
    """Return the fatal signal that ended a process, as it was written last; empty for none."""
    errors = _FATAL.findall(text)
    return str(errors[-1]) if errors else ""
