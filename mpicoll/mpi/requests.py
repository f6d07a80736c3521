"""MPI requests: those of a plan, freed with it, and those under way.

Its counterpart is `torchcoll.requests`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from mpicoll.interfaces import Thunk


class Resources:
    """Persistent requests and operators of a plan: MPICH reports each one that is leaked."""

    def __init__(self) -> None:
        self.requests: list[MPI.Prequest] = []
        self.ops: list[MPI.Op] = []
        self._finalizer = weakref.finalize(self, _free, self.requests, self.ops)

    def add(self, request: MPI.Prequest) -> MPI.Prequest:
        """Return a request, which is freed with the plan."""
        self.requests.append(request)
        return request

    def free(self) -> None:
        """Free all of them."""
        self._finalizer()

    def kept_by(self, run: Thunk) -> Thunk:
        """Return `run`, which keeps the operators as long as it exists, where there are any."""
        return run if not self.ops else lambda: (run(), self)


def _free(requests: list[MPI.Prequest], ops: list[MPI.Op]) -> None:
    if not MPI.Is_finalized():
        for request in requests:
            request.Free()
        for op in ops:
            op.Free()
    requests.clear()
    ops.clear()


class StartedRequest:
    """A request under way.

    Args:
        request: of MPI, or of this project.
        kept: what must exist until it is complete, such as its buffer.
        after: what follows it.
    """

    def __init__(self, request: Any, kept: object, after: Sequence[Thunk] = ()) -> None:
        self.request, self.kept, self.after = request, kept, after

    def wait(self) -> None:
        wait: Callable[[], Any] = getattr(self.request, "Wait", None) or self.request.wait
        wait()
        self._finish()

    def test(self) -> bool:
        test: Callable[[], bool] = getattr(self.request, "Test", None) or self.request.test
        done = test()
        if done:
            self._finish()
        return done

    def _finish(self) -> None:
        after, self.after = self.after, ()
        for thunk in after:
            thunk()
