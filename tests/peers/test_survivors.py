"""The ranks that are left of a group go on; the training loop of torchcoll's README does."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import QUIRKS, ROOT

import mpicoll
from mpicoll import Unavailable

pytestmark = pytest.mark.launches
SIZE, VICTIM = 3, 0
"""The victim holds the store of the launch."""
PLANTED = """
    step += 1
    import os, signal
    if step == 40 and os.environ["RANK"] == "{victim}":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_training_loop_goes_on_without_a_rank(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = (ROOT / "torchcoll" / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?c\.shrink\(\).*?)```", text, re.DOTALL)
    planted = example.replace("\n    step += 1\n", PLANTED.format(victim=VICTIM))
    assert planted != example
    script = tmp_path / "train.py"
    script.write_text(planted)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, str(script)], cwd=ROOT, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **QUIRKS, "RANK": str(rank), "WORLD_SIZE": str(SIZE),
                 "LOCAL_WORLD_SIZE": str(SIZE), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(port)},
        )
        for rank in range(SIZE)
    ]  # fmt: skip
    said = [each.communicate(timeout=200)[0] for each in started]
    left = [rank for rank in range(SIZE) if rank != VICTIM]
    assert [each.returncode for each in started] == [-9 if r == VICTIM else 0 for r in range(SIZE)]
    for new, rank in enumerate(left):
        assert f"rank {rank} goes on without rank {VICTIM}" in said[rank]
        found = re.search(rf"rank {new} of 2: loss ([\d.]+) after 200 steps", said[rank])
        assert found, said[rank]
        assert float(found[1]) < 0.5


def test_threads_have_no_survivors() -> None:
    with pytest.raises(Unavailable, match="no survivors"):
        mpicoll.threads(2)(lambda c: c.shrink())
