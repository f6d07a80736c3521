"""Ask a rank of another node for its state: a thread of each process answers.

A process listens at one address for all its groups. Whoever asks proves that it knows the key of
the group, and whoever answers does, too (HMAC-SHA256): the ranks have exchanged it. The system
completes a connection though the process is stopped, refuses it where the process has ended, and
says nothing where the node is gone, so that these three can be told apart.
"""

from __future__ import annotations

import errno
import hmac
import os
import socket
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import sleep
from typing import NamedTuple

import msgspec

from mpicoll.errors import LaunchError
from mpicoll.machine.background import background
from mpicoll.machine.hidden_threads import HiddenThread
from mpicoll.machine.network import LOOPBACK, host_address, listener
from mpicoll.memory.notes import ENDED, SILENT

_SECONDS = 1.0
"""The time in which a process that runs answers."""
_PAUSE = 0.01
_MOST_ENDED = 64
"""Groups that have ended for which a process answers."""
_NAME, _NONCE, _PROOF, _AT_ONCE = 8, 16, 32, 32
_MOST_TEXT = 5000
"""Characters, each of which takes six bytes at most."""
_TIMES = 2


class Answer(msgspec.Struct):
    """The state of a rank, in its own words.

    Attributes:
        left: why it has left the operation that it was asked about; empty where it has not.
        lost: the rank that was missing there.
        awaits: the rank that it waits for.
        exchanges: how many exchanges of the group it has begun.
        native: it is in a call of the library's own.
        other: it is not the operation that was asked about, but the group, that it has left.
        freed: it has freed the group, and nothing had ended that before.
    """

    left: str = ""
    lost: int | None = None
    awaits: int | None = None
    exchanges: int = 0
    native: bool = False
    other: bool = False
    freed: bool = False


class Notice(msgspec.Struct):
    """A rank's notice that it has left an operation, and for want of which rank."""

    rank: int
    operation: int
    text: str
    lost: int | None


class Question(msgspec.Struct):
    """A question about an operation, with the asking rank's own news."""

    operation: int
    told: Notice | None = None


# msgspec crashes where two threads are the first to decode a type: these are made beforehand.
_answer = msgspec.json.Decoder(Answer).decode
_question = msgspec.json.Decoder(Question).decode

Reply = Callable[[int], Answer]
Hear = Callable[[Notice], None]


class Address(NamedTuple):
    """Where a rank listens; an empty host where it cannot."""

    host: str
    port: int


