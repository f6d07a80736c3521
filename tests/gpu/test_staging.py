"""Host staging between host arrays, by copies that happen as late as a GPU may make them."""

from __future__ import annotations

import os
import random
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpicoll.backend import STAGED, Message, Native, NativeCall, Thunk
from mpicoll.gpu.natives import staged
from mpicoll.gpu.staging import (
    HostStaging,
    Mirrors,
    Pieces,
    cut,
    in_blocks,
    pieces_by_peer,
    receiving,
    sending,
)
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.mpi.staging import StagedMessages
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.elements import OPS


class Late:
    """A copy that is made when it is waited for, as the last moment at which a GPU may."""

    def __init__(self, target: Any, source: Any) -> None:
        self.target, self.source, self.done = target, source, False

    def synchronize(self) -> None:
        if not self.done:
            self.target[...], self.done = self.source, True


class Copies:
    def allocate(self, data: Any) -> Any:
        return np.full_like(data, -1)

    def copy(self, target: Any, source: Any) -> Late:
        return Late(target, source)

    def is_done(self, event: Late) -> bool:
        return event.done


class Streamed(NumpyArrays):
    """Arrays of a GPU with one stream, on which the copies above are made when waited for."""

    is_capturing = False

    def gpu(self, x: Any) -> int:
        return 0

    def current_stream(self, gpu: int) -> Any:
        return self.stream

    @cached_property
    def stream(self) -> Any:
        return SimpleNamespace(is_capturing=lambda: self.is_capturing, use=nullcontext)


def double(call: NativeCall) -> Native:
    """Stand for a library that reads x and writes out."""

    def run() -> None:
        call.out[...] = call.x * 2

    return Native(run, lambda: Later(run), lambda: None)


class Later:
    """A request that is complete from its second test on."""

    def __init__(self, run: Thunk) -> None:
        self.run, self.tests = run, 0

    def test(self) -> bool:
        self.tests += 1
        if self.tests == 2:
            self.run()
        return self.tests >= 2

    def wait(self) -> None:
        while not self.test():
            pass


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_native_collective_runs_on_host_copies(started: bool, in_place: bool) -> None:
    x = np.arange(4.0).reshape(2, 2)
    out = x if in_place else np.zeros((2, 2))
    call = NativeCall(COLLECTIVES["allreduce"], x, out, OPS["sum"], 0, None, in_place, 0)
    native = staged(call, Streamed(), Copies(), double)
    assert native.transport == STAGED
    first: Any = x.copy()
    for expected in (first * 2, first * (4 if in_place else 2)):
        if started:
            before = out.copy()
            request = native.start()
            assert not request.test()
            np.testing.assert_array_equal(out, before)
            request.wait()
            assert request.test()
        else:
            native.run()
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("name", "rank", "downloads"), [("allreduce", 0, 1), ("exscan", 0, 2), ("exscan", 1, 1)]
)
def test_an_output_is_copied_to_the_host_only_where_it_is_to_stay(
    name: str, rank: int, downloads: int
) -> None:
    x, out = np.arange(4.0), np.zeros(4)
    sources: list[Any] = []

    class Counted(Copies):
        def copy(self, target: Any, source: Any) -> Late:
            sources.append(source)
            return super().copy(target, source)

    call = NativeCall(COLLECTIVES[name], x, out, OPS["sum"], 0, None, False, rank)
    method = double(call).run
    native = staged(
        call, Streamed(), Counted(), lambda given: double(given)._replace(method=method)
    )
    native.run()
    assert len(sources) == downloads + 1
    np.testing.assert_array_equal(out, 2 * x)
    assert native.method is None, "it would run on the arrays of the host"


@pytest.mark.parametrize(
    ("length", "piece", "lengths"),
    [(0, 64, [0]), (20, 64, [8, 8, 4]), (16, 64, [8, 8]), (2, 1, [1, 1])],
)
def test_pieces_cover_an_array_once(length: int, piece: int, lengths: list[int]) -> None:
    """Both sides cut alike, and an empty array is one empty piece: messages match."""
    data = np.arange(float(length))
    pieces = cut(data, piece)
    assert [len(each) for each in pieces] == lengths
    np.testing.assert_array_equal(np.concatenate(pieces), data)


def test_messages_of_a_pair_of_ranks_are_one_sequence_of_pieces() -> None:
    a, b, c = (np.full(3, each) for each in (1.0, 2.0, 3.0))
    found = pieces_by_peer([Message(5, a), Message(4, b), Message(5, c)], 16)
    assert [each.tolist() for each in found[5]] == [[1, 1], [1], [3, 3], [3]]
    assert list(found) == [5, 4]


class Wire:
    """Messages in order between one that sends and one that receives, which must both have come.

    A test of either may be the one that moves the data.
    """

    def __init__(self) -> None:
        self.sent: deque[list[Any]] = deque()
        self.wanted: deque[list[Any]] = deque()

    def post(self, queue: deque[list[Any]], host: Any) -> Callable[[], bool]:
        entry = [host, False]
        queue.append(entry)

        def test() -> bool:
            while self.sent and self.wanted:
                source, target = self.sent.popleft(), self.wanted.popleft()
                target[0][...] = source[0]
                source[0][...] = -7  # MPI no longer needs it
                source[1] = target[1] = True
            return bool(entry[1])

        return test


