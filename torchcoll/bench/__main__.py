"""Run the benchmark over torch.distributed, launched by torchrun; no MPI is needed."""

from __future__ import annotations

from mpicoll.bench.cli import start
from mpicoll.collectives import Collectives


def _torch(interface: str | None) -> Collectives:
    import torchcoll

    return torchcoll.world(interface=interface)


if __name__ == "__main__":
    start({"torch": _torch})
