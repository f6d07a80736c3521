"""Find the best algorithms for ``auto`` on this machine, over mpi4py and torch.distributed.

``mpirun -n 4 python -m mpicoll.tune`` measures and writes a decision table.
``python -m mpicoll.tune export`` writes one for a library.
"""

from __future__ import annotations

import sys

from mpicoll.measurement.worlds import ALL_BACKENDS
from mpicoll.tune.command import main
from mpicoll.tune.exports.command import main as export

if __name__ == "__main__":
    if sys.argv[1:2] == ["export"]:
        export(sys.argv[2:])
    else:
        main(obj=ALL_BACKENDS)
