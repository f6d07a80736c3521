"""The transport of a call that names none: by the collective and the bytes of a row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mpicoll.backend import CMA, SYMMETRIC
from mpicoll.calls.routes import NEVER, Routes
from mpicoll.notation.contract import COLLECTIVES


def routes(size: int = 2, *, shares_cores: bool = False, no_cma: str = "") -> Routes:
    policy = SimpleNamespace(oversubscribed=shares_cores)
    shared = SimpleNamespace(no_cma=no_cma, wait_policy=policy)
    nodes = (tuple(range(size)),)
    transport: Any = SimpleNamespace(shared=shared, size=size, nodes=nodes, name="point-to-point")
    return Routes(transport)


def call(name: str, nbytes: int = 0) -> Any:
    return SimpleNamespace(
        collective=COLLECTIVES[name], op=SimpleNamespace(function=None), device="host",
        bytes_per_row=nbytes,
    )  # fmt: skip


@pytest.mark.parametrize("shares_cores", [False, True])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_only_large_rows_of_which_one_rank_reads_one_are_fetched(
    name: str, shares_cores: bool
) -> None:
    group = routes(shares_cores=shares_cores)
    fetches = name in ("alltoall", "scatter")
    assert (group.fetches_from(call(name)) < NEVER) == fetches
    assert group.check(call(name, 1 << 30), "") == (CMA if fetches else SYMMETRIC)
    assert group.check(call(name, 4096), "") == SYMMETRIC
    assert group.check(call(name, 4096), CMA) == CMA


def test_ranks_that_share_cores_fetch_smaller_rows() -> None:
    own, shared = routes(), routes(shares_cores=True)
    assert shared.fetches_from(call("alltoall")) < own.fetches_from(call("alltoall"))


def test_nothing_is_fetched_where_the_kernel_does_not_allow_it() -> None:
    refused = routes(no_cma="ptrace_scope is 3")
    assert refused.check(call("alltoall", 1 << 30), "") == SYMMETRIC
