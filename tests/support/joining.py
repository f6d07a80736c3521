"""Processes that join one group over torch.distributed, started one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forked import Forked, forked
from launcher import ROOT, SUPPORT, free_port

from mpicoll.machine.launchers import LAUNCHERS

CHILD = str(SUPPORT / "launch_child.py")
KEY = b"k" * 32
"""The secret of a run."""
SOON = 100.0
"""Seconds: less than the 300 for which ranks wait for each other."""
_VARIABLES = [name for each in LAUNCHERS for name in each[1:] if name]


def forget_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove from the environment what the launcher of the tests themselves has set."""
    for name in [*_VARIABLES, "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def told(output: str) -> list[dict[str, Any]]:
    """Return what the ranks said, in rank order."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return sorted(lines, key=lambda each: each["rank"])


def together(
    options: list[dict[str, Any]], environments: list[dict[str, str]] | None = None
) -> list[tuple[int, str]]:
    """Start one process per entry at once; return exit codes and outputs."""
    environments = environments or [{}] * len(options)
    processes = [
        forked(CHILD, json.dumps(given), environment=own)
        for given, own in zip(options, environments, strict=True)
    ]
    outputs = [each.wait() for each in processes]
    return [(each.returncode, output) for each, output in zip(processes, outputs, strict=True)]


def by_hand(script: Path | str, *arguments: str, size: int) -> list[Forked]:
    """Run a script on ranks that nobody launches together or ends, and wait for their ends."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
             "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}  # fmt: skip
    started = [
        forked(script, *arguments, environment={**place, "RANK": str(rank)}) for rank in range(size)
    ]
    for each in started:
        each.wait()
    return started
