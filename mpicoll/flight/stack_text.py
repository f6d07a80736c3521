"""Read the stacks that `faulthandler` has written, and pass over whatever else stands there."""

from __future__ import annotations

import re
from collections.abc import Sequence
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


class Stack(NamedTuple):
    """The lines that a thread is in, the innermost first.

    Attributes:
        thread: the number by which `faulthandler` names it.
    """

    thread: int
    frames: list[Frame]

    @property
    def user_frames(self) -> list[Frame]:
        """The lines that are no library's."""
        return [frame for frame in self.frames if not _LIBRARY.search(frame.file)]


def last_stacks(text: str) -> list[Stack]:
    """Return the stacks of the threads as they were last written, the main thread's last."""
    stacks: list[Stack] = []
    for line in text.splitlines()[-_MOST_LINES:]:
        if match := _THREAD.match(line):
            stacks.append(Stack(int(match[1], 16), []))
        elif stacks and (match := _FRAME.match(line)):
            stacks[-1].frames.append(Frame(match[1], int(match[2]), match[3]))
    # The last writing ends where a thread comes for the second time, from behind.
    seen, last = set[int](), []
    for stack in reversed(stacks):
        if stack.thread in seen:
            break
        seen.add(stack.thread)
        last.append(stack)
    return last[::-1]


def calling(stacks: Sequence[Stack], thread: int = 0) -> Stack | None:
    """Return the stack of a thread, or of the main one if that has no line of the program.

    Args:
        thread: as `faulthandler` names it; 0 for the main thread.
    """
    by_thread = {stack.thread: stack for stack in stacks if stack.user_frames}
    return by_thread.get(thread) or next(reversed(by_thread.values()), None)


def place(stacks: Sequence[Stack], thread: int = 0) -> Frame | None:
    """Return where a thread is: its innermost line that is no library's."""
    stack = calling(stacks, thread)
    return stack.user_frames[0] if stack else None


def fatal_error(text: str) -> str:
    """Return the fatal signal that ended a process, as it was written last; empty for none."""
    errors = _FATAL.findall(text)
    return str(errors[-1]) if errors else ""
