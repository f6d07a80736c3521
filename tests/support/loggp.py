"""Run a GOAL file under LogGP, one event at a time: an instrument to check writer and prices.

`completion` follows the rules of LogGOPSim (Hoefler, Schneider and Lumsdaine 2010), each of which
can be exchanged for that of `mpicoll.costs`. Times are in nanoseconds.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

_OPERATION = re.compile(r"(l\d+): (send|recv|calc) (\d+)(?:b (?:to|from) (\d+) tag (\d+))?")

_KINDS = "send", "recv", "calc"
"""In the order in which LogGOPSim starts them."""


class Times(NamedTuple):
    """The parameters of LogGP: nanoseconds, and nanoseconds a byte."""

    L: int
    o: int
    g: int
    G: int


Key = tuple[int, int, int]
Port = tuple[str, int]
Place = tuple[Port, ...]
Order = tuple[int, ...]


@dataclass
class Operation:
    """A line of GOAL.

    Attributes:
        amount: bytes, or nanoseconds of a `calc`.
        waits: how many operations it waits for; then: those that wait for it.
        ready: when it waits for none; place: in its round.
    """

    rank: int
    kind: str
    amount: int
    peer: int = -1
    tag: int = 0
    waits: int = 0
    ready: int = 0
    place: int = 0
    then: list[Operation] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """The sender, the receiver and the tag."""
        ends = (self.rank, self.peer) if self.kind == "send" else (self.peer, self.rank)
        return *ends, self.tag


def parse(lines: Iterable[str]) -> list[Operation]:
    """Return the operations of all ranks."""
    found: list[Operation] = []
    rank, named = -1, dict[str, Operation]()
    for line in lines:
        if match := re.fullmatch(r"rank (\d+) {", line):
            rank, named = int(match[1]), {}
        elif match := _OPERATION.fullmatch(line):
            label, kind, *numbers = match.groups()
            named[label] = Operation(rank, kind, *(int(each) for each in numbers if each))
            named[label].place = int(label[1:])
            found.append(named[label])
        elif match := re.fullmatch(r"(l\d+) requires (l\d+)", line):
            named[match[2]].then.append(named[match[1]])
            named[match[1]].waits += 1
            named[match[1]].place = int(match[1][1:]) - int(match[2][1:])
        else:
            assert line == "}" or line.startswith("num_ranks "), line
    return found


RULES = "duplex", "meet", "wait", "together"
"""What `mpicoll.costs` does otherwise.

- duplex: a rank sends and receives at once; else its one processor takes in every byte.
- meet: a message starts when both ranks have come to its round; else when its sender has.
- wait: a send ends when its message has arrived; else after o.
- together: a message starts when the ports of both ranks are free; else it is the arriving one
  that waits for the receiver's.
