"""Measure every pair of ranks, over mpi4py and torch.distributed, and name the slow ones.

``mpirun -n 4 python -m mpicoll.p2p`` prints matrices of latency and bandwidth. Exit status 0:
every message arrived intact; 1: some did not, or the run failed; 2: bad usage; 3: a pair hung;
4: --preflight found something sick; 143: SIGTERM ended the run, after it printed its results so
far.
"""

from __future__ import annotations

from mpicoll.measurement.worlds import ALL_BACKENDS
from mpicoll.p2p.command import main

if __name__ == "__main__":
    main(obj=ALL_BACKENDS)
