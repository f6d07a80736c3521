"""Find the best algorithms for ``auto`` on this machine, over mpi4py and torch.distributed.

``mpirun -n 4 python -m mpicoll.tune`` measures and writes a decision table.
"""

from __future__ import annotations

from mpicoll.measurement.worlds import BOTH
from mpicoll.tune.command import main

if __name__ == "__main__":
    main(obj=BOTH)
