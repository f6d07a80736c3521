"""Measure every pair of ranks over torch.distributed alone, and name the slow ones."""

from __future__ import annotations

from mpicoll.bench.pairing import start
from mpicoll.bench.worlds import TORCH

if __name__ == "__main__":
    start(TORCH)
