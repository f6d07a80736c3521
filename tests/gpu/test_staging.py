"""Host staging between host arrays, by copies that happen as late as a GPU may make them."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from mpicoll.gpu.natives import staged
from mpicoll.gpu.staging import HostStaging, Mirrors
from mpicoll.interfaces import STAGED, Native, NativeCall, Thunk
from mpicoll.memory.numpy_arrays import NumpyArrays
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
    native = staged(call, NumpyArrays(), Copies(), double)
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
        call, NumpyArrays(), Counted(), lambda given: double(given)._replace(method=method)
    )
    native.run()
    assert len(sources) == downloads + 1
    np.testing.assert_array_equal(out, 2 * x)
    assert native.method is None, "it would run on the arrays of the host"


@pytest.mark.parametrize(
    ("length", "piece", "lengths"),
    [(0, 64, [0]), (20, 64, [8, 8, 4]), (16, 64, [8, 8]), (3, None, [3]), (2, 1, [1, 1])],
)
def test_pieces_cover_an_array_once(length: int, piece: int | None, lengths: list[int]) -> None:
    """Both sides cut alike, and an empty array is one empty piece: messages match."""
    data = np.arange(float(length))
    staging = HostStaging(data, Copies(), piece)
    assert [len(each.host) for each in staging.pieces] == lengths
    staging.start_to_host()
    staging.wait_all()
    np.testing.assert_array_equal(np.concatenate([each.host for each in staging.pieces]), data)
    for each in staging.pieces:
        each.host[...] += 1
    staging.start_all_to_gpu()
    staging.wait_all()
    np.testing.assert_array_equal(data, np.arange(1.0, length + 1))


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


def test_the_next_round_waits_for_what_the_last_one_brought() -> None:
    mirror = Mirrors().for_round(0, Copies())
    target = np.zeros(4)
    staging = HostStaging(target, mirror, None)
    staging.pieces[0].host[...] = 7
    staging.start_all_to_gpu()
    mirror.wait()
    np.testing.assert_array_equal(target, 7)


def test_memory_is_kept_until_it_has_been_copied() -> None:
    """A pool hands freed memory out again at once, though a copy from there is queued."""
    block, free = np.zeros(4), list[object]()

    class Pool(Copies):
        def allocate(self, data: Any) -> Any:
            lent = block[:]
            weakref.finalize(lent, free.append, block)
            return lent

    target = np.zeros(4)
    staging = HostStaging(target, Pool(), None)
    staging.pieces[0].host[...] = 7
    staging.start_all_to_gpu()
    late = staging.events[0]
    assert late is not None
    del staging
    if free:
        block[...] = 9
    late.synchronize()
    np.testing.assert_array_equal(target, 7)


def test_each_piece_is_waited_for_by_itself() -> None:
    staging = HostStaging(np.arange(4.0), Copies(), 16)
    staging.start_to_host()
    staging.wait(1)
    np.testing.assert_array_equal(staging.pieces[0].host, [-1, -1])
    np.testing.assert_array_equal(staging.pieces[1].host, [2, 3])
