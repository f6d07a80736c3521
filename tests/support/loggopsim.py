"""Compare prices with LogGOPSim's completion times, for every algorithm.

``python tests/support/loggopsim.py FOLDER 16 64`` takes the folder with the simulator's programs
``LogGOPSim`` and ``txt2bin``, and numbers of ranks. They are built from
https://github.com/spcl/LogGOPSim (commit 76451de), with re2c, gengetopt and libgraphviz-dev:

    git apply tests/support/loggopsim.patch     # in a clone: a heap for what waits for a host
    make -C src/LogGOPSim CXXFLAGS='-std=c++11 -O3'

It prints a line for each algorithm and size: our price, their time, the ratio, and the fewest rules
of ours (`loggp.RULES`) that make the difference, null where none do. All messages are eager.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

from catalogue import CATALOGUE
from loggp import RULES, Times, completion

from mpicoll.costs import LogGP, Switch, pattern_of, simulate
from mpicoll.costs.models import DEFAULT
from mpicoll.exports.goal import goal

TIMES = Times(L=1500, o=500, g=800, G=1)
MODEL = LogGP(*(1e-9 * each for each in TIMES), gamma=DEFAULT.gamma)
BLOCKS = 200, 20_000
"""Bytes of a block."""
MOST_IN_FULL = 64
"""Ranks up to which every set of rules is tried, beyond them one rule or all."""
LIMIT = 300.0
"""Seconds that LogGOPSim has for a case."""


def simulated(lines: Sequence[str], programs: Path) -> float:
    """Return LogGOPSim's completion time in seconds, all messages eager."""
    parameters = [
        word for each, value in TIMES._asdict().items() for word in (f"-{each}", str(value))
    ]
    with TemporaryDirectory() as folder:
        text, binary = Path(folder) / "schedule.goal", Path(folder) / "schedule.bin"
        text.write_text("".join(f"{line}\n" for line in lines))
        subprocess.run(
            [programs / "txt2bin", "-i", text, "-o", binary], check=True, capture_output=True
        )
        done = subprocess.run(
            [programs / "LogGOPSim", "-f", binary, "-b", "-S", str(2**31 - 1),
             *parameters],
            check=True, capture_output=True, text=True, timeout=LIMIT,
        )  # fmt: skip
    found = re.search(r"Maximum finishing time at host \d+: (\d+)", done.stdout)
    assert found, done.stdout
    return int(found[1]) * 1e-9


def reason(lines: Sequence[str], seconds: float, size: int) -> Sequence[str] | None:
    """Return the fewest rules of ours with which the file takes as long as our price, if any."""
    counts = range(len(RULES) + 1) if size <= MOST_IN_FULL else (0, 1, len(RULES))
    every = (some for count in counts for some in combinations(RULES, count))
    return next(
        (some for some in every if close(1e-9 * completion(lines, TIMES, some), seconds)), None
    )


def close(one: float, other: float) -> bool:
    """Whether two times are within 1 %."""
    return abs(one / other - 1) < 0.01


def rows(size: int, programs: Path) -> Iterator[dict[str, object]]:
    """Yield what was found for each algorithm and size of a block."""
    for algorithm in filter(lambda each: each.needs.holds(size), CATALOGUE):
        pattern = pattern_of(algorithm, size)
        for nbytes in (block * pattern.vector_blocks for block in BLOCKS):
            ours = simulate(pattern, nbytes, MODEL, Switch(size))
            lines = [*goal(algorithm, size, nbytes)]
            row: dict[str, object] = {
                "collective": algorithm.collective.name, "algorithm": str(algorithm),
                "ranks": size, "bytes": nbytes, "ours_us": 1e6 * ours,
            }  # fmt: skip
            try:
                theirs = simulated(lines, programs)
            except subprocess.TimeoutExpired:
                yield row | {"over": LIMIT}
                continue
            rules = [] if close(ours, theirs) else reason(lines, ours, size)
            yield row | {"theirs_us": 1e6 * theirs, "ratio": ours / theirs, "rules": rules}


def main() -> None:
    for size in map(int, sys.argv[2:]):
        for row in rows(size, Path(sys.argv[1])):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
