"""Try whether this MPI reads GPU memory, in a child process: one that cannot crashes.

Open MPI's query tells how it was built. Where it was built on UCX, "since UCX will be providing the
CUDA support, it is important to ensure that UCX itself is built with CUDA support" (its
documentation, Networking, CUDA), and that its settings leave it on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache

_CHILD = """
import sys
import numpy, cupy
from mpi4py import MPI

cupy.cuda.Device(int(sys.argv[1])).use()
for count in (1, 1 << 20):
    host = numpy.arange(count, dtype="float32")
    x, y, z = cupy.asarray(host), cupy.asarray(0 * host), cupy.asarray(0 * host)
    cupy.cuda.get_current_stream().synchronize()
    print("begun", flush=True)
    MPI.COMM_SELF.Sendrecv(x, 0, 0, y, 0, 0)
    MPI.COMM_SELF.Allreduce(x, z)
    assert (y.get() == host).all() and (z.get() == host).all(), "wrong values"
"""
_LAUNCHED = (
    "PMI_", "PMIX_", "PRTE_", "OMPI_COMM_", "OMPI_UNIVERSE_", "OMPI_MCA_orte_", "OMPI_MCA_ess_",
    "OMPI_MCA_pmix_", "OMPI_MCA_schizo_", "SLURM_",
)  # fmt: skip
_SECONDS = 60.0


@cache
def obstacle(gpu: int) -> str:
    """Return how a child process fails that sends and reduces memory of a GPU by its number.

    Empty where it succeeds, and where it fails before it comes to that.
    """
    return run([sys.executable, "-c", _CHILD, str(gpu)], singleton_environment(os.environ))


def run(command: list[str], environment: Mapping[str, str]) -> str:
    """Return how a command fails after it has printed "begun"; empty where it does not."""
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        try:
            output, errors = child.communicate(timeout=_SECONDS)
            ending = f"signal {-child.returncode}" if child.returncode < 0 else errors
        except subprocess.TimeoutExpired:
            child.kill()
            output, ending = child.communicate()[0], f"no end within {_SECONDS:g} s"
    if not child.returncode or "begun" not in output:
        return ""
    return ending.strip().rpartition("\n")[2] or f"status {child.returncode}"


def singleton_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a process is no rank of the launch that started this one.

    What the user sets for MPI and UCX stays.
    """
    variables = {name: text for name, text in environment.items() if not name.startswith(_LAUNCHED)}
    return {**variables, "OMPI_MCA_ess_singleton_isolated": "1"}
