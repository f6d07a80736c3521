"""Handlers of signals that raise in a call of a process group."""

from __future__ import annotations

import re

import pytest
from joining import by_hand
from launcher import SUPPORT

pytest.importorskip("torch")
PROGRAM = SUPPORT / "interrupt_backend.py"
SIZE = 3


@pytest.mark.launches
@pytest.mark.parametrize("per_node", [SIZE, 2], ids=["one_node", "nodes"])
def test_a_rank_interrupted_in_a_call_completes_it(
    per_node: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPICOLL_RANKS_PER_NODE", str(per_node))
    processes = by_hand(PROGRAM, size=SIZE)
    ways = re.findall(r"^def (\w+)\(group", PROGRAM.read_text(), re.MULTILINE)
    for rank, process in enumerate(processes):
        lines = re.findall(r"^rank .*: (\w+) (\d+): (.*)$", process.output, re.MULTILINE)
        first = "'late'" if rank == 0 else f"{2.0 * SIZE}"
        expected = f"[{first}, {3.0 * SIZE}, {4.0 * SIZE}]"
        assert lines == [(way, calls, expected) for way in ways for calls in ("0", "1", "12")], (
            process.output
        )
    assert [process.returncode for process in processes] == [0] * SIZE
