"""What is called of CuPy for arrays on a GPU, by a stand-in whose arrays are NumPy's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpicoll.backend import SYMMETRIC
from mpicoll.gpu.natives import queued
from mpicoll.gpu.streams import PlanStream
from mpicoll.mpi import arrays as module
from mpicoll.mpi import nccl
from mpicoll.mpi.arrays import MpiArrays
from mpicoll.mpi.staging import CupyCopies
from mpicoll.notation.elements import OPS, user_op


class Device:
    """`cupy.cuda.Device`."""

    current = 0

    def __init__(self, number: int) -> None:
        self.id, self.before = number, 0

    def use(self) -> None:
        Device.current = self.id

    def __enter__(self) -> None:
        self.before, Device.current = Device.current, self.id

    def __exit__(self, *_error: object) -> None:
        Device.current = self.before


class Array:
    """`cupy.ndarray` over a NumPy array."""

    def __init__(self, host: Any, gpu: int = 0) -> None:
        self.host, self.gpu = host, gpu
        self.data = SimpleNamespace(
            ptr=host.ctypes.data, device_id=gpu, copy_from_device_async=self._copy_from
        )
        self.shape, self.dtype, self.nbytes = host.shape, host.dtype, host.nbytes
        self.flags = SimpleNamespace(c_contiguous=host.flags.c_contiguous)
        self.copied: list[tuple[int, int, int]] = []

    @property
    def device(self) -> Device:
        return Device(self.gpu)

    def __getitem__(self, part: slice) -> Array:
        return Array(self.host[part], self.gpu)

    def _copy_from(self, source: Any, nbytes: int) -> None:
        self.copied.append((source.ptr, nbytes, Device.current))


class Stream:
    """`cupy.cuda.Stream`."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.ptr == other.ptr

    __hash__ = None  # type: ignore[assignment]

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> None:
        """Become the current one, as `cupy.cuda.Stream` does on its own GPU alone."""

    def __exit__(self, *_error: object) -> None:
        pass

    def record(self) -> tuple[str, int]:
        """Return where the event is: the null stream is that of the current GPU."""
        return "event", Device.current

    def wait_event(self, event: tuple[str, int]) -> None:
        WAITED.append((event, Device.current))


WAITED: list[tuple[tuple[str, int], int]] = []
"""The events that streams wait for, and the GPU that was current."""


class Cupy(ModuleType):
    """The module, with what `mpicoll.mpi.arrays` calls of it.

    Attributes:
        calls: the arguments of folds, and the GPU that was current.
    """

    ndarray = Array
    __version__ = "14"

    def __init__(self, gpus: int) -> None:
        super().__init__("cupy")
        self.calls: list[tuple[Sequence[Any], int]] = []
        self.streams = [Stream(0) for _ in range(gpus)]
        self.copied: list[int] = []
        runtime = SimpleNamespace(
            getDeviceCount=lambda: gpus, memcpyDeviceToHost=2, memcpyHostToDevice=1,
            memcpyAsync=lambda *_given: self.copied.append(Device.current),
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            runtime=runtime, Device=Device, get_current_stream=self.current_stream
        )

    def current_stream(self, gpu: int = -1) -> Stream:
        return self.streams[Device.current if gpu < 0 else gpu]

    def add(self, left: Array, right: Array, out: Array) -> None:
        self.calls.append(((left, right, out), Device.current))

    def ElementwiseKernel(self, *_text: str) -> Any:
        return lambda *given: self.calls.append((given, Device.current))

    def empty(self, count: int, dtype: str) -> Array:
        return Array(np.empty(count, dtype), Device.current)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cupy]:
    """A CuPy with two GPUs."""
    made = Cupy(2)
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setattr(Device, "current", 0)
    yield made
    module._gpus.cache_clear()
    module._kernel.cache_clear()


@pytest.mark.parametrize("fused", [False, True])
def test_a_fold_in_place_is_given_the_output_itself(cupy: Cupy, fused: bool) -> None:
    """CuPy copies an operand that shares memory with the output and is another object."""
    whole, other = Array(np.zeros(8, "float32"), gpu=1), Array(np.ones(8, "float32"), gpu=1)
    left, right, out = whole[:4], other[:4], whole[:4]
    arrays = MpiArrays()
    if fused:
        fold = arrays.fuser(OPS["sum"], [left, right], ((0, 1),), out)
    else:
        fold = arrays.folder(OPS["sum"], left, right, out)
    assert fold is not None
    fold()
    ((given, gpu),) = cupy.calls
    assert given[0] is out and given[1] is right and given[2] is out
    assert (gpu, Device.current) == (1, 0), "it runs where its arrays are"


