"""Damage the content of a file, so that much of what reads it is reached."""

from __future__ import annotations

import json
import random
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from flight_entries import packed, packed_words

from mpicoll.flight.entries import Link, Row, Sample
from mpicoll.flight.layout import (
    CLOCK,
    CLOCK_AT,
    ENDING,
    ENDING_AT,
    LINK,
    LINKS_AT,
    MARK,
    RECORD,
    ROW,
    ROWS_AT,
    SAMPLE,
    SAMPLES_AT,
    STATE,
    STATE_AT,
    TABLE_AT,
    record,
)

Damage = Callable[[bytes, random.Random], bytes]
PLANTED = Path(tempfile.gettempdir()) / "mpicoll-planted-by-a-text"
"""What a text makes where Python, a shell or a template runs it."""
CODE = (
    f"__import__('os').mkdir('{PLANTED}')",
    f"ring(radix=__import__('os').mkdir('{PLANTED}'))",
    f"two_level(local=\"__import__('os').mkdir('{PLANTED}')\")",
    f"';mkdir {PLANTED};'", f'"$(mkdir {PLANTED})`mkdir {PLANTED}`',
    f"{{{{ cycler.__init__.__globals__.os.mkdir('{PLANTED}') }}}}",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 7, 64, 30000, 1 << 20, 1 << 53, 1 << 62, 10**30, 10**400,
    0.0, -0.0, 0.5, 1.5, -1.5, 1e-15, 1e-300, 5e-324, 1e18, 1e308, float("nan"), float("inf"),
    float("-inf"), "", "0", "a", "ring", "native", "auto", "native:reduce+broadcast", "barrier",
    "latency", "copy", "one_way", "cuda", "network", "symmetric", "A" * 2000, "[/]", "[red]",
    "{0}%s", "\x1b[2J", "\x9b31m", "\x00", "\ud800", "\u202e", "a\nb", "=1+1", "<script>", "$x^$",
    "float32 (1 2), sum", "float32 (" + "9" * 5000 + ")", "0-70000", "1-x", "../x", "all", "1G",
    "ring@cma", "auto@cma", "ring(radix=2", "two_level(local=two_level(local=ring))",
    "knomial(radix=1000000)", *CODE, [], [[]], [None], [0], [1.0], [-1.0], [1, 2, 3], ["a", 1],
    {}, {"a": 1}, {"a": {"b": None}}, {"median": 1.0},
)  # fmt: skip
WORDS = (0, 1, 2, 3, 63, 64, 1000, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 62,
         (1 << 63) - 1)  # fmt: skip


def of_lines(content: bytes, dice: random.Random) -> bytes:
    """Return lines of JSON with one or a few things changed."""
    return _changed(content, dice, (_change_line, _change_lines, _change_bytes), (8, 1, 1))


def of_json(content: bytes, dice: random.Random) -> bytes:
    """Return one value of JSON, over however many lines, with one or a few things changed."""
    return _changed(content, dice, (_change_json, _change_bytes), (9, 1))


def of_toml(content: bytes, dice: random.Random) -> bytes:
    """Return TOML with one or a few things changed."""
    return _changed(content, dice, (_change_toml, _change_bytes), (8, 2))


def of_text(content: bytes, dice: random.Random) -> bytes:
    """Return text with a few bytes, numbers or lines changed."""
    return _changed(content, dice, (_change_word, _change_lines, _change_bytes), (6, 2, 2))


def of_flight(content: bytes, dice: random.Random) -> bytes:
    """Return a flight file with a few things changed, most with a check that holds."""
    return _changed(
        content, dice,
        (_change_row, _change_sample, _change_link, _change_item, _change_state, _change_bytes),
        (4, 1, 1, 4, 1, 1),
    )  # fmt: skip


def _changed(
    content: bytes, dice: random.Random, ways: tuple[Damage, ...], weights: tuple[int, ...]
) -> bytes:
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        content = dice.choices(ways, weights)[0](content, dice)
    return content


# -- values -------------------------------------------------------------------------------


def _change_line(content: bytes, dice: random.Random) -> bytes:
    """Replace, remove, add or move one value of one line."""
    lines = content.split(b"\n")
    at = dice.randrange(len(lines))
    lines[at] = _change_json(lines[at], dice)
    return b"\n".join(lines)


def _change_json(content: bytes, dice: random.Random) -> bytes:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    with suppress(ValueError, RecursionError):  # it may hold itself by now
        return json.dumps(_change_value(value, dice)).encode()
    return content


def _change_toml(content: bytes, dice: random.Random) -> bytes:
    try:
        value = tomllib.loads(content.decode())
    except (ValueError, RecursionError):
        return content
    with suppress(ValueError, RecursionError):
        return _toml(_change_value(value, dice)).encode(errors="replace")
    return content


def _toml(value: Any, depth: int = 0) -> str:
    """Return TOML, with all tables but the outermost one inline."""
    if isinstance(value, dict):
        pairs = [
            f"{json.dumps(str(name))} = {_toml(each, depth + 1)}" for name, each in value.items()
        ]
        return f"{{ {', '.join(pairs)} }}" if depth else "\n".join(pairs) + "\n"
    if isinstance(value, list):
        return f"[{', '.join(_toml(each, depth + 1) for each in value)}]"
    return str(value).lower() if isinstance(value, int | float) else json.dumps(value)


