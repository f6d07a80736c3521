"""The backend for torch.distributed: registered, right in its calls and under torch's wrappers."""

from __future__ import annotations

import pickle
import re
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread, Timer
from time import monotonic, sleep
from typing import Any

import pytest
from joining import by_hand
from launcher import ROOT, mpirun, python, ranks

from mpicoll.errors import Disagreement

pytest.importorskip("torch")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node")
SUPPORT = Path(__file__).parent.parent / "support"


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which torch finds the entry point, also beside a mere checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry = project["entry-points"]["torch.backends"]["torchcoll"]
    metadata = tmp_path / "mpicoll-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mpicoll\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(f"[torch.backends]\ntorchcoll = {entry}\n")
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


def check(printed: Sequence[str]) -> None:
    """Fail unless each rank, whose lines are given, has passed all checks."""
    checks = re.findall(r"^def (check_\w+)", (SUPPORT / "check_backend.py").read_text(), re.M)
    for rank, lines in enumerate(printed):
        assert re.findall(rf"rank {rank}: ok (\w+)", lines) == checks, lines


@pytest.mark.launches
def test_calls_over_gloo() -> None:
    found = by_hand(SUPPORT / "check_backend.py", "torchcoll", size=3)
    check([each.output for each in found])
    assert [each.returncode for each in found] == [0, 0, 0]


@pytest.mark.launches
@pytest.mark.skipif(not mpirun(), reason="no mpirun")
def test_calls_over_mpi() -> None:
    """They meet through MPI: no variable of torch's is set. The group is destroyed in the end."""
    environment = {"PYTHONPATH": str(ROOT)}
    program = str(SUPPORT / "check_backend.py")
    done = ranks(2, program, "mpicoll", "destroy", environment=environment)
    check([done.stdout] * 2)
    assert done.returncode == 0


@pytest.mark.launches
def test_torch_trains_as_over_gloo() -> None:
    first, second = by_hand(SUPPORT / "train.py", size=2)
    assert (first.returncode, second.returncode) == (0, 0), f"{first.output}\n{second.output}"
    programs = re.findall(r"^    (\w+(?:, \w+)+),$", (SUPPORT / "train.py").read_text(), re.M)[-1]
    assert re.findall(r"^(\w+) \d\.\de", first.output, re.M) == programs.split(", ")


SOME = "all_reduce_sum|all_gather|reduce_sum|broadcast|scatter|all_to_all_single_unequal_split"


