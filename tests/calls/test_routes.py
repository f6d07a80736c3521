"""The transport of a call that names none: by the collective and the bytes of a row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mpicoll.backend import CMA, SYMMETRIC
from mpicoll.calls.routes import NEVER, Routes
from mpicoll.notation.contract import COLLECTIVES


def routes(size: int = 2, *, no_cma: str = "") -> Routes:
    shared = SimpleNamespace(no_cma=no_cma)
    nodes = (tuple(range(size)),)
    transport: Any = SimpleNamespace(shared=shared, size=size, nodes=nodes, name="point-to-point")
    return Routes(transport)


def call(name: str, nbytes: int = 0) -> Any:
    return SimpleNamespace(
        collective=COLLECTIVES[name], op=SimpleNamespace(function=None), device="host",
        bytes_per_row=nbytes,
    )  # fmt: skip


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_only_large_messages_that_one_rank_reads_are_fetched(name: str, size: int) -> None:
    group = routes(size)
    fetches = name in ("alltoall", "scatter") or (size == 2 and name in ("allgather", "broadcast"))
    assert (group.fetches_from(call(name)) < NEVER) == fetches
    assert group.check(call(name, 1 << 30), "") == (CMA if fetches else SYMMETRIC)
    assert group.check(call(name, 4096), "") == SYMMETRIC
    assert group.check(call(name, 4096), CMA) == CMA


def test_nothing_is_fetched_where_the_kernel_does_not_allow_it() -> None:
    refused = routes(no_cma="ptrace_scope is 3")
    assert refused.check(call("alltoall", 1 << 30), "") == SYMMETRIC
