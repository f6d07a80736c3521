"""Run the benchmark over torch.distributed, launched by torchrun; no MPI is needed."""

from __future__ import annotations

from mpicoll.bench.command import main
from mpicoll.measurement.worlds import TORCH_BACKEND

if __name__ == "__main__":
    main(obj=TORCH_BACKEND)
