"""Write a schedule to a file that other software reads, in the format of its extension."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from mpicoll.algorithms.registry import Algorithm
from mpicoll.backend import Nodes
from mpicoll.cli.progress import tracked
from mpicoll.errors import ArgumentError
from mpicoll.exports.chakra import trace
from mpicoll.exports.goal import goal
from mpicoll.exports.msccl import msccl
from mpicoll.simulator import contiguous
from mpicoll.text.files import write_whole

EXPORTS = ".goal", ".et", ".xml"


def written(
    path: Path, chosen: Sequence[Algorithm], ranks: int, nbytes: int, root: int, nodes: int | None
) -> str:
    """Write one schedule; return a sentence on the files written.

    Args:
        nbytes: of the vector, or of all rows.

    Raises:
        ArgumentError: there are several schedules, or a file cannot be written.
        Unsupported: the format cannot say this schedule.
    """
    if len(chosen) > 1:
        raise ArgumentError(f"a {path.suffix} file holds one schedule: name one of {len(chosen)}")
    (algorithm,) = chosen
    layout = contiguous(ranks, nodes) if nodes else None
    algorithm.serve(ranks)
    match path.suffix.lower():
        case ".goal":
            return _text(path, goal(algorithm, ranks, nbytes, root, layout))
        case ".xml":
            return _text(path, msccl(algorithm, ranks, layout).splitlines())
        case _:
            return _traces(path, algorithm, ranks, nbytes, root, layout)


def _text(path: Path, lines: Iterable[str]) -> str:
    def save(fresh: Path) -> None:
        with fresh.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    write_whole(path, save)
    return f"{path}: {path.stat().st_size / 1e3:.0f} KB"


def _traces(
    path: Path, algorithm: Algorithm, ranks: int, nbytes: int, root: int, nodes: Nodes | None
) -> str:
    """Write a file for each rank, as ASTRA-sim looks for them: ``name.RANK.et``."""
    files = [path.with_suffix(f".{rank}{path.suffix}") for rank in range(ranks)]
    for rank in tracked(range(ranks), "rank {}".format):
        content = trace(algorithm, rank, ranks, nbytes, root, nodes)
        write_whole(files[rank], partial(Path.write_bytes, data=content))
    total = sum(file.stat().st_size for file in files)
    return f"{files[0]} to {files[-1]}: {ranks} files, {total / 1e3:.0f} KB"
