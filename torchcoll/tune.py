"""Find what ``algorithm="auto"`` should run on this machine, over torch.distributed alone."""

from __future__ import annotations

from mpicoll.bench.tuning import start
from mpicoll.bench.worlds import TORCH

if __name__ == "__main__":
    start(TORCH)
