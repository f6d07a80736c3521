"""The handles that torch.distributed's calls return, of calls that have run or are queued."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from mpicoll.errors import CollectiveError, RankLost
from mpicoll.machine.waited import Waited
from torchcoll.backend.compiling import uncompiled_methods
from torchcoll.backend.interrupting import postpone_handlers, uninterrupted
from torchcoll.backend.order import Call, Order

_NO_LIMIT = timedelta(0)
_PATIENCE = 1.0
"""Seconds of asking in vain, after which a thread of the group waits for a call."""
_FUTURES = threading.Lock()
"""Held while a call becomes done or is settled, or somebody asks for the future of one."""
_CALLBACKS = threading.local()
"""Whether this thread runs callbacks of a future (`are_run`)."""


@uncompiled_methods
class PendingWork(dist.Work):
    """The handle of a call that runs in its turn.

    Args:
        results: the tensors that hold its results, the value of its future.
        order: the calls of its group.
        missing: names the ranks that keep it waiting.

    Attributes:
        number: in the queue of the channel; 0 where Python runs the call.
        is_done: whether it has run; its result or error is there then.
        max_wait: seconds for which a wait leaves the call to the group's threads; 0 takes it over.
    """

    max_wait = 0.0
    number = 0
    is_done: bool
    error: BaseException | None = None

    def __init__(self, results: Sequence[Any], order: Order, missing: Callable[[], str]) -> None:
        super().__init__()
        self.results, self.order, self.missing = list(results), order, missing
        self.future: Any = None
        self.outcome_future: Any = None

    def settle(self) -> None:
        """Tell who waits for the future of a call that is done."""
        with _FUTURES:
            future, self.future = self.future, None
        if future is None:
            return
        were_run, _CALLBACKS.are_run = are_callbacks_run(), True
        try:
            future.set_result(None)
        finally:
            _CALLBACKS.are_run = were_run

    def get_future(self) -> Any:
        """Return a future with the results, or the error, once the call has run.

        `Future.set_exception` tells Python alone: the reducer of DDP would look for tensors in the
        error, and find none, which ends the process. What a callback raises is an error there, too.
        """
        if are_callbacks_run():
            # Who waits for it there keeps a thread that would settle it.
            self.order.complete(self, 0)
        if self.outcome_future is None:
            self.outcome_future = self._promise().then(self._outcome)
        return self.outcome_future

    def _promise(self) -> Any:
        """Return a future that is set once the call has run."""
        with _FUTURES:
            if self.future is None:
                if self.is_done:
                    return _future(None)
                self.future = torch.futures.Future()
                if self.number:  # a thread of the group attends queued calls in any case
                    self.order.attend(self)
            return self.future

    def _outcome(self, _: Any) -> list[Any]:
        if self.error is not None:
            raise self.error
        return self.results

    @uninterrupted
    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        if not self.is_done:
            postpone_handlers()
            seconds = max(timeout.total_seconds(), 0.0) or self.max_wait
            if not self.order.complete(self, seconds):
                raise dist.DistBackendError(
                    f"a collective was not complete in {seconds:g} s: {self.missing()}"
                )
        if (
            self.outcome_future is not None
            and not self.outcome_future.done()
            and not are_callbacks_run()
        ):
            # Who has waited for a call takes its future to be complete.
            with suppress(Exception):
                self.outcome_future.wait()
        if self.error is not None:
            raise self.error
        return True

    def is_completed(self) -> bool:
        return self.is_done

    def is_success(self) -> bool:
        return self.is_done and self.error is None

    def exception(self) -> BaseException | None:
        return self.error

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[Any]:
        self.wait()
        return self.results


@uncompiled_methods
class IssuedWork(PendingWork):
    """The handle of a call that the channel runs; a thread of the group settles its future.

    Args:
        number: of the call in its queue. The others are those of `PendingWork`.
    """

    polling: Waited | None = None

    def __init__(self, number: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.number = number

    @property
    def error(self) -> BaseException | None:  # type: ignore[override]
        errors = self.order.errors
        if self.number not in errors:
            return None
        error = errors[self.number] = as_torch(errors[self.number])
        return error

    @property
    def is_done(self) -> bool:  # type: ignore[override]
        queue, number = self.order.queue, self.number
        if queue is None:  # the group has been shut down, once all calls had run
            return True
        return queue.completed >= number and (queue.failed != number or number in self.order.errors)

    def is_completed(self) -> bool:
        if self.is_done:
            return True
        self.polling = self.polling or Waited()
        seconds = self.polling.seconds
        if seconds <= _PATIENCE < self.polling.look():
            # Nobody else would find that a rank is missing.
            self.order.attend(self)
        return self.is_done


@uncompiled_methods
class QueuedWork(PendingWork):
    """The handle of a call that Python runs.

    Args:
        call: a function and its arguments. The others are those of `PendingWork`.
    """

    is_done = has_begun = False

    def __init__(self, call: Call, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.call = call

    def perform(self) -> None:
        self.has_begun = True
        try:
            function, *arguments = self.call
            function(*arguments)
        except BaseException as error:
            self.error = as_torch(error)
        finally:
            self.call = ()
            with _FUTURES:
                self.is_done = True


def record_of(title: str, inputs: Sequence[torch.Tensor]) -> Any:
    """Return a context that torch's profiler shows by its title."""
    return torch._C._profiler._RecordFunctionFast(title, list(inputs), {})


def recorded(title: str, inputs: Sequence[torch.Tensor], call: Call) -> Call:
    """Begin a record of the profiler, and return a function that runs a call and ends the record.

    The record ends when it is dropped, too: so nobody but the call may keep it.
    """
    record = record_of(title, inputs)
    record.__enter__()

    def run(function: Callable[..., object], *arguments: Any) -> None:
        try:
            function(*arguments)
        finally:
            record.__exit__(None, None, None)

    return run, *call


def are_callbacks_run() -> bool:
    """Whether this thread runs callbacks of a call's future."""
    return getattr(_CALLBACKS, "are_run", False)


@uncompiled_methods
class DoneWork(PendingWork):
    """The handle of all calls that have run before they returned."""

    is_done = True

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        return True

    def get_future(self) -> Any:
        return _future([])


COMPLETE_WORK = DoneWork([], Order("complete"), str)


def as_torch(error: BaseException) -> BaseException:
    """Return an error as programs for torch.distributed expect it."""
    if isinstance(error, RankLost):
        torch_error: BaseException = dist.DistBackendError(str(error))
    elif isinstance(error, CollectiveError) and not isinstance(error, RuntimeError):
        torch_error = _remade(type(error), error.args)
    else:
        return error
    torch_error.__cause__ = error
    return torch_error


@cache
def _as_runtime_error(kind: Any) -> type[BaseException]:
    """Return a subclass of a class of errors that is a `RuntimeError`, too."""
    members = {"__module__": kind.__module__, "__reduce__": _reduced}
    return type(kind.__name__, (kind, RuntimeError), members)


def _reduced(error: BaseException) -> Any:
    """Tell pickle the parts of an error, as no module has its class: torch.futures pickle it."""
    return _remade, (type(error).__bases__[0], error.args)


def _remade(kind: Any, arguments: tuple[Any, ...]) -> BaseException:
    error_type = _as_runtime_error(kind)
    error: BaseException = error_type.__new__(error_type)
    error.args = arguments
    return error


def _future(result: Any) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(result)
    return future
