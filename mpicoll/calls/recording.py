"""Record the calls of a group that Python makes; the compiled executor records its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpicoll.backend import Request
from mpicoll.calls.arguments import Arguments
from mpicoll.engine.plan import Plan
from mpicoll.engine.runs import recorded_start
from mpicoll.errors import CollectiveError, brief
from mpicoll.memory.waiting import set_call
from mpicoll.notation.contract import spelled

if TYPE_CHECKING:
    from mpicoll.flight.groups import GroupFlight

_MAX_PLACES = 1024


class Recording:
    """Records calls and plans, where anything does."""

    def __init__(self, flight: GroupFlight | None) -> None:
        self.flight = flight
        self._places: dict[Any, int] = {}

    def call(self, name: object, checked: Arguments | CollectiveError | None = None) -> Row:
        """Return a context in which a method's call is under way."""
        if not isinstance(name, str):
            name = brief(name)
        if self.flight is None:
            return Row(None, 0, name)
        key: Any = name
        if isinstance(checked, Arguments):
            key = (name, checked.algorithm, checked.dtype, checked.row, checked.op.name,
                   checked.root, checked.counts)  # fmt: skip
        place = self._places.get(key)
        if place is None:
            place = self._add(self.flight, key, name, checked)
        return Row(self.flight, place, name)

    def _add(
        self, flight: GroupFlight, key: Any, name: str, checked: Arguments | CollectiveError | None
    ) -> int:
        signature = algorithm = ""
        if isinstance(checked, Arguments):
            signature, algorithm = signature_text(checked), str(checked.algorithm)
        if len(self._places) >= _MAX_PLACES:
            self._places.clear()
        # Our name of a collective; whatever else was given, but not at length.
        collective = spelled(name)
        shown = collective.name if collective else name[:60]
        self._places[key] = place = flight.call(shown, signature, algorithm, "")
        return place

    def message(
        self, kind: str, way: str, peer: int, tag: int, run: Callable[..., None]
    ) -> Callable[..., None]:
        """Return a recorded function that sends or receives a message.

        Args:
            way: ``to`` or ``from``.
        """
        if self.flight is None:
            return run
        place = self.flight.call(kind, f"{way} rank {peer}, tag {tag}", "", "")
        return self.flight.messages.recorded(place, run)

    def started(
        self, kind: str, way: str, peer: int, tag: int, start: Callable[[], Request]
    ) -> Request:
        """Return a message that is started, which is recorded until its request is complete."""
        if self.flight is None:
            return start()
        place = self.flight.call(kind, f"{way} rank {peer}, tag {tag}", "", "")
        return recorded_start(self.flight.messages, place, start)

    def record(self, plan: Plan, arguments: Arguments) -> None:
        """Record the runs of a plan."""
        if self.flight is None:
            return
        plan.record(self.flight.log, call_of(self.flight, arguments, plan))


class Row:
    """A call that is under way, by whose name errors tell on what the ranks agree."""

    def __init__(self, flight: GroupFlight | None, place: int, name: str) -> None:
        self.log = flight.log if flight else None
        self.place, self.name, self.number = place, name[:60], 0
        self.outer_call: str | None = None

    def __enter__(self) -> None:
        if self.log is not None:
            self.number = self.log.begin(self.place)
        self.outer_call = set_call(self.name)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        set_call(self.outer_call)
        if self.log is not None:
            self.log.end(self.number, error)


def call_of(flight: GroupFlight, arguments: Arguments, plan: Plan) -> int:
    """Return the place of a plan's call in the table of the flight recorder."""
    name, signature = arguments.collective.name, signature_text(arguments)
    return flight.call(name, signature, plan.algorithm, plan.transport)


def signature_text(arguments: Arguments) -> str:
    """Return the arguments that all ranks must give alike; empty where this rank lacks some.

    ``float32 (4, 8), sum`` or ``float32 (8,), counts (1, 2), root 1``.
    """
    if not arguments.is_complete:
        return ""
    signature = arguments.signature
    shape = "" if signature["shape"] is None else f" ({', '.join(map(str, signature['shape']))})"
    parts = [f"{signature['dtype'] or ''}{shape}"]
    parts += [signature["op"]] if signature["op"] else []
    parts += [f"counts {signature['counts']}"[:200]] if arguments.counts else []
    parts += [f"root {signature['root']}"] if signature["root"] is not None else []
    return ", ".join(filter(None, parts))