"""


def completion(lines: Iterable[str], times: Times, rules: Collection[str] = ()) -> int:
    """Return when the last rank is done, all messages eager.

    A send keeps its rank's processor busy for o and its port for g + (n - 1) G; the first byte
    arrives o + L after its start; receiving keeps the processor busy for o + (n - 1) G.

    Args:
        rules: of `RULES`, those that replace LogGOPSim's.
    """
    return _Run(times, frozenset(rules)).finish(parse(lines))


class _Run:
    """All ranks at once.

    Attributes:
        queue: what may happen, by time, then in the order in which it became possible; where
            ranks meet, what was ready first, then what comes first in its round.
        busy: until when the processor of a rank is, and its ports.
        waiting: what waits for some ports, in the same order; only the first of them, which
            `called` names with its time, is looked at when these are free.
        posted, parked, arrived: receives, sends and messages without their counterpart so far.
    """

    def __init__(self, times: Times, rules: frozenset[str]) -> None:
        self.times, self.rules, self.last = times, rules, 0
        self.queue: list[tuple[int, Order, str, Operation | Place]] = []
        self.busy = defaultdict[Port, int](int)
        self.waiting = defaultdict[Place, list[tuple[Order, str, Operation]]](list)
        self.called: dict[Place, tuple[int, Order]] = {}
        self.posted: dict[Key, Operation] = {}
        self.parked: dict[Key, Operation] = {}
        self.arrived: dict[Key, int] = {}
        self.pushed = 0

    def finish(self, operations: list[Operation]) -> int:
        """Run to the end and return the time."""
        self.start([each for each in operations if not each.waits])
        while self.queue:
            now, order, kind, each = heapq.heappop(self.queue)
            if isinstance(each, Operation):
                self.attempt(now, order, kind, each)
            elif self.called.get(each) == (now, order):
                self.attempt(now, *heapq.heappop(self.waiting[each]))
                self.call(each, now)
        assert not self.posted and not self.parked and not self.arrived
        return self.last

    def attempt(self, now: int, order: Order, kind: str, each: Operation) -> None:
        """Do what an operation does, or have it wait until its ports are free."""
        if kind == "send" and "meet" in self.rules and each.key not in self.posted:
            self.parked[each.key] = each
            return
        ports = self.ports(kind, each)
        if all(self.busy[port] <= now for port in ports):
            getattr(self, kind)(now, each)
            return
        if "together" in self.rules:  # Each peer has a port: those of one rank meet at its own.
            ports = [max(ports, key=self.busy.__getitem__)]
        place = tuple(ports)
        heapq.heappush(self.waiting[place], (order, kind, each))
        if place not in self.called or order < self.called[place][1]:
            self.call(place, now)

    def call(self, place: Place, now: int) -> None:
        """Have the first that waits for some ports tried when they are free."""
        if not self.waiting[place]:
            self.called.pop(place, None)
            return
        free = max(now, *(self.busy[port] for port in place))
        self.called[place] = free, self.waiting[place][0][0]
        heapq.heappush(self.queue, (*self.called[place], "call", place))

    def ports(self, kind: str, each: Operation) -> list[Port]:
        """Return what must be free for an operation."""
        taking = "takes" if "duplex" in self.rules else "processor"
        if kind == "send":
            arriving = [("in", each.peer)] if "together" in self.rules else []
            return [("processor", each.rank), ("out", each.rank), *arriving]
        if kind == "message":
            return [] if "together" in self.rules else [(taking, each.peer), ("in", each.peer)]
        return [("processor", each.rank)] if kind == "calc" else []

    def push(self, at: int, kind: str, operation: Operation) -> None:
        self.pushed += 1
        order: Order = (self.pushed,)
        if self.rules & {"meet", "together"}:
            order = kind == "send", operation.ready, operation.place, operation.rank, self.pushed
        heapq.heappush(self.queue, (at, order, kind, operation))

    def start(self, ready: list[Operation]) -> None:
        for each in sorted(ready, key=lambda each: (each.rank, _KINDS.index(each.kind))):
            self.push(each.ready, each.kind, each)

    def end(self, operation: Operation, at: int) -> None:
        self.last = max(self.last, at)
        for each in operation.then:
            each.waits, each.ready = each.waits - 1, max(each.ready, at)
        self.start([each for each in operation.then if not each.waits])

    def calc(self, now: int, each: Operation) -> None:
        self.busy["processor", each.rank] = now + each.amount
        self.end(each, now + each.amount)

    def send(self, now: int, each: Operation) -> None:
        L, o, g, G = self.times
        port = now + g + (each.amount - 1) * G
        self.busy["processor", each.rank], self.busy["out", each.rank] = now + o, port
        if "together" in self.rules:
            self.busy["in", each.peer] = port
        self.push(now + o + L, "message", each)
        if "wait" not in self.rules:
            self.end(each, now + o)

    def recv(self, now: int, each: Operation) -> None:
        if each.key in self.arrived:
            self.end(each, max(now, self.arrived.pop(each.key)))
            return
        self.posted[each.key] = each
        if each.key in self.parked:
            sender = self.parked.pop(each.key)
            sender.ready = max(sender.ready, each.ready)
            self.push(now, "send", sender)

    def message(self, now: int, each: Operation) -> None:
        _, o, g, G = self.times
        done = now + o + (each.amount - 1) * G
        if "together" not in self.rules:
            self.busy[self.ports("message", each)[0]] = done
            self.busy["in", each.peer] = now + g + (each.amount - 1) * G
        if each.key in self.posted:
            self.end(self.posted.pop(each.key), done)
        else:
            self.arrived[each.key] = done
        if "wait" in self.rules:
            self.end(each, done)
