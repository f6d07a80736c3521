"""How decision tables are written, and how a call is looked up in one.

A table is a TOML file with a section for each call of the library, ``bcast`` or ``allgatherv``::

    [calls.bcast]
    rules = [
        { ranks_below = 8, take = "binomial" },
        { power_of_two = true, up_to = { 12K = "binomial", 512K = "scatter_rd" } },
        { up_to = { 12K = "binomial" }, take = "scatter_ring" },
    ]
    [calls.bcast.algorithms]
    binomial = { runs = "binomial" }
    scatter_rd = { runs = "scatter_recursive_doubling",
                   unless = [{ count_below = "ranks", take = "binomial" }] }
    scatter_ring = { runs = "scatter_ring", note = "in segments; here in one" }

The first rule counts whose `Condition` holds for the `Call` and that has an algorithm for its size.
The algorithms are under the library's own names; `Entry` says which schedule each runs here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import Struct, field

from mpicoll.defaults.calls import Call, Choice, Level
from mpicoll.errors import ArgumentError
from mpicoll.text.sizes import parse_size

Limit = int | Literal["ranks", "window"]
"""A number of elements, or as many as the ranks, or as the largest power of two up to them."""
_size = cache(parse_size)


class Condition(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A condition on a call: every field that is given must hold, under the names of `Call`."""

    ranks: int | None = None
    ranks_below: int | None = None
    ranks_up_to: int | None = None
    ranks_above: int | None = None
    count_below: Limit | None = None
    count_at_least: Limit | None = None
    power_of_two: bool | None = None
    even: bool | None = None
    several_nodes: bool | None = None
    one_per_node: bool | None = None
    balanced: bool | None = None
    consecutive: bool | None = None
    commutative: bool | None = None
    builtin: bool | None = None
    regular: bool | None = None
    in_place: bool | None = None
    root_is_zero: bool | None = None

    def holds(self, call: Call) -> bool:
        """Whether it holds for a call.

        >>> Condition(even=False, ranks_below=8).holds(Call(7))
        True
        >>> Condition(count_at_least="window").holds(Call(7, count=3))
        False
        """
        return (
            self.ranks in (None, call.ranks)
            and (self.ranks_below is None or call.ranks < self.ranks_below)
            and (self.ranks_up_to is None or call.ranks <= self.ranks_up_to)
            and (self.ranks_above is None or call.ranks > self.ranks_above)
            and (self.count_below is None or call.count < _limit(self.count_below, call))
            and (self.count_at_least is None or call.count >= _limit(self.count_at_least, call))
            and all(getattr(self, flag) in (None, getattr(call, flag)) for flag in _FLAGS)
        )


_FLAGS = (
    "power_of_two", "even", "several_nodes", "one_per_node", "balanced", "consecutive",
    "commutative", "builtin", "regular", "in_place", "root_is_zero",
)  # fmt: skip


def _limit(limit: Limit, call: Call) -> int:
    return limit if isinstance(limit, int) else int(getattr(call, limit))


