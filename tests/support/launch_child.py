"""One rank of `test_launch`: join the world, add up, and tell what this process listens on."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

_LISTENING = "0A"


def main(options: dict[str, object]) -> None:
    if os.environ.get("WITHOUT_MPI4PY"):
        sys.modules["mpi4py"] = None  # type: ignore[assignment]
    inherited = listening()  # MPICH's launcher leaks its own control port to its children
    import torch

    import torchcoll

    with torchcoll.world(**options) as c:  # type: ignore[arg-type]
        told = {
            "rank": c.rank, "size": c.size, "nodes": len(c.nodes),
            "sum": c.allreduce(torch.tensor([c.rank + 1])).item(),
            "ring": c.allreduce(torch.tensor([c.rank + 1]), algorithm="ring").item(),
            "listening": [at for each, at in listening().items() if each not in inherited],
            "interface": os.environ.get("GLOO_SOCKET_IFNAME"),
            "mpi4py": bool(sys.modules.get("mpi4py")),
        }  # fmt: skip
        c.barrier()
    sys.stdout.write(json.dumps(told) + "\n")


def listening() -> dict[str, str]:
    """Return the sockets on which this process listens, and their addresses in hexadecimal."""
    own = {os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENING and f"socket:[{inode}]" in own:
                found[inode] = local.split(":")[0]
    return found


if __name__ == "__main__":
    main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
