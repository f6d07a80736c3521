"""How decision tables are written, and how a call is looked up in one.

A table is a TOML file with a section for each call of the library, ``bcast`` or ``allgatherv``::

    [bcast]
    rules = [
        ["ranks<8", "binomial"],
        ["power_of_two", "<=12K binomial, <=512K scatter_rd, scatter_ring"],
        ["", "<=12K binomial, scatter_ring"],
    ]
    [bcast.algorithms]
    binomial = { runs = "binomial" }
    scatter_rd = { runs = "scatter_recursive_doubling", unless = [["count<ranks", "binomial"]] }
    scatter_ring = { runs = "scatter_ring", note = "in segments; here in one" }

- The first rule counts whose condition holds for the `Call`; where all its sizes are exceeded,
  the next one does. ``<=12K`` is about `Call.bytes`, ``total<12K`` about `Call.total`.
- `algorithms` says under the library's name of each which schedule `runs` here; `unless` says
  what else the library's own code takes then, and `note` how the schedule differs, always or
  `where` a condition holds.
- ``{bcast@local}`` and ``{bcast@nodes}`` stand for what the table says of that call among the
  ranks of one node, and among one rank of each node; `segment` bounds its bytes.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

Table = dict[str, Any]
_COMPARE = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
}  # fmt: skip
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Call:
    """What libraries decide by; the same on all ranks.

    Attributes:
        bytes: of the vector, or of the row of one rank or pair; the mean of uneven rows.
        total: bytes of the vector, or of all rows.
        count: elements of the vector, or of one row.
        builtin: the operator is no function of the user's.
        regular: all rows are equal.
        largest: the ranks of the largest node.
        balanced: all nodes have as many ranks.
        consecutive: ranks of a node are neighbours.
    """

    ranks: int
    bytes: int = 0
    total: int = 0
    count: int = 0
    commutative: bool = True
    builtin: bool = True
    regular: bool = True
    in_place: bool = False
    root: int = 0
    nodes: int = 1
    largest: int = 0
    balanced: bool = True
    consecutive: bool = True

    @property
    def power_of_two(self) -> bool:
        """Whether the number of ranks is one."""
        return self.ranks == self.window

    @property
    def even(self) -> bool:
        """Whether the number of ranks is."""
        return self.ranks % 2 == 0

    @property
    def window(self) -> int:
        """The largest power of two up to the number of ranks."""
        return 1 << (self.ranks.bit_length() - 1)

    @property
    def several_nodes(self) -> bool:
        """Whether there are several nodes, and not of one rank each."""
        return 1 < self.nodes < self.ranks

    @property
    def one_per_node(self) -> bool:
        """Whether there are several nodes of one rank each."""
        return 1 < self.nodes == self.ranks

    def among(self, whom: str, most: int) -> Call:
        """Return the call among the ranks of one node (``local``) or one of each (``nodes``).

        Args:
            most: bytes that go at a time.
        """
        ranks, nodes = (self.largest, 1) if whom == "local" else (self.nodes, self.nodes)
        has_rows, merged = self.total > self.bytes, 1 if whom == "local" else self.largest
        each = min(self.bytes, most) * (merged if has_rows else 1)
        return replace(
            self, ranks=ranks, nodes=nodes, largest=ranks // nodes, root=0,
            bytes=each, total=each * (ranks if has_rows else 1),
            count=self.count * each // self.bytes if self.bytes else self.count,
        )  # fmt: skip


class Choice(NamedTuple):
    """What a library takes.

    Attributes:
        name: as the library calls it, and what its code takes instead.
        schedule: as `mpicoll.algorithms.find` takes it.
        note: how the schedule differs from what the library does; empty where it does not.
    """

    name: str
    schedule: str
    note: str


class Case(NamedTuple):
    """One of the sizes of a rule: up to which, in which measure, and what is taken."""

    measure: str
    limit: int | None
    name: str

    def holds(self, call: Call) -> bool:
        """Whether a call is as small."""
        return self.limit is None or getattr(call, self.measure) < self.limit


def look_up(table: Table, function: str, call: Call) -> Choice:
    """Return what the library of a table takes for a call of `function`."""
    section = table[function]
    name = step = _first(section["rules"], call)
    while step:
        entry = section["algorithms"][step]
        if step := _first(entry.get("unless", ()), call):
            name = f"{name} > {step}"
    notes = [entry.get("note", "")] if holds(entry.get("where", ""), call) else []
    most = parse_size(entry["segment"]) if "segment" in entry else call.bytes

    def inner(found: re.Match[str]) -> str:
        part = look_up(table, found[1], call.among(found[2], most))
        notes.append(part.note)
        return part.schedule

    schedule = re.sub(r"\{(\w+)@(\w+)\}", inner, entry["runs"])
    return Choice(name, schedule, "; ".join(dict.fromkeys(filter(None, notes))))


def limits(table: Table, function: str) -> set[tuple[str, int]]:
    """Return the measures and sizes at which the rules of `function`, or of its parts, change."""
    section = table[function]
    texts = [sizes for _, sizes in section["rules"]]
    found = {(each.measure, each.limit) for text in texts for each in cases(text) if each.limit}
    for entry in section["algorithms"].values():
        found |= {("bytes", parse_size(entry["segment"]))} if "segment" in entry else set()
        for part in re.findall(r"\{(\w+)@", entry.get("runs", "")):
            found |= limits(table, part) if part != function else set()
    return found


def _first(rules: Any, call: Call) -> str:
    """Return what the first rule that holds says, nothing where none does."""
    for condition, sizes in rules:
        if holds(condition, call):
            for case in cases(sizes):
                if case.holds(call):
                    return case.name
    return ""


def holds(condition: str, call: Call) -> bool:
    """Whether all terms of a condition hold.

    >>> holds("not even and ranks<8", Call(7)), holds("count>=window", Call(7, count=3))
    (True, False)
    """
    return all(_term(each, call) for each in condition.split(" and ") if each)


def _term(text: str, call: Call) -> bool:
    if text.startswith("not "):
        return not getattr(call, text[4:])
    left, sign, right = re.fullmatch(r"(\w+)(?:([<>=]+)(\w+))?", text).groups()  # type: ignore[union-attr]
    value = getattr(call, left)
    if not sign:
        return bool(value)
    other = int(right) if right.isdigit() else getattr(call, right)
    return bool(_COMPARE[sign](value, other))


@cache
def cases(text: str) -> tuple[Case, ...]:
    """Read the sizes of a rule.

    >>> for case in cases("<=12K binomial, total<1M ring, pairwise"):
    ...     print(*case)
    bytes 12289 binomial
    total 1048576 ring
    bytes None pairwise
    """
    return tuple(map(_case, text.split(", ")))


def _case(text: str) -> Case:
    *limit, name = text.split(" ")
    if not limit:
        return Case("bytes", None, name)
    measure, sign, size = re.fullmatch(r"(total|)(<=?)(\w+)", limit[0]).groups()  # type: ignore[union-attr]
    return Case(measure or "bytes", parse_size(size) + (sign == "<="), name)


def parse_size(text: str) -> int:
    """Return a number of bytes; K and M are powers of 1024."""
    number, unit = re.fullmatch(r"(\d+)([KM]?)", text).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS[unit]
