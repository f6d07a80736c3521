"""Run OSU's and Intel's MPI benchmarks, and read their output.

Both time each call of a loop on every rank, with a barrier after it. They print the mean over the
calls of the fastest, the slowest and the average rank. The slowest rank counts, as in mpicoll.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

Times = dict[tuple[str, int], float]
"""Microseconds, by the name of the collective and the bytes of the call in total."""

_ROWS = frozenset({"allgather", "alltoall", "gather", "scatter"})
_NUMBER = r"(\d+(?:\.\d+)?)"


class Instrument(NamedTuple):
    """Another benchmark suite.

    Attributes:
        programs: its names of collectives, by mpicoll's names.
        by_row: the collectives whose size is that of a row, one row for each rank.
        smallest: the smallest size in bytes that the suite really measures, by collective.
    """

    name: str
    programs: Mapping[str, str]
    by_row: frozenset[str]
    smallest: Mapping[str, int]

    def total(self, collective: str, size: int, ranks: int) -> int:
        """Return the total bytes of a call, as mpicoll's records count them."""
        return size * ranks if collective in self.by_row else size

    def sizes(self, collective: str, sizes: Sequence[int]) -> list[int]:
        """Return the sizes that can be compared; a barrier has none."""
        if collective == "barrier":
            return [0]
        return [size for size in sizes if size >= self.smallest.get(collective, 0)]


OSU = Instrument(
    "OSU",
    {
        "allreduce": "osu_allreduce", "broadcast": "osu_bcast", "reduce": "osu_reduce",
        "allgather": "osu_allgather", "alltoall": "osu_alltoall", "gather": "osu_gather",
        "scatter": "osu_scatter", "reduce_scatter": "osu_reduce_scatter_block",
        "barrier": "osu_barrier",
    },
    _ROWS,
    # With one float for each rank OSU makes calls without data.
    {"reduce_scatter": 16},
)  # fmt: skip
IMB = Instrument(
    "IMB",
    {
        "allreduce": "Allreduce", "broadcast": "Bcast", "reduce": "Reduce",
        "allgather": "Allgather", "alltoall": "Alltoall", "gather": "Gather",
        "scatter": "Scatter", "reduce_scatter": "Reduce_scatter_block", "barrier": "Barrier",
    },
    _ROWS | {"reduce_scatter"},
    {},
)  # fmt: skip
_REDUCING = {"allreduce", "reduce", "reduce_scatter"}


def osu_commands(folder: Path, sizes: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
    """Yield the command of each program in the folder, with the name of the collective."""
    for collective, name in OSU.programs.items():
        program = folder / name
        if not program.exists():
            continue
        size = ["-m", f"{min(sizes)}:{max(sizes)}"] if collective != "barrier" else []
        # Without a type OSU reduces single bytes.
        kind = ["-T", "mpi_float"] if collective in _REDUCING else []
        yield collective, [str(program), "-f", *size, *kind]


def imb_command(program: Path, ranks: int, lengths: Path) -> list[str]:
    """Return the command of all benchmarks.

    Args:
        lengths: a file with a size in each line.
    """
    # 1,000 calls, and 400 MB of a size at most, so that 4 MiB are called 100 times.
    return [
        str(program), *IMB.programs.values(), "-npmin", str(ranks), "-msglen", str(lengths),
        "-iter", "1000,400", "-iter_policy", "off",
    ]  # fmt: skip


def osu_times(printed: str, collective: str, ranks: int) -> Times:
    r"""Return the times of the slowest rank in a program's output.

    >>> osu_times("# Size Avg Min Max Iterations\n4   2.0  1.5  2.5  1000", "gather", 2)
    {('gather', 8): 2.5}
    """
    size = r"(\d+)\s+" if collective != "barrier" else "()"
    row = rf"^\s*{size}{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+\d+\s*$"
    return {
        (collective, OSU.total(collective, int(nbytes or 0), ranks)): float(slowest)
        for nbytes, _, _, slowest in re.findall(row, printed, re.M)
    }


def imb_times(printed: str, ranks: int) -> Times:
    r"""Return the times of the slowest rank in IMB's output.

    >>> text = "# Benchmarking Bcast\n #bytes #repetitions\n  4  50  0.34  0.51  0.42\n"
    >>> imb_times(text, 2)
    {('broadcast', 4): 0.51}
    """
    collectives = {name: collective for collective, name in IMB.programs.items()}
    times: Times = {}
    for part in printed.split("# Benchmarking ")[1:]:
        collective = collectives.get(part.split(None, 1)[0])
        if collective is None:
            continue
        size = r"(\d+)\s+" if collective != "barrier" else "()"
        row = rf"^\s*{size}\d+\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s*$"
        for nbytes, _, slowest, _ in re.findall(row, part, re.M):
            total = IMB.total(collective, int(nbytes or 0), ranks)
            times[collective, total] = float(slowest)
    return times