@pytest.mark.launches
def test_some_of_the_suite_of_torch_passes() -> None:
    """`tests/support/torch_suite.py` runs all of it, beside stock gloo."""
    pytest.importorskip("expecttest")
    command = str(SUPPORT / "torch_suite.py"), "--columns", "ours", "--tests", rf"test_({SOME})$"
    done = python(*command, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout
    assert re.search(r"^ok +6$", done.stdout, re.M), done.stdout


@pytest.mark.launches
def test_an_unmodified_program_runs_over_ours(installed: dict[str, str], tmp_path: Path) -> None:
    """Its backend is gloo, its ranks are processes that it starts itself."""
    program = str(SUPPORT / "spawning.py"), str(tmp_path / "store")
    environment = {**installed, "MPICOLL_TRACE": str(tmp_path / "trace.jsonl")}
    done = python("-m", "torchcoll.run", *program, environment=environment)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("MPICOLL_TRACE: mpicoll.run writes it, torchcoll.run does not") == 1
    assert sorted(re.findall(r"rank .*", done.stdout)) == [
        "rank 0: gloo torchcoll.backend.group", "rank 1: gloo torchcoll.backend.group",
    ]  # fmt: skip


@pytest.mark.launches
def test_groups_join_processes_with_worlds_of_their_own() -> None:
    """Before there is a default group, and beside one of a single process."""
    command = *TORCHRUN, "2", "-m", "torchcoll.run", "-v", str(SUPPORT / "across_worlds.py")
    done = python(*command, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout
    ours = "torchcoll over gloo"
    assert sorted(re.findall(r"rank \d: torchcoll.*", done.stdout)) == [
        f"rank {rank}: {ours}, 2 ranks in shared memory; {ours}" for rank in range(2)
    ]
    notice = "torchcoll.run: torchcoll takes the place of gloo in every process group"
    assert done.stdout.count(notice) == 1


IMPORT = """
import sys, torch
print(torch.distributed.Backend("torchcoll") in torch.distributed.Backend.backend_list)
print(*(name for name in ("mpicoll", "mpi4py", "torchcoll.launch") if name in sys.modules))
"""


def test_importing_torch_registers_it_and_imports_nothing_more(installed: dict[str, str]) -> None:
    done = python("-P", "-c", IMPORT, environment=installed)
    assert done.stdout.split() == ["True"], done.stdout


SHARDED = """
import torch, torch.distributed as dist
from torch.distributed._shard import sharded_tensor, sharding_spec
from torchcoll.backend.registration import register
register()
dist.init_process_group("torchcoll", store=dist.HashStore(), rank=0, world_size=1)
spec = sharding_spec.ChunkShardingSpec(0, ["rank:0/cpu"])
out = torch.zeros(3)
sharded_tensor.ones(spec, 3).gather(0, out)
print(out.tolist())
"""


@pytest.mark.skipif("__import__('torch').backends.cuda.is_built()", reason="this torch has CUDA")
def test_a_torch_without_cuda_is_not_asked_for_a_gpu() -> None:
    """ShardedTensor takes one for its calls, where it does not know the backend by name."""
    done = python("-c", SHARDED, environment={"PYTHONPATH": str(ROOT)})
    assert done.stdout.splitlines()[-1] == "[1.0, 1.0, 1.0]", done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "name a program"), (("nothing.py",), "no file 'nothing.py'"), (("-x",), "neither")],
)
def test_a_program_that_is_not_there_is_refused(arguments: tuple[str, ...], said: str) -> None:
    done = python("-m", "torchcoll.run", *arguments)
    assert done.returncode == 2
    assert said in done.stdout and "Traceback" not in done.stdout


def test_a_bad_choice_is_refused_before_the_program_starts() -> None:
    choice = {"TORCHCOLL_ALGORITHM": "allreduce=rnig"}
    done = python("-m", "torchcoll.run", __file__, environment=choice)
    assert done.returncode == 2
    assert "did you mean 'ring'" in done.stdout and "Traceback" not in done.stdout


