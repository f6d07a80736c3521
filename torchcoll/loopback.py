"""Messages of a rank to itself, which gloo cannot carry."""

from __future__ import annotations

from collections import defaultdict, deque

from mpicoll.backend import Array, Request
from mpicoll.errors import Deadlock


class Loopback:
    """The messages of this rank to itself: copied, and matched in order."""

    def __init__(self) -> None:
        self.sent: dict[int, deque[Array]] = defaultdict(deque)
        self.receives: dict[int, deque[_Delivery]] = defaultdict(deque)

    def send(self, x: Array, tag: int) -> Request:
        if self.receives[tag]:
            self.receives[tag].popleft().deliver(x)
        else:
            self.sent[tag].append(x.clone())
        return _Delivery(x, is_done=True)

    def receive(self, x: Array, tag: int) -> Request:
        delivery = _Delivery(x)
        if self.sent[tag]:
            delivery.deliver(self.sent[tag].popleft())
        else:
            self.receives[tag].append(delivery)
        return delivery


class _Delivery:
    """A message from a rank to itself."""

    def __init__(self, x: Array, *, is_done: bool = False) -> None:
        self.x, self.is_done = x, is_done

    def deliver(self, data: Array) -> None:
        self.x.copy_(data)
        self.is_done = True

    def wait(self) -> None:
        if not self.is_done:
            raise Deadlock("this rank waits for a message from itself that it has not sent")

    def test(self) -> bool:
        return self.is_done