@pytest.mark.parametrize(("uses", "turn", "taken"), [(True, 1, 0), (False, 3, 1)])
def test_a_gpu_that_a_thread_uses_already_stays_its_own(
    cupy: Cupy, uses: bool, turn: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpicoll.gpu.current.uses_gpu", lambda: uses)
    assert MpiArrays().on_gpu(turn).device.id == Device.current == taken


def test_a_run_follows_the_last_one_where_the_callers_stream_is_another(
    cupy: Cupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[tuple[int, int]] = []
    monkeypatch.setattr(
        module.CupyStream, "follow", lambda own, last: followed.append((own.handle, last.handle))
    )
    order = PlanStream(MpiArrays(), Array(np.zeros(1), gpu=1), captures=True)
    for handle in (5, 5, 6):
        cupy.streams[1] = Stream(handle)
        assert order.begin().handle == handle
    assert followed == [(6, 5)]


@pytest.mark.parametrize("ask", ["wait", "test"])
def test_whoever_waits_for_a_started_call_finds_it_on_a_stream_of_its_own(
    cupy: Cupy, ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[tuple[int, int]] = []
    monkeypatch.setattr(
        module.CupyStream, "follow", lambda own, last: followed.append((own.handle, last.handle))
    )
    done: list[int] = []
    call = partial(done.append, 1)
    native = queued(MpiArrays(), Array(np.zeros(1), gpu=1), [call], SYMMETRIC)
    cupy.streams[1] = Stream(5)
    request = native.start()
    cupy.streams[1] = Stream(6)
    getattr(request, ask)()
    assert (done, followed) == ([1], [(6, 5)])


@pytest.mark.parametrize(("capturing", "forked"), [(False, False), (True, False), (False, True)])
def test_memory_of_a_plan_goes_back_after_its_last_run(
    cupy: Cupy, capturing: bool, forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool gives it to the next who asks on the stream on which the plan was made."""
    followed: list[tuple[int, int]] = []
    monkeypatch.setattr(
        module.CupyStream, "follow", lambda own, last: followed.append((own.handle, last.handle))
    )
    cupy.streams[1] = Stream(4)
    order = PlanStream(MpiArrays(), Array(np.zeros(1), gpu=1))
    for handle in (4, 5):
        cupy.streams[1] = Stream(handle)
        order.begin()
    monkeypatch.setattr(Stream, "is_capturing", lambda self: capturing)
    if forked:
        monkeypatch.setattr(os, "getpid", lambda: -1)
    del order
    assert followed == [(5, 4)] + [(4, 5)] * (not capturing and not forked)


# -- a thread whose current GPU is another than that of its arrays -------------------------------


def test_memory_is_taken_where_its_model_lies(cupy: Cupy) -> None:
    made = MpiArrays().empty((4,), "float32", Array(np.zeros(1), gpu=1))
    assert (made.device.id, Device.current) == (1, 0)


def test_a_users_operator_is_called_where_its_operands_lie(cupy: Cupy) -> None:
    x, found = Array(np.zeros(4), gpu=1), []
    op = user_op(lambda left, right: found.append(Device.current) or left)
    with pytest.raises(TypeError):  # the stand-in takes no assignment
        MpiArrays().folder(op, x, x, x)()
    assert (found, Device.current) == ([1], 0)


def test_a_stream_follows_that_of_another_gpu(cupy: Cupy) -> None:
    WAITED.clear()
    first, second = (MpiArrays().current_stream(gpu) for gpu in (0, 1))
    second.follow(first)
    first.follow(second)
    assert WAITED == [(("event", 0), 1), (("event", 1), 0)]


def test_a_copy_on_a_gpu_is_one_of_the_runtime(cupy: Cupy) -> None:
    target, source = (Array(np.zeros(4, "float32"), gpu=1) for _ in range(2))
    MpiArrays().copy(target, source)
    assert (target.copied, Device.current) == ([(source.data.ptr, 16, 1)], 0)


def test_the_description_of_an_array_says_on_which_gpu_it_lies(cupy: Cupy) -> None:
    host = np.zeros((4, 2), "float32")
    describe = MpiArrays().describe
    first, again, other = (describe(Array(host, gpu)) for gpu in (0, 0, 1))
    assert first is not None and first[1:2] + first[3:] == (32, (4, 2))
    assert first == again != other and describe(host) is None
    assert describe(Array(host.T)) is None


@pytest.mark.parametrize("to_host", [True, False])
def test_a_copy_goes_on_the_stream_of_its_array(cupy: Cupy, to_host: bool) -> None:
    host, gpu = np.zeros(4, "float32"), Array(np.zeros(4, "float32"), gpu=1)
    event = CupyCopies().copy(*((host, gpu) if to_host else (gpu, host)))
    assert (event, cupy.copied, Device.current) == (("event", 1), [1], 0)


def test_nccl_connects_the_gpus_of_its_arrays(cupy: Cupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the current one for the communicator's."""
    found: list[int] = []
    library = SimpleNamespace(
        get_unique_id=bytes, NcclCommunicator=lambda *_given: found.append(Device.current)
    )
    monkeypatch.setattr(nccl, "library", lambda: library)
    monkeypatch.setattr(nccl, "_place", lambda gpu: ("here", str(gpu)))
    peers: Any = SimpleNamespace(rank=0, size=1)
    group = nccl.Nccl(peers, MpiArrays(), lambda item, *_kind: [item])
    group._connect(Array(np.zeros(4), gpu=1))
    assert (found, group.gpu, Device.current) == ([1], 1, 0)
