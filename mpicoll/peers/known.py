"""The states of a group's other ranks, as one knows them: ended, left, stopped or waiting."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from mpicoll.backend import Nodes, Stage
from mpicoll.c_extension import _compiled
from mpicoll.errors import RankLost
from mpicoll.machine.living import has_ended, how_ended, is_stopped
from mpicoll.machine.settings import default_deadline
from mpicoll.memory.notes import ENDED, GROUP, LEFT, SILENT, described
from mpicoll.memory.waiting import HasDeadline

if TYPE_CHECKING:
    from mpicoll.memory.segments import MappedMemory
    from mpicoll.peers.contact import Answer, Contact, Notice

_MOST_LEFT = 64
"""Operations that this rank has left, and of which it keeps why."""
_MOST_TOLD = 64
"""Ranks of other nodes that a rank tells of its own accord that it has left an operation."""
_ANY = 0
"""No operation in particular: messages of the user's own."""


class State(NamedTuple):
    """The known state of a rank.

    Attributes:
        fact: as the end of a sentence about it; empty where nothing is known.
        will_not_come: it has ended or left.
        root: the rank that was missing where it left; itself where it left by an error of its own.
        awaited_rank: the rank that it waits for.
    """

    fact: str = ""
    will_not_come: bool = False
    root: int | None = None
    awaited_rank: int | None = None