def _change_value(value: Any, dice: random.Random) -> Any:
    """Replace, remove, add or move something in nested values, which are changed themselves."""
    places = list(_places(value))
    if not places:
        return value
    holder, name = dice.choice(places)
    how = dice.randrange(8)
    if how == 0:
        del holder[name]
    elif how == 1:
        other, its = dice.choice(places)
        holder[name], other[its] = other[its], holder[name]
    elif how == 2 and isinstance(holder[name], int | float):
        with suppress(OverflowError):
            holder[name] *= dice.choice((-1, 1.0, 10, 1e-9, 1e9, 1e30))
    elif how == 3 and isinstance(holder[name], list):
        holder[name] = holder[name] * 2 if dice.random() < 0.5 else holder[name][:-1]
    else:
        alike = [each for each in VALUES if type(each) is type(holder[name])]
        holder[name] = dice.choice(alike if alike and dice.random() < 0.6 else VALUES)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in nested values as its holder and its name or index there."""
    if isinstance(value, dict | list):
        for name in value if isinstance(value, dict) else range(len(value)):
            yield value, name
            yield from _places(value[name])


# -- lines and bytes ----------------------------------------------------------------------


def _change_lines(content: bytes, dice: random.Random) -> bytes:
    lines = content.split(b"\n")
    at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    how = dice.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(other, lines[at])
    elif how == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif how == 3:
        depth = dice.choice((100, 900, 1100, 200_000))
        lines[at] = lines[at].replace(b": null", b": " + b"[" * depth + b"]" * depth, 1)
    else:
        lines.insert(
            at, dice.choice((b"", b"{}", b"null", b'{"schema": 1}', b"\xff\xfe", b"[" * 9))
        )
    return b"\n".join(lines)


def _change_word(content: bytes, dice: random.Random) -> bytes:
    words = content.split(b" ")
    at = dice.randrange(len(words))
    words[at] = str(dice.choice(VALUES)).encode(errors="replace")
    return b" ".join(words)


def _change_bytes(content: bytes, dice: random.Random) -> bytes:
    if not content:
        return content
    at = dice.randrange(len(content))
    how = dice.randrange(4)
    if how == 0:
        return content[:at]
    if how == 1:
        return content[:at] + bytes([dice.randrange(256)]) + content[at + 1 :]
    if how == 2:
        return content[:at] + content[at + dice.randrange(1, 40) :]
    return (
        content[:at]
        + dice.choice((b"-", b"9" * 30, b"e999", b'"', b"}", b"\\u0000"))
        + content[at:]
    )


# -- flight files -------------------------------------------------------------------------


def _change_row(content: bytes, dice: random.Random) -> bytes:
    """Change one number of a row, so that its check holds."""
    used = [
        at for at in range(ROWS_AT, ROWS_AT + 64 * ROW.size, ROW.size) if any(content[at : at + 8])
    ]
    at = dice.choice(used or [ROWS_AT])
    if len(content) < TABLE_AT:
        return content
    *fields, _ = ROW.unpack_from(content, at)
    place = dice.randrange(len(fields))
    fields[place] = dice.choice((fields[place] + 1, fields[place - 1], *WORDS)) % (
        1 << (63 if place < 4 else 32)
    )
    return _laid(content, at, packed(Row(*fields)))


def _change_sample(content: bytes, dice: random.Random) -> bytes:
    """Write the first sample with a number that no rank writes, and a check that holds."""
    fields = [1, *(dice.choice(WORDS) for _ in range(14))]
    fields[9:] = [word % (1 << 32) for word in fields[9:]]
    entry = packed_words(SAMPLE, Sample(*(word % (1 << 63) for word in fields)))
    return _laid(content, SAMPLES_AT, entry) if len(content) > TABLE_AT else content


def _change_link(content: bytes, dice: random.Random) -> bytes:
    """Write the first reading of a connection with numbers that no rank writes, likewise."""
    ends = dice.randbytes(16), bytes(10) + b"\xff\xff" + dice.randbytes(4)
    words = [dice.choice(WORDS) % (1 << 63) for _ in range(4)]
    small = [dice.choice(WORDS) % (1 << 32) for _ in range(3)]
    ports = [dice.choice(WORDS) % (1 << 16) for _ in range(2)]
    entry = packed_words(LINK, Link(1, words[0], *ends, *words[1:], *small, *ports))
    return _laid(content, LINKS_AT, entry) if len(content) > TABLE_AT else content


def _change_item(content: bytes, dice: random.Random) -> bytes:
    """Change one value of a record of the table, and its check."""
    marks, at = [], TABLE_AT
    while (at := content.find(MARK, at + 1)) >= 0:
        marks.append(at)
    if not marks:
        return content
    at = dice.choice(marks)
    if at + RECORD.size > len(content):
        return content
    _, kind, length, _ = RECORD.unpack_from(content, at)
    body = _change_json(content[at + RECORD.size : at + RECORD.size + length], dice)
    kind = dice.choice((kind, kind, kind, kind, dice.randrange(8)))
    fresh, room = record(kind, body), RECORD.size + length
    if len(fresh) > -(-room // 8) * 8:  # rows go on naming the old one
        at = content.rstrip(b"\0").__len__() // 8 * 8 + 16
    return _laid(content, at, fresh)


def _change_state(content: bytes, dice: random.Random) -> bytes:
    kind, at = dice.choice(((STATE, STATE_AT), (CLOCK, CLOCK_AT), (ENDING, ENDING_AT)))
    if len(content) < at + kind.size:
        return content
    fields = list(kind.unpack_from(content, at))
    place = dice.randrange(len(fields))
    fields[place] = dice.choice(WORDS) % (1 << 31)
    return _laid(content, at, kind.pack(*fields))


def _laid(content: bytes, at: int, fresh: bytes) -> bytes:
    return content[:at] + fresh + content[at + len(fresh) :]
