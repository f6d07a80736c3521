"""Run the benchmark over torch.distributed, launched by torchrun; no MPI is needed."""

from __future__ import annotations

from mpicoll.bench.cli import start
from mpicoll.cli.worlds import TORCH

if __name__ == "__main__":
    start(TORCH)