class Rule(Condition, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A condition and the algorithms that it leads to, by size.

    Attributes:
        below, up_to: algorithms for fewer `Call.bytes` than a size, or for no more than it.
        total_below: the same for `Call.total`.
        take: the algorithm for all larger sizes; without it the next rules are asked.
    """

    below: dict[str, str] = {}
    up_to: dict[str, str] = {}
    total_below: dict[str, str] = {}
    take: str = ""

    @property
    def names(self) -> set[str]:
        """The algorithms that it leads to."""
        every = (*self.below.values(), *self.up_to.values(), *self.total_below.values(), self.take)
        return {*every} - {""}

    def limits(self) -> Iterator[tuple[str, int, str]]:
        """Yield measures, the sizes in them from which an algorithm does not count, and its name.

        >>> [*Rule(up_to={"12K": "binomial"}, take="ring").limits()]
        [('bytes', 12289, 'binomial')]
        """
        yield from (("bytes", _size(text), name) for text, name in self.below.items())
        yield from (("bytes", _size(text) + 1, name) for text, name in self.up_to.items())
        yield from (("total", _size(text), name) for text, name in self.total_below.items())

    def choice(self, call: Call) -> str:
        """Return the algorithm for a call, nothing where the rule has none."""
        if not self.holds(call):
            return ""
        for measure, limit, name in self.limits():
            if getattr(call, measure) < limit:
                return name
        return self.take


class Reference(Struct, frozen=True, forbid_unknown_fields=True):
    """The algorithm that the same table gives for `call`, among the ranks of one level."""

    call: str


class Entry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An algorithm of the library.

    Attributes:
        runs: the schedule that runs here.
        local, across: its parameters of these names: schedules, or what the table says inside a
            node, or among one rank of each.
        segment: bytes that these get at a time.
        unless: what the library's own code takes instead.
        note: how the schedule differs, in calls for which `condition` holds (``where`` in a table).
    """

    runs: str = ""
    local: str | Reference = ""
    across: str | Reference = ""
    segment: str = ""
    unless: list[Rule] = []
    condition: Condition = field(default=Condition(), name="where")
    note: str = ""

    @property
    def parts(self) -> dict[Level, str | Reference]:
        """The parameters `local` and `across`, where they are given."""
        references: dict[Level, str | Reference] = {"local": self.local, "across": self.across}
        return {level: part for level, part in references.items() if part}


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """The rules and algorithms of one call of the library."""

    rules: list[Rule]
    algorithms: dict[str, Entry]

    def __post_init__(self) -> None:
        """Refuse rules that name no algorithm, that none can reach, or that leave calls open."""
        exceptions = [rule for entry in self.algorithms.values() for rule in entry.unless]
        taken = {name for rule in (*self.rules, *exceptions) for name in rule.names}
        for name in sorted(taken ^ self.algorithms.keys()):
            which = "no algorithm" if name in taken else "taken by no rule"
            raise ValueError(f"{name!r} is {which}")
        last = self.rules[-1]
        conditions = [
            name for name in Condition.__struct_fields__ if getattr(last, name) is not None
        ]
        if conditions or not last.take:
            raise ValueError("the last rule has a condition, or no algorithm for large sizes")
        for rule in self.rules:
            sizes = [limit for _, limit, _ in rule.limits()]
            if sizes != sorted({*sizes}):
                raise ValueError(f"sizes do not ascend: {sizes}")


class Library(Struct, frozen=True, forbid_unknown_fields=True):
    """The decision table of a library: its name, remarks to print, and a section for each call."""

    library: str
    remarks: list[str]
    calls: dict[str, Section]

    def look_up(self, function: str, call: Call) -> Choice:
        """Return the library's choice for a call of `function`."""
        section = self.calls[function]
        name = step = _first(section.rules, call)
        while step:
            entry = section.algorithms[step]
            if step := _first(entry.unless, call):
                name = f"{name} > {step}"
        notes = [entry.note] if entry.condition.holds(call) else []
        limit = _size(entry.segment) if entry.segment else call.bytes
        chosen = {}
        for level, part in entry.parts.items():
            if isinstance(part, Reference):
                choice = self.look_up(part.call, call.part(level, limit))
                notes.append(choice.note)
                part = choice.schedule
            chosen[level] = part
        inner = ",".join(f"{level}={part}" for level, part in chosen.items())
        schedule = f"{entry.runs}({inner})" if inner else entry.runs
        return Choice(name, schedule, "; ".join(dict.fromkeys(filter(None, notes))))

    def limits(self, function: str) -> set[tuple[str, int]]:
        """Return the measures and sizes at which the choice for `function` may change."""
        section = self.calls[function]
        bounds = {(measure, size) for rule in section.rules for measure, size, _ in rule.limits()}
        for entry in section.algorithms.values():
            if entry.segment:
                bounds.add(("bytes", _size(entry.segment)))
            for part in entry.parts.values():
                if isinstance(part, Reference) and part.call != function:
                    bounds |= self.limits(part.call)
        return bounds


def _first(rules: Sequence[Rule], call: Call) -> str:
    """Return the choice of the first rule that has one, nothing where none does."""
    return next(filter(None, (rule.choice(call) for rule in rules)), "")


@cache
def load(name: str) -> Library:
    """Return the table in a file of this package, ``mpich`` or ``openmpi``."""
    path = files("mpicoll.defaults") / f"{name}.toml"
    return read(path.read_bytes(), f"mpicoll/defaults/{name}.toml")


def read(content: bytes, name: str) -> Library:
    """Return the table in a file's content.

    Raises:
        ArgumentError: it is no table; the message names the file, and the place in it.
    """
    try:
        return msgspec.toml.decode(content, type=Library)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{name} is no decision table: {error}") from None
