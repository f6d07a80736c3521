"""The study that measures a library's own choice and its algorithms, for a table.

A folder beside the table keeps its launches, so that the same command continues the study.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from mpicoll.errors import ArgumentError
from mpicoll.records.lines import LaunchRecord, Record
from mpicoll.records.reading import load, only
from mpicoll.study.default import usual_ranks
from mpicoll.study.description import Description, Environment, Factors
from mpicoll.study.environments import (
    NAMES,
    candidates,
    find,
    launchable_environments,
    launcher_of,
    probe,
)
from mpicoll.study.libraries import algorithms_of, force_algorithm, libraries
from mpicoll.study.planning import plan
from mpicoll.study.running import Runner, load_study, lock_folder, store
from mpicoll.text.printable import printable
from mpicoll.tune.exports.choices import MIN_LAUNCHES, Takes, UndecidedCase

SIZES = (64, 1024, 16384, 131072, 1048576)
LAUNCHES = 6
"""Default launches of each algorithm: more than `MIN_LAUNCHES`, which just show a difference."""


class TableRequest(NamedTuple):
    """The measurements that a table is made from.

    Attributes:
        ranks: None: one for each core, at least two.
        collectives: empty: all that the table can name.
    """

    ranks: int | None
    launches: int
    collectives: Sequence[str]
    sizes: Sequence[int]


def folder_of(table: Path) -> Path:
    """Return the folder of the launches of a table."""
    return table.with_name(f"{table.name}.study")


def measure(
    vendor: str, takes: Takes, wanted: TableRequest, folder: Path
) -> tuple[list[Record], str]:
    """Run the launches that the folder lacks.

    Args:
        vendor: the library, as mpi4py names it.
        takes: whether its table can name an algorithm.

    Returns:
        the records of all launches, and the library's launcher.

    Raises:
        ArgumentError: no Python here has this library, or the folder has another study.
    """
    algorithms = _algorithms(vendor, takes, wanted.collectives)
    environment = replace(_environment(vendor), algorithms=algorithms, backends=["mpi4py"])
    factors = Factors(
        collectives=list(dict.fromkeys(name.partition("=")[0] for name in algorithms)),
        sizes=list(wanted.sizes), ranks=[wanted.ranks or usual_ranks()], algorithms=["native"],
        pairs=False,
    )  # fmt: skip
    study = Description(launches=wanted.launches, environments=[environment], factors=factors)
    launches = plan(study, find(study)[0])
    with lock_folder(folder):
        store(study, folder)
        runner = Runner(launches, folder)
        runner.run()
    if shortage := runner.shortage():
        print(printable(f"warning: {shortage}"), file=sys.stderr)
    files = sorted((folder / "launches").glob("*.jsonl"))
    return [record for path in files for record in load(path)], launcher_of(environment, vendor)


def _environment(vendor: str) -> Environment:
    """Return the first environment of a library: this Python's, an installed one, or of PATH."""
    for environment in launchable_environments(candidates()):
        if probe(environment).vendor == vendor:
            return environment
    raise ArgumentError(
        f"no Python here has {vendor}: python -m mpicoll.study --install {NAMES[vendor]} makes one"
    )


def _algorithms(vendor: str, takes: Takes, collectives: Sequence[str]) -> list[str]:
    """Return the algorithms to force: those that have a counterpart here and fit the table."""
    names = [
        f"{collective}={algorithm}"
        for collective in collectives or libraries()[vendor].collectives
        for algorithm, counterpart in algorithms_of(vendor, collective).items()
        if counterpart
        and takes(collective, algorithm, force_algorithm(vendor, collective, algorithm).variables)
    ]
    if not names:
        raise ArgumentError(f"a table of {vendor} names no algorithm of {', '.join(collectives)}")
    return names


def more_launches(records: Sequence[Record], cases: Sequence[UndecidedCase]) -> tuple[int, float]:
    """Return the launches of each algorithm that may decide, and the minutes that they all take.

    A study runs at least six of ten launches; of six or fewer it runs all.
    """
    needed = max((case.needed for case in cases), default=MIN_LAUNCHES)
    launches = needed if needed <= 6 else ceil(needed / 0.6)
    launch_records = only(LaunchRecord, records)
    configurations = {launch.configuration for launch in launch_records}
    mean = sum(launch.seconds for launch in launch_records) / max(1, len(launch_records))
    return launches, launches * len(configurations) * mean / 60


def study_of(files: Sequence[Path]) -> tuple[Path, Description] | None:
    """Return the study that made these files, with its folder; None without one."""
    folders = {path.absolute().parent.parent for path in files}
    folder = folders.pop()
    study = None if folders else load_study(folder)
    return None if study is None else (folder, study)
