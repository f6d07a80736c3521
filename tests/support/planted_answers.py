"""Read kind, place and lines from the text of a verdict, as a person would."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import planted_jobs as planted

PROGRAM = Path(__file__).with_name("planted_program.py")
_KINDS = (
    (planted.IDLE, r"has made a call for|have made no call|no rank has made a call"),
    (planted.THREAD, r"thread(s)? of (its|their|the) (own )?process"),
    (planted.CHILD, r"child process"),
    (planted.WORK, r"gives (it|them) more work|computes? as fast as the others"),
    (planted.UNEVEN, r"the data is uneven"),
    (planted.CORE, r"shared with other processes"),
    (planted.STOPPED, r"was stopped"),
    (planted.TURNS, r"take turns"),
    (planted.OBJECTS, r"pickle"),
    (planted.ASLEEP, r"it sleeps"),
    (planted.BARRIER, r"nobody needs it|directly (follows|precedes)"),
    (planted.MOVEMENT, r"No rank is late|is spent in calls that all"),
    ("slow link", r"[Ll]ink (of|from)"), ("slow node", r"the node is slow"),
    (planted.MISMATCH, r"in different calls|ask for different|disagree|against \d+ elements"),
    (planted.KILLED, r"while (it|they) worked|while all ranks worked"),
    (planted.HANG, r"others waiting|[Rr]anks wait for each other, in different|does not end"),
    (planted.HANG, r"waits? in a message for"),
    (planted.NOBODY, r"[Nn]obody stands out|stands out in|too few"),
    ("late", r"arrives?"),
)  # fmt: skip


class Answer(NamedTuple):
    """What the first sentence of a verdict says.

    Attributes:
        ranks: that it names as its subject, as text; empty for none.
        lines: of the program, anywhere in the sentences.
    """

    kind: str
    ranks: str
    lines: set[int]
    sentence: str


def read(text: str) -> Answer:
    """Return the answer of a report: a title, sentences, and tables after an empty line."""
    blocks = text.strip().split("\n\n")
    body = blocks[0].split("\n", 1)
    sentences = (body[1] if len(body) > 1 else body[0]).strip()
    head = sentences.split("\n", 1)[0]
    kind = next((kind for kind, pattern in _KINDS if re.search(pattern, head)), "unknown")
    subject = re.match(r"(?:Ranks?|In .{1,80}? ranks?) ([\d,-]+)", head)
    lines = {int(number) for number in re.findall(r"program\.py:(\d+)", sentences)}
    return Answer(kind, subject[1] if subject else "", lines, head)


def lines_of(function: str) -> set[int]:
    """Return the numbers of the lines of a function with the comment CAUSE."""
    numbers, is_inside = set(), False
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1):
        if line.startswith("def "):
            is_inside = line.startswith(f"def {function}(")
        if is_inside and line.endswith("# CAUSE"):
            numbers.add(number)
    return numbers
