"""Launch all planted causes and healthy jobs, and count the verdicts that are right.

    python -m tests.verdict
    python -m tests.verdict --only work --seconds 3
    python -m tests.verdict --tree /path/of/another/version --healthy

Prints a line for each job, and a table: how many have the right kind, place and line, and how many
healthy jobs are blamed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))

import planted_jobs as planted  # noqa: E402
from planted_launches import ROOT, Result, judged  # noqa: E402


def main() -> None:
    """Launch the jobs that are asked for, in a random order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="jobs whose name has this pattern")
    parser.add_argument("--seconds", type=float, default=4.0, help="for which a job is watched")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the version to judge by")
    parser.add_argument("--causes", action="store_true", help="no healthy jobs")
    parser.add_argument("--healthy", action="store_true", help="no causes")
    parser.add_argument("--most", type=int, default=1000, help="jobs")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    flags = parser.parse_args()
    chosen = [] if flags.healthy else planted.causes()
    chosen += [] if flags.causes else planted.healthy()
    chosen = [job for job in chosen if re.search(flags.only, job.name)]
    random.Random(flags.seed).shuffle(chosen)
    results = []
    for job in chosen[: flags.most]:
        with tempfile.TemporaryDirectory() as folder:
            begin, load = time.monotonic(), os.getloadavg()[0]
            results.append(judged(job, Path(folder), flags.seconds, flags.tree))
        show(results[-1], time.monotonic() - begin, load)
    show_table(results)


def show(result: Result, seconds: float, load: float) -> None:
    """Print the line of a job."""
    marks = "".join(
        "-" if mark is None else "+" if mark else "X"
        for mark in (result.kind, result.place, result.line)
    )
    print(
        f"{marks} {result.job.name} ({result.job.kind}), {seconds:.0f} s, load {load:.0f}: "
        f"{result.answer.kind}, rank {result.answer.ranks or '-'}: {result.answer.sentence[:170]}",
        flush=True,
    )


def show_table(results: list[Result]) -> None:
    """Print how many answers are right."""
    causes = [result for result in results if not result.job.is_healthy]
    for title, beside in (("alone", False), ("beside a neighbour", True)):
        of_kind = [result for result in causes if result.job.has_neighbour is beside]
        cells = [
            f"{name} {sum(map(bool, marks))} of {len(marks)}"
            for name in ("kind", "place", "line")
            if (marks := [m for r in of_kind if (m := getattr(r, name)) is not None])
        ]
        print(f"causes {title}: {', '.join(cells)}")
    healthy = [result for result in results if result.job.is_healthy]
    print(f"healthy: {sum(not result.kind for result in healthy)} of {len(healthy)} blamed")


if __name__ == "__main__":
    main()
