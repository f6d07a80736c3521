"""Compare prices with LogGOPSim's completion times, for every algorithm.

``python tests/support/loggopsim.py FOLDER 16 64`` takes the folder with the simulator's programs
``LogGOPSim`` and ``txt2bin`` (https://github.com/spcl/LogGOPSim), and numbers of ranks. It prints
a line for each algorithm and size: our price, their time, the ratio, and the rules of ours
(`loggp.RULES`) that make the difference. All messages are eager.
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
MOST_EXPLAINED = 64
"""Ranks up to which the reason of a difference is sought."""


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
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    found = re.search(r"Maximum finishing time at host \d+: (\d+)", done.stdout)
    assert found, done.stdout
    return int(found[1]) * 1e-9


def reason(lines: Sequence[str], seconds: float) -> Sequence[str] | None:
    """Return the fewest rules of ours with which the file takes as long as our price, if any."""
    every = (some for count in range(len(RULES) + 1) for some in combinations(RULES, count))
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
            theirs = simulated(lines, programs)
            known = close(ours, theirs) or size > MOST_EXPLAINED
            yield {
                "collective": algorithm.collective.name, "algorithm": str(algorithm),
                "ranks": size, "bytes": nbytes, "ours_us": 1e6 * ours, "theirs_us": 1e6 * theirs,
                "ratio": ours / theirs, "rules": [] if known else reason(lines, ours),
            }  # fmt: skip


def main() -> None:
    for size in map(int, sys.argv[2:]):
        for row in rows(size, Path(sys.argv[1])):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
