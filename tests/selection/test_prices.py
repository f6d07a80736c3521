"""The cost model chooses: the cheapest of the candidates is what ``auto`` runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_collective import device

from mpicoll import Collectives
from mpicoll.selection import pricing

pytestmark = [pytest.mark.ranks(3), pytest.mark.threads_only]


@pytest.fixture(params=["one_shot", "recursive_doubling", "two_shot"])
def cheapest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The candidate that costs less than all others."""

    def price(algorithm: Any, *_: Any) -> float:
        return 1.0 if str(algorithm) == request.param else 2.0

    monkeypatch.setattr(pricing, "price", price)
    return str(request.param)


def test_auto_takes_the_cheapest(c: Collectives, cheapest: str) -> None:
    with c.plan("allreduce", device(c, np.ones(4), "int64")) as plan:
        assert plan.algorithm == cheapest