def test_the_order_is_that_of_issue() -> None:
    """Whoever runs a call: the thread, a wait, or a call that blocks."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import QueuedWork

    order, found = Order("test"), list[int]()
    works = []
    for index in range(200):
        work = QueuedWork((found.append, index), [], order, str)
        order.add(work)
        works.append(work)
        if index % 50 == 9:
            order.run(found.append, -index)
            assert found[-2:] == [index, -index]
    works[-1].wait()
    assert [each for each in found if each >= 0] == list(range(200))
    order.stop()


def test_a_rank_that_does_not_come_is_named_before_mpi_waits_for_it() -> None:
    """And whoever has given up is not taken to be there."""
    import torch.distributed as dist

    from mpicoll.errors import RankLost
    from torchcoll.backend.opening import wait_for_all

    store = dist.HashStore()
    for rank, other in ((0, 1), (1, 0)):
        with pytest.raises(RankLost, match=f"rank {other} did not come .* timeout of 0.05 s"):
            wait_for_all(store, rank, 2, 0.05)
    store.set("torchcoll/here/1", "")
    wait_for_all(store, 0, 2, 5)


def test_threads_of_two_ranks_open_groups_in_any_order() -> None:
    """Each rank has one client of the store, for all its threads."""
    import torch.distributed as dist

    from torchcoll.backend.opening import wait_for_all

    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    clients = [dist.TCPStore("127.0.0.1", own.port, wait_for_workers=False) for _ in range(2)]

    def come(rank: int, group: str) -> None:
        wait_for_all(dist.PrefixStore(group, clients[rank]), rank, 2, 60)

    with ThreadPoolExecutor(4) as threads:
        begun = [threads.submit(come, rank, group) for rank, group in ((0, "a"), (1, "b"))]
        own.wait(["a/torchcoll/here/0", "b/torchcoll/here/1"])
        begun += [threads.submit(come, rank, group) for rank, group in ((0, "b"), (1, "a"))]
        for each in begun:
            each.result()


def test_an_error_is_raised_where_a_work_is_waited_for() -> None:
    from mpicoll.errors import RankLost
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import QueuedWork

    def fail() -> None:
        raise RankLost("rank 3 has ended")

    order = Order("test")
    work = QueuedWork((fail,), [], order, str)
    future = work.get_future()
    order.add(work)
    with pytest.raises(RuntimeError, match="rank 3 has ended"):
        work.wait()
    with pytest.raises(RuntimeError, match="rank 3 has ended"):
        future.wait()
    assert work.is_completed() and not work.is_success()
    order.stop()


def test_who_asks_whether_a_work_is_complete_learns_that_a_rank_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mpicoll.errors import RankLost
    from torchcoll.backend import works
    from torchcoll.backend.order import Order

    class Queue:
        """Has one call under way, which only a wait ends."""

        completed, failed, issued, held = 0, 0, 1, False

        def complete(self, number: int) -> bool:
            self.completed = self.failed = number
            raise RankLost("rank 3 did not come")

    order = Order("test")
    order.queue = Queue()  # type: ignore[assignment]
    work = works.IssuedWork((print,), [], order, str)
    work.number = 1
    order._issued.append(work)
    assert not work.is_completed()
    monkeypatch.setattr(works, "_PATIENCE", 0.05)
    while not work.is_completed():
        sleep(0.01)
    assert "rank 3 did not come" in str(work.exception()) and not work.is_success()
    order.stop()


def test_a_future_is_there_however_soon_the_call_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reducer of DDP ends the process where it gets None, as it asks in C++."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import IssuedWork

    class Queue:
        """Has one call under way."""

        completed, failed, issued, held = 0, 0, 1, False

    order = Order("test")
    order.queue = queue = Queue()  # type: ignore[assignment]
    settled = Event()
    work = IssuedWork((print,), [], order, str)
    work.number = 1

    def settle() -> None:
        queue.completed = 1
        work.settle()
        settled.set()

    def attend(call: object) -> None:
        """Give the thread that settles futures time to do so before the caller goes on."""
        Thread(target=settle, daemon=True).start()
        settled.wait(0.2)

    monkeypatch.setattr(order, "attend", attend)
    future = work.get_future()
    assert settled.wait(60) and future.wait() == []
    assert work.get_future().wait() == []


def test_arguments_of_groups_go_by_their_names() -> None:
    from torch.distributed import distributed_c10d as c10d

    from torchcoll.backend.group import _options

    assert _options(c10d.BroadcastOptions, None, (), {"root": 1}).rootRank == 1
    assert _options(c10d.ReduceOptions, 2, (c10d.ReduceOp.MAX,)).rootRank == 2
    with pytest.raises(TypeError, match=r"async_op is no argument .* op, root, timeout"):
        _options(c10d.BroadcastOptions, None, (), {"async_op": True})


def value_of(future: Any) -> Any:
    """Return the value of a future, once it has one."""
    end = monotonic() + 60
    while not future.done() and monotonic() < end:
        sleep(0.01)
    assert future.done()
    return future.value()


def test_a_callback_waits_for_the_future_of_a_call_that_it_makes() -> None:
    """As PowerSGD's do, in the thread that would settle that future."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import QueuedWork

    order, may_run = Order("test"), Event()

    def call_again(_: object) -> list[int]:
        inner = QueuedWork((lambda: None,), [2], order, str)
        order.add(inner)
        found: list[int] = inner.get_future().wait()
        return found

    outer = QueuedWork((may_run.wait,), [1], order, str)
    order.add(outer)
    future = outer.get_future().then(call_again)
    may_run.set()
    assert value_of(future) == [2]
    order.stop()


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_a_callback_waits_for_the_future_of_a_call_that_was_issued_before(
    is_waited_for: bool,
) -> None:
    """Whoever runs the callback, which keeps his thread."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import QueuedWork

    order, may_run = Order("test"), Event()
    first = QueuedWork((may_run.wait,), [1], order, str)
    second = QueuedWork((may_run.wait,), [2], order, str)
    later = second.get_future()
    future = first.get_future().then(lambda _: later.wait())
    waiting = Thread(target=first.wait, daemon=True)
    if is_waited_for:
        waiting.start()
    order.add(first)
    order.add(second)
    may_run.set()
    assert value_of(future) == [2]
    order.stop()


def test_who_has_waited_for_a_call_has_its_future() -> None:
    """Though another thread is late to settle it."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import IssuedWork

    class Queue:
        """Has one call, which a wait runs."""

        completed, failed, issued, held = 0, 0, 1, False

        def complete(self, number: int) -> bool:
            self.completed = number
            return True

    order = Order("test")
    order.queue = Queue()  # type: ignore[assignment]
    order.attend = lambda call: Timer(0.2, call.settle).start()  # type: ignore[method-assign]
    work = IssuedWork((print,), [3], order, str)
    work.number = 1
    future = work.get_future()
    assert not future.done() and work.wait() and future.done() and future.value() == [3]