@pytest.mark.parametrize("blocks", [2, 3, 8])
@pytest.mark.parametrize("count", [1, 2, 7, 30])
@pytest.mark.parametrize("seed", range(5))
def test_a_few_blocks_carry_a_message_of_any_length(count: int, blocks: int, seed: int) -> None:
    """Whichever side is ahead, and as late as copies may be made."""
    chance = random.Random(seed)
    source, target = np.arange(4.0 * count - 1), np.full(4 * count - 1, -1.0)
    wire, depth = Wire(), min(blocks, count)
    ends = []
    copies: list[Late] = []
    for data, steps, queue in (
        (source, sending, wire.sent),
        (target, receiving, wire.wanted),
    ):
        block = [np.full(4, -1.0) for _ in range(depth)]
        gpu = cut(data, 32)
        host = [block[number % depth][: len(each)] for number, each in enumerate(gpu)]
        pieces = Pieces(0, gpu, host, depth)

        def copy(to: Any, of: Any) -> Callable[[], bool]:
            late = Late(to, of)

            def test() -> bool:
                if chance.random() < 0.5:
                    late.synchronize()
                return late.done

            copies.append(late)
            return test

        def post(number: int, pieces: Any = pieces, queue: Any = queue) -> Callable[[], bool]:
            return wire.post(queue, pieces.host[number])

        ends.append(steps(pieces, copy, post))
    lanes = StagedMessages([lambda each=each: each for each in ends])
    lanes.start()
    for _ in range(100 * count):
        if lanes.test():
            break
    assert lanes.test()
    for each in copies:
        each.synchronize()
    np.testing.assert_array_equal(target, source)


def test_rounds_of_a_plan_use_the_same_memory_in_turn() -> None:
    allocated: list[int] = []

    class Counted(Copies):
        def allocate(self, data: Any) -> Any:
            allocated.append(len(data))
            return super().allocate(data)

    mirrors, plan, copies = Mirrors(), [], Counted()
    for lengths in ([8, 8], [4, 8], [6]):
        mirror = mirrors.for_round(5, copies)
        hosts = [mirror.allocate(np.zeros(length)) for length in lengths]
        assert [len(each) for each in hosts] == lengths
        assert not np.shares_memory(hosts[0], hosts[-1]) or len(hosts) == 1
        plan += [mirror, *hosts]
    assert allocated == [8, 8]
    mirrors.for_round(6, copies).allocate(np.zeros(3))
    of_users = [mirrors.for_round(-1, copies).allocate(np.zeros(2)) for _ in range(2)]
    assert not np.shares_memory(*of_users)
    assert allocated == [8, 8, 3, 2, 2]


@pytest.mark.parametrize(("peers", "blocks"), [(1, 16), (2, 8), (3, 5), (10, 4)])
def test_a_round_locks_a_few_pieces_whatever_its_messages(peers: int, blocks: int) -> None:
    given = {peer: cut(np.zeros(1000), 80) for peer in range(peers)}
    mirror = Mirrors().for_round(1, Copies())
    receives, sends = in_blocks(mirror, given, {})
    assert [(each.depth, each.is_long, len(each.host)) for each in receives] == [
        (blocks, True, 100)
    ] * peers
    assert not sends
    assert sum(map(len, mirror.blocks)) == peers * blocks * 10
    assert np.shares_memory(receives[0].host[0], receives[0].host[blocks])
    assert not np.shares_memory(receives[0].host[0], receives[-1].host[1])
    _, (short,) = in_blocks(Mirrors().for_round(1, Copies()), {}, {0: cut(np.zeros(13), 80)})
    assert [len(each) for each in short.host] == [10, 3]
    assert not short.is_long


def test_the_next_round_waits_for_what_the_last_one_brought() -> None:
    mirror = Mirrors().for_round(0, Copies())
    target = np.zeros(4)
    mirror.copy(target, np.full(4, 7.0))
    mirror.wait()
    np.testing.assert_array_equal(target, 7)


@pytest.mark.parametrize("by_mirror", [False, True])
def test_memory_is_kept_until_it_has_been_copied(by_mirror: bool) -> None:
    """A pool hands freed memory out again at once, though a copy from there is queued."""
    block, free = np.zeros(4), list[object]()

    class Pool(Copies):
        def allocate(self, data: Any) -> Any:
            lent = block[:]
            weakref.finalize(lent, free.append, block)
            return lent

        def copy(self, target: Any, source: Any) -> Late:
            return Late(target, source[:])  # a GPU knows an address, and keeps nothing

    target = np.zeros(4)
    if by_mirror:
        mirror = Mirrors().for_round(0, Pool())
        host = mirror.allocate(target)
        host[...] = 7
        late: Any = mirror.copy(target, host)
        del mirror, host
    else:
        staging = HostStaging(target, Pool())
        staging.host[...] = 7
        staging.start_to_gpu()
        (late,) = staging.last
        del staging
    if free:
        block[...] = 9
    late.synchronize()
    np.testing.assert_array_equal(target, 7)


@pytest.mark.parametrize("forked", [False, True])
def test_a_forked_child_asks_nothing_of_the_gpu(
    forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA is its parent's, and an error while memory goes would be printed."""
    asked: list[object] = []
    event = SimpleNamespace(synchronize=lambda: asked.append(None))
    copies: Any = SimpleNamespace(allocate=np.empty_like, copy=lambda *_given: event)
    staging = HostStaging(np.zeros(4), copies)
    staging.start_to_gpu()
    if forked:
        monkeypatch.setattr(os, "getpid", lambda: -1)
    del staging
    assert bool(asked) != forked
