"""Run the benchmark over mpi4py and torch.distributed in one job, launched by MPI."""

from __future__ import annotations

from mpicoll.bench.cli import start
from mpicoll.collectives import Collectives


def _mpi4py() -> Collectives:
    import mpicoll

    return mpicoll.world()


def _torch() -> Collectives:
    import torchcoll

    return torchcoll.world()


if __name__ == "__main__":
    start({"mpi4py": _mpi4py, "torch": _torch})