def test_two_threads_that_ask_at_once_start_those_that_serve_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others would stay for ever, and who ends the group would wait for them."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import QueuedWork

    order = Order("test")
    start, started, second = order._start, list[None](), Event()

    def start_slowly() -> None:
        started.append(None)
        if len(started) > 1:
            second.set()
        second.wait(0.2)
        start()

    monkeypatch.setattr(order, "_start", start_slowly)
    works = [QueuedWork((Event().is_set,), [], order, str) for _ in range(2)]
    asking = [Thread(target=order.add, args=(work,)) for work in works]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert all(work.wait() for work in works) and len(started) == 1
    order.stop()


def test_a_call_that_has_failed_is_not_done_before_its_error_is_known() -> None:
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import IssuedWork

    class Queue:
        completed, failed, issued = 2, 2, 2

    order = Order("test")
    order.queue = Queue()  # type: ignore[assignment]
    first, second = (IssuedWork((print,), [], order, str) for _ in range(2))
    first.number, second.number = 1, 2
    assert first.is_done and not second.is_done
    second.fail(Disagreement("collective differs"))
    assert second.is_done and not second.is_success()


def test_calls_that_wait_for_python_go_before_those_of_a_queue_that_opens_meanwhile() -> None:
    """The first call of a group opens it, in the middle of which others are issued."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import QueuedWork

    class Queue:
        completed, failed, issued, held = 0, 0, 0, False

    order, queue, opened, issued = Order("test"), Queue(), Event(), Event()

    def open_queue() -> None:
        order.begin(queue)  # type: ignore[arg-type]
        opened.set()
        assert issued.wait(60)

    works = [QueuedWork((call,), [], order, str) for call in (open_queue, print)]
    for work in works:
        order.add(work)
    assert opened.wait(60) and queue.held
    issued.set()
    works[1].wait()
    with order.turn:
        assert not queue.held
    order.stop()


def test_an_error_belongs_to_the_call_that_it_has_ended() -> None:
    """The progress thread may have completed the next one before Python sees the error."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import IssuedWork

    class Queue:
        completed, failed, issued, held = 0, 0, 2, False

        def complete(self, number: int) -> bool:
            if not self.issued:
                raise KeyboardInterrupt
            self.failed, self.completed = 1, 2
            raise Disagreement("collective differs")

    order = Order("test")
    order.queue = queue = Queue()  # type: ignore[assignment]
    works = [IssuedWork((print,), [], order, str) for _ in range(3)]
    for number, work in enumerate(works, 1):
        work.number = number
        order._issued.append(work)
    with pytest.raises(Disagreement):
        works[0].wait()
    assert works[1].wait() and works[1].is_success()
    queue.issued = 0
    with pytest.raises(KeyboardInterrupt):  # which has ended none of them
        works[2].wait()
    assert works[2].error is None and not works[2].is_completed()


