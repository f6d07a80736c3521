"""Which NCCL takes several ranks on one GPU."""

from __future__ import annotations

import pytest

from mpicoll.gpu import nccl


@pytest.mark.parametrize(
    ("version", "variable", "says"),
    [
        (0, "1", "no NCCL is loaded"),
        (22809, "1", "NCCL 2.28.9 needs a GPU of its own for every rank: 2.30"),
        (23203, "0", "NCCL 2.32.3 needs a GPU of its own for every rank, unless NCCL_MULTI_RANK"),
        (23203, "1", None),
    ],
)
def test_sharing(
    version: int, variable: str, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl, "version", lambda: version)
    monkeypatch.setenv(nccl.SHARING, variable)
    assert nccl.why_not_shared().startswith(says) if says else not nccl.why_not_shared()
