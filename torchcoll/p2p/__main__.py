"""Measure every pair of ranks over torch.distributed alone, and name the slow ones."""

from __future__ import annotations

from mpicoll.measurement.worlds import TORCH_BACKEND
from mpicoll.p2p.command import main

if __name__ == "__main__":
    main(obj=TORCH_BACKEND)
