"""Run a program that is written for torch.distributed with our groups in place of gloo's.

usage: torchrun --nproc-per-node 4 -m torchcoll.run program.py ARGS
       torchrun --nproc-per-node 4 -m torchcoll.run -m module ARGS

A group whose backend is absent or "gloo" is ours, also where another backend serves GPUs; others
are as they were. What the program starts by torch.multiprocessing inherits this.
"""

from __future__ import annotations

import os
import sys

from mpicoll.cli import programs
from mpicoll.errors import ArgumentError
from mpicoll.machine.launchers import is_first_process
from torchcoll.backend.choice import choose
from torchcoll.backend.registration import AS_GLOO, register

_REFUSED = 2


def main(arguments: list[str]) -> int:
    """Run the program that the arguments name; return the exit status where there is none."""
    if arguments[:1] in (["-h"], ["--help"]):
        if is_first_process():
            print((__doc__ or "").strip())
        return 0
    try:
        programs.check(arguments)
        choose()
    except ArgumentError as error:
        if is_first_process():
            print(f"Error: {error}", file=sys.stderr)
        return _REFUSED
    os.environ[AS_GLOO] = "1"
    import torch.distributed  # noqa: F401  the groups are torch's

    register()
    programs.run(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