class Peers(HasDeadline):
    """The other ranks of one group, as one rank sees them.

    Ranks of its node are seen through shared memory and the system; those of other nodes are asked
    (`mpicoll.peers.contact`), and so are all where none share memory.

    Attributes:
        exchanges: how many exchanges it has begun.
        native: it is in a call of the library's own.
        has_lost: it has given up a wait, or left an operation.
        inside: makes a call of the library, of which it is known that it may not return; a
            `Counted`.
        serve: lets the library serve ranks of other nodes that are still inside of it, given the
            deadline; None where it does so by itself.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._deadline = default_deadline()
        self.exchanges, self.native = 0, False
        self.shared: MappedMemory | None = None
        self.contact: Contact | None = None
        self.awaited_rank: int | None = None
        self.departures: dict[int, tuple[str, int | None]] = {}
        self.processes: Mapping[int, int] = {}
        self.has_lost = False
        self.inside: Any = _compiled.Counted(operator.call)
        self.serve: Callable[[float], object] | None = None
        self.notices: dict[int, Notice] = {}

    def open(
        self, shared: MappedMemory | None, nodes: Nodes, exchange: Callable[..., list[Any]]
    ) -> None:
        """Find the ways to know of all ranks; collective."""
        self.shared = shared
        if shared is not None:
            self.processes, shared.leave = shared.processes, self.leave
            shared.wait_policy.lost = lambda context, reason: self.lost(
                context.stage, [context.peer], reason
            )
            shared.wait_policy.has_exited = shared.notes.has_exited
            shared.wait_policy.deadline = self._deadline
        if self.size > 1 and (shared is None or shared.mailbox is None):
            from mpicoll.peers.contact import Contact

            self.contact = Contact(self.rank, exchange, len(nodes) == 1, self._reply, self._take)

    def close(self) -> None:
        """Answer other ranks no more."""
        if self.contact is not None:
            self.contact.close(partial(_freed, self.departures, self.exchanges))
        self.shared = None

    # -- what this rank tells ---------------------------------------------------------------

    def leave(self, operation: int, error: BaseException) -> None:
        self.has_lost = True
        root = getattr(error, "rank", None)
        self.post(operation, described(error), root)
        if self.contact is not None and self.serve is not None:
            self.serve(self.deadline)
        if self.contact is not None and root is not None:
            from mpicoll.peers.contact import Notice

            # This process may end before it is asked.
            other_ranks = (r for r in range(self.size) if r not in (self.rank, root))
            far = [rank for rank in other_ranks if rank not in self.processes]
            notice = Notice(self.rank, operation, described(error), root)
            self.contact.tell(far[:_MOST_TOLD], notice)

    def _take(self, notice: Notice) -> None:
        """Take the notice of another rank; the thread that answers calls it."""
        self.notices[notice.rank] = notice

    def have_told(self, operations: Collection[int]) -> list[int]:
        """Return the ranks that have told of their own accord that they left an operation."""
        notices = list(self.notices.values())
        return [notice.rank for notice in notices if notice.operation in operations]

    def post(self, operation: int, text: str, lost: int | None = None) -> None:
        """State a short text about an operation, and the rank that is missing there."""
        if operation not in self.departures and len(self.departures) >= _MOST_LEFT:
            self.departures.pop(next(iter(self.departures)))
        self.departures[operation] = text, lost
        if (shared := self.shared) is not None:
            shared.notes.post(operation, text, lost)

    def wait_for(self, peer: int | None) -> None:
        self.awaited_rank = peer
        if (shared := self.shared) is not None:
            shared.notes.wait_for(peer)

    def _reply(self, operation: int) -> Answer:
        from mpicoll.peers.contact import Answer

        concerns_group = operation not in self.departures
        reason, lost = self.departures.get(operation) or self.departures.get(GROUP) or ("", None)
        peer, shared = self.awaited_rank, self.shared  # which `close` takes away in another thread
        if peer is None and shared is not None:
            peer = shared.notes.waits_for(self.rank)
        return Answer(reason, lost, peer, self.exchanges, self.native, concerns_group)

    def hear(self, ranks: Sequence[int], operation: int) -> tuple[set[int], dict[int, str]]:
        """Return which ranks are out, and each one's last statement about an operation.

        Those are out that have ended, are stopped or cannot be reached; a statement is empty where
        a rank has made none.
        """
        out, statements = set[int](), dict.fromkeys(ranks, "")
        other_ranks = [rank for rank in ranks if rank != self.rank]
        if self.rank in statements:
            statements[self.rank] = self.departures.get(operation, ("", None))[0]
        shared, near = self.shared, list[int]()
        if shared is not None:
            near = [rank for rank in other_ranks if rank in self.processes]
            for rank in near:
                process = self.processes[rank]
                out |= {rank} if has_ended(process) or is_stopped(process) else set()
                statements[rank] = shared.notes.read(rank, operation)
        far = [rank for rank in other_ranks if rank not in near]
        answers = {} if self.contact is None else _asked_twice(self.contact, far, operation)
        for rank, answer in answers.items():
            if isinstance(answer, str):
                out |= {rank} if answer else set()
            elif not answer.other:
                statements[rank] = answer.left
        return out, statements

    def out(self, ranks: Sequence[int]) -> list[int]:
        """Return those of some ranks that have ended, are stopped or cannot be reached."""
        return sorted(self.hear(ranks, GROUP)[0])

    # -- what it knows ----------------------------------------------------------------------

    def state(self, peer: int, operation: int = _ANY) -> State:
        """Return the known state of a rank, which may be asked for it."""
        if self.shared is not None and peer in self.processes:
            return self._near(peer, operation)
        if self.contact is None or peer == self.rank:
            return State()
        answer = _asked_twice(self.contact, [peer], operation)[peer]
        if answer == ENDED and peer in self.notices:
            return _state_of_ended("", self.notices[peer].text, self.notices[peer].lost)
        return state_from_answer(peer, answer)

    def _near(self, peer: int, operation: int) -> State:
        if (shared := self.shared) is None:  # another thread has closed the group
            return State()
        notes, process = shared.notes, self.processes[peer]
        for number in (operation, GROUP):
            if why := notes.why(peer, number):
                root = notes.root(peer, number)
                return State(f"(process {process}), {why}", True, peer if root is None else root)
        if has_ended(process):
            if last := notes.last(peer):
                return _state_of_ended(f"(process {process}), ", *last)
            cause = how_ended(process) or "killed, or by a crash"
            how = "it exited" if notes.has_exited(peer) else cause
            return State(f"(process {process}), which has ended ({how})", True, peer)
        if is_stopped(process):
            return State(f"(process {process}), which is stopped by a signal", root=peer)
        return State(awaited_rank=notes.waits_for(peer))

    def have_gone(self, ranks: Sequence[int], operation: int) -> bool:
        """Whether one of these ranks will not come."""
        return self.will_not_come(ranks, self.ask(ranks, operation), operation)

    def ask(self, ranks: Sequence[int], operation: int) -> dict[int, Answer | str]:
        """Return the answers of those ranks that lie on other nodes."""
        if self.contact is None:
            return {}
        return self.contact.ask([rank for rank in ranks if not self._is_near(rank)], operation)

    def will_not_come(
        self, ranks: Sequence[int], answers: Mapping[int, Answer | str], operation: int
    ) -> bool:
        """Whether one of some ranks has ended or left, as the system or its answer says."""
        near = [rank for rank in ranks if self._is_near(rank)]
        states = [self._near(rank, operation) for rank in near]
        states += [
            state_from_answer(rank, answer) for rank, answer in answers.items() if rank not in near
        ]
        return any(state.will_not_come for state in states)

    def _is_near(self, rank: int) -> bool:
        return self.shared is not None and rank in self.processes

    def near_missing(self, operation: int) -> list[int]:
        """Return the ranks of this node that have ended or left, or are stopped."""
        other_ranks = (rank for rank in range(self.size) if rank != self.rank)
        near = [rank for rank in other_ranks if self._is_near(rank)]
        return [rank for rank in near if self._near(rank, operation).fact]

    def absent(
        self, is_late: Callable[[Answer], bool] = lambda answer: False, operation: int = GROUP,
        has_completed: Callable[[Answer | str], bool] = lambda answer: False,
    ) -> list[int]:  # fmt: skip
        """Return the ranks that keep a collective of all from its end, as far as can be told.

        Those that have ended or left it, are stopped or cannot be reached; else those whose answer
        is late. None of these has completed it.
        """
        if missing := self.near_missing(operation):
            return missing
        if self.contact is None:
            return []
        other_ranks = [rank for rank in range(self.size) if rank != self.rank]
        answers = self.contact.ask(other_ranks, operation)
        answers = {rank: text for rank, text in answers.items() if not has_completed(text)}
        out = [rank for rank, answer in answers.items() if state_from_answer(rank, answer).fact]
        # One that has told of the rank that it lost may be on its way to end.
        if missing := [rank for rank in out if rank not in self.notices]:
            return missing
        replies = {rank: answer for rank, answer in answers.items() if not isinstance(answer, str)}
        return [rank for rank, answer in replies.items() if is_late(answer)] or out

    def is_behind(self, answer: Answer) -> bool:
        """Whether a rank has not begun the exchange that this one waits in."""
        return answer.exchanges < self.exchanges

    # -- errors -----------------------------------------------------------------------------

    def lost(
        self, stage: Stage, missing: Sequence[int], reason: str, process: bool = False
    ) -> RankLost:
        """Return the error of this rank's wait for others, which names the one they all wait for.

        Args:
            missing: the ranks that it waits for, as far as they are known.
            reason: what happened, where no more is known of the rank: as the end of a sentence.
        """
        self.has_lost = True
        waits = f"{stage}: rank {self.rank} waits for"
        if not missing:
            return RankLost(f"{waits} the other ranks, {reason}")
        states: dict[int, State] = {}
        for rank in missing[:8]:  # each may take a second
            states[rank] = self.state(rank, stage.operation)
            if states[rank].fact:
                break
        peer = next((rank for rank, known_state in states.items() if known_state.fact), missing[0])
        state, seen, text = states[peer], {self.rank}, f"rank {peer}"
        while (
            not state.fact
            and state.awaited_rank is not None
            and state.awaited_rank not in {*seen, peer}
        ):
            seen.add(peer)
            peer = state.awaited_rank
            text += f", which waits for rank {peer}"
            state = self.state(peer, stage.operation)
        number = f" (process {self.processes[peer]})" if peer in self.processes else ""
        tail = state.fact or f"{number.strip()}, {reason}".removeprefix(", ")
        joint = " " if tail.startswith("(") else ", "
        return RankLost(
            f"{waits} {text}{joint}{tail}", rank=peer if state.root is None else state.root
        )


def _asked_twice(contact: Contact, ranks: Sequence[int], operation: int) -> dict[int, Answer | str]:
    """Return the answers of ranks, asked twice: on a busy host one may take longer."""
    answers = contact.ask(ranks, operation)
    silent = [rank for rank, answer in answers.items() if answer == SILENT]
    return answers | contact.ask(silent, operation)


def _freed(departures: dict[int, tuple[str, int | None]], exchanges: int, operation: int) -> Answer:
    """Return the answer of a rank that has freed its group."""
    from mpicoll.peers.contact import Answer

    rooted = (record for record in reversed([*departures.values()]) if record[1] is not None)
    departure = departures.get(operation) or departures.get(GROUP) or next(rooted, None)
    text, lost = departure or ("it has freed the group", None)
    return Answer(text, lost, exchanges=exchanges, freed=departure is None)


def _state_of_ended(process: str, text: str, root: int | None) -> State:
    """Return the state of a rank whose process has ended after it had left an operation."""
    return State(f"{process}which has ended, after {text}", True, root)


def state_from_answer(peer: int, answer: Answer | str) -> State:
    """Return the state of a rank that has answered, or in words why it has not."""
    if isinstance(answer, str):
        return State(answer, answer == ENDED, peer if answer else None)
    if answer.left:
        root = peer if answer.lost is None else answer.lost
        return State(f"{LEFT}{answer.left}", True, root)
    return State(awaited_rank=answer.awaits)
