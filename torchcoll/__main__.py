"""Measure, tune and run collectives of torch.distributed; no MPI is needed.

"torchcoll COMMAND --help" prints the flags of a command.
"torchrun --nproc-per-node 4 -m torchcoll.COMMAND" runs one on ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpicoll import __version__
from mpicoll.cli.commands import Commands, Sections

SECTIONS: Sections = {
    "Measure": {
        "bench": "check and time every algorithm and size",
        "p2p": "measure every pair of ranks, and name the slow ones",
    },
    "Tune": {"tune": "measure which algorithms are the fastest here"},
    "Run programs": {"run": "run a torch.distributed program with these collectives"},
}


def _versions() -> Sequence[str]:
    from mpicoll.measurement.versions import versions

    return versions(__version__)


main = Commands("torchcoll", SECTIONS, _versions, __doc__ or "")

if __name__ == "__main__":
    main()