def test_a_group_ends_while_its_thread_asks_for_more() -> None:
    """What a future calls may issue the next call, when the thread has been told to end."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import QueuedWork

    order, begun, ending = Order("test"), Event(), Event()
    later = QueuedWork((print,), [], order, str)

    class Last(QueuedWork):
        is_done = True

        def settle(self) -> None:
            begun.set()
            assert ending.wait(60)
            order.add(later)

    order.attend(Last((print,), [], order, str))
    assert begun.wait(60)
    stopping = Thread(target=order.stop)
    stopping.start()
    while order._threads:
        sleep(0.001)
    ending.set()
    stopping.join(60)
    assert not stopping.is_alive() and later.wait()
    order.stop()


def test_a_future_tells_of_an_interrupt() -> None:
    """What torch's futures take as an error is an `Exception` only."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import QueuedWork

    def interrupted() -> None:
        raise KeyboardInterrupt

    order = Order("test")
    work = QueuedWork((interrupted,), [], order, str)
    future = work.get_future()
    order.add(work)
    for told in (future, work.get_future()):
        with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
            told.wait()
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    order.stop()


@pytest.mark.parametrize("is_late", [False, True])
def test_an_interrupt_between_two_queued_calls_loses_none(is_late: bool) -> None:
    """Before the first one has begun, or once it is done."""
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import QueuedWork

    class Interrupted(QueuedWork):
        interrupts = 1

        def interrupt(self) -> None:
            if self.interrupts:
                self.interrupts = 0
                raise KeyboardInterrupt

        def perform(self) -> None:
            if not is_late:
                self.interrupt()
            super().perform()
            self.interrupt()

    order, ran = Order("test"), list[int]()
    works = [kind((ran.append, number), [], order, str)
             for number, kind in enumerate((Interrupted, QueuedWork))]  # fmt: skip
    order._queued.extend(works)
    with pytest.raises(KeyboardInterrupt):
        works[1].wait()
    assert works[1].wait() and works[0].wait() and ran == [0, 1]


def test_a_call_that_a_handler_of_a_signal_makes_within_another_runs_after_the_issued_ones() -> (
    None
):
    from torchcoll.backend.order import Order
    from torchcoll.backend.works import QueuedWork

    order, ran = Order("test"), list[int]()

    def interrupted() -> None:
        order.run(ran.append, 2)
        ran.append(0)

    calls = (interrupted,), (ran.append, 1)
    works = [QueuedWork(call, [], order, str) for call in calls]
    order._queued.extend(works)
    assert works[0].wait() and works[1].wait() and ran == [1, 2, 0]


FAILS = """
import torch, torch.distributed as dist
from torchcoll.backend.registration import register
from torchcoll.backend.works import QueuedWork

def fail():
    raise ConnectionError("rank 3 has ended")

def allreduce(group, *_):
    work = QueuedWork((fail,), [], group.order, str)
    group.order.add(work)
    return work

register()
dist.init_process_group("torchcoll", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
type(dist.group.WORLD).allreduce = allreduce
try:
    model(torch.ones(2)).sum().backward()
except RuntimeError as error:
    print(error)
"""


def test_a_step_of_ddp_ends_by_the_error_of_its_call() -> None:
    """C++ waits for the future there, and ends the process where an error is taken for tensors."""
    done = python("-c", FAILS, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and "rank 3 has ended" in done.stdout, done.stdout


def test_errors_of_ours_are_pickled() -> None:
    """A hook of DDP ends in a future, and torch pickles the error of one."""
    from torchcoll.backend.works import as_torch

    told = as_torch(Disagreement("collective differs"))
    again = pickle.loads(pickle.dumps(told))
    assert isinstance(told, RuntimeError) and type(again) is type(told) is not Disagreement
    assert again.args == told.args == ("collective differs",)
