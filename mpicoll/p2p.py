"""Measure every pair of ranks, over mpi4py and torch.distributed, and name the slow ones.

``mpirun -n 4 python -m mpicoll.p2p`` prints matrices of latency and bandwidth.
"""

from __future__ import annotations

from mpicoll.bench.pairing import start
from mpicoll.bench.worlds import BOTH

if __name__ == "__main__":
    start(BOTH)
