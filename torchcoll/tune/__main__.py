"""Find the fastest algorithms of this machine, for ``auto``, over torch.distributed alone."""

from __future__ import annotations

from mpicoll.measurement.worlds import TORCH_BACKEND
from mpicoll.tune.command import main

if __name__ == "__main__":
    main(obj=TORCH_BACKEND)
