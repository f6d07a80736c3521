"""Measure every pair of ranks, over mpi4py and torch.distributed, and name the slow ones.

``mpirun -n 4 python -m mpicoll.p2p`` prints matrices of latency and bandwidth.
"""

from __future__ import annotations

from mpicoll.cli.worlds import BOTH
from mpicoll.p2p.command import start

if __name__ == "__main__":
    start(BOTH)