class Addresses:
    """Where each rank of a group listens, in six bytes a rank: its host's number, and its port."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.hosts = list(dict.fromkeys(address.host for address in addresses))
        number_of = {host: number for number, host in enumerate(self.hosts)}
        self._numbers = array("I", (number_of[address.host] for address in addresses))
        self._ports = array("H", (address.port for address in addresses))

    def __getitem__(self, rank: int) -> Address:
        return Address(self.hosts[self._numbers[rank]], self._ports[rank])


class _Listener:
    """Answers for all groups of this process."""

    def __init__(self, host: str) -> None:
        self.groups: dict[bytes, tuple[bytes, Reply, Hear]] = {}
        self.ended: deque[bytes] = deque()
        self.process = os.getpid()
        self.socket = listener(host, 0)
        self.address = Address(*self.socket.getsockname()[:2])
        HiddenThread(self._serve, "mpicoll contact")

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:  # no descriptor is left for a while
                sleep(_PAUSE)
                continue
            # Whatever becomes of an answer, the next question is to have one.
            with connection, suppress(Exception):
                connection.settimeout(_SECONDS / 4)
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        name, nonce = _exactly(connection, _NAME), _exactly(connection, _NONCE)
        key, reply, hear = self.groups[name]
        question = _question(_read(connection, key, nonce))
        if question.told is not None:
            hear(question.told)
        answer = reply(question.operation)
        answer.left = _short(answer.left)
        _write(connection, key, nonce[::-1], msgspec.json.encode(answer))


_listeners: dict[str, _Listener] = {}
_lock = threading.Lock()


def _listening(host: str) -> _Listener:
    """Return this process's listener at a host's address, which stays until the process ends."""
    with _lock:
        host_listener = _listeners.get(host)
        if host_listener is None or host_listener.process != os.getpid():
            host_listener = _listeners[host] = _Listener(host)
        return host_listener


class Contact:
    """The connections by which one rank asks the others of its group and answers them.

    Args:
        exchange: returns every rank's item, in rank order; collective.
        one_host: whether all ranks share a host.
        reply: answers for this rank; called by another thread, as is `hear`.
        hear: takes what another rank tells of its own accord.
    """

    def __init__(
        self, rank: int, exchange: Callable[..., list[tuple[Address, bytes]]], one_host: bool,
        reply: Reply, hear: Hear = lambda notice: None,
    ) -> None:  # fmt: skip
        self.hear = hear
        try:
            self.listener: _Listener | None = _listening(LOOPBACK if one_host else host_address())
        except LaunchError:
            self.listener = None
        local_address = self.listener.address if self.listener else Address("", 0)
        contacts = exchange((local_address, os.urandom(_PROOF)), tuple[Address, bytes])
        self.addresses = Addresses([address for address, _ in contacts])
        self.key = b"".join(random for _, random in contacts[:2])
        self.name = hmac.digest(self.key, b"name", "sha256")[:_NAME]
        if self.listener is not None:
            self.listener.groups[self.name] = self.key, reply, hear

    def close(self, reply: Reply) -> None:
        """Answer for this group by `reply` from now on, until many more have ended."""
        if self.listener is None or self.name not in self.listener.groups:
            return
        groups, ended = self.listener.groups, self.listener.ended
        groups[self.name] = self.key, reply, self.hear
        ended.append(self.name)
        if len(ended) > _MOST_ENDED:
            groups.pop(ended.popleft(), None)

    def ask(self, ranks: Iterable[int], operation: int) -> dict[int, Answer | str]:
        """Return each rank's answer, or in words why there is none."""
        return self._ask_all(list(ranks), Question(operation))

    def tell(self, ranks: Iterable[int], notice: Notice) -> None:
        """Tell ranks something of this one's own accord; those that do not answer are left."""
        notice.text = _short(notice.text)
        self._ask_all(list(ranks), Question(0, notice))

    def _ask_all(self, ranks: Sequence[int], question: Question) -> dict[int, Answer | str]:
        if len(ranks) < 2:
            return {rank: self._ask(rank, question) for rank in ranks}
        answers: dict[int, Answer | str] = {}
        for first in range(0, len(ranks), _AT_ONCE):
            futures = {
                rank: background(partial(self._ask, rank, question), f"mpicoll asks rank {rank}")
                for rank in ranks[first : first + _AT_ONCE]
            }
            answers.update((rank, future.result()) for rank, future in futures.items())
        return answers

    def _ask(self, rank: int, question: Question) -> Answer | str:
        """Return a rank's answer; asks again where it is cut off, as the process may have ended.

        It may also live: on a busy host the other side gives up, too.
        """
        for _ in range(_TIMES if self.addresses[rank].host else 0):
            with suppress(ConnectionError):
                return self._ask_once(rank, question)
        return ""

    def _ask_once(self, rank: int, question: Question) -> Answer | str:
        address = self.addresses[rank]
        try:
            connection = socket.create_connection(address, _SECONDS)
        except ConnectionRefusedError:
            return ENDED
        except ConnectionError:
            raise
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS):
                return ""
            return f"whose node ({address.host}) does not answer"
        nonce = os.urandom(_NONCE)
        with connection:
            try:
                connection.settimeout(_SECONDS)
                connection.sendall(self.name + nonce)
                _write(connection, self.key, nonce, msgspec.json.encode(question))
                return _answer(_read(connection, self.key, nonce[::-1]))
            except ConnectionError:
                raise
            except TimeoutError:
                return SILENT
            except (OSError, ValueError):
                return ""


def _short(text: str) -> str:
    """Return as much of an error's text as can be sent; it may have any characters."""
    return text[:_MOST_TEXT].encode(errors="replace").decode()


def _write(connection: socket.socket, key: bytes, nonce: bytes, text: bytes) -> None:
    proof = hmac.digest(key, nonce + text, "sha256")
    connection.sendall(len(text).to_bytes(2, "little") + proof + text)


def _read(connection: socket.socket, key: bytes, nonce: bytes) -> bytes:
    length = int.from_bytes(_exactly(connection, 2), "little")
    proof, text = _exactly(connection, _PROOF), _exactly(connection, length)
    if not hmac.compare_digest(proof, hmac.digest(key, nonce + text, "sha256")):
        raise ValueError("no rank of this group")
    return text


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data
