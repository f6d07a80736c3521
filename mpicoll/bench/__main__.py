"""Run the benchmark over mpi4py and torch.distributed in one job, launched by MPI."""

from __future__ import annotations

from mpicoll.bench.command import main
from mpicoll.measurement.worlds import ALL_BACKENDS

if __name__ == "__main__":
    main(obj=ALL_BACKENDS)
