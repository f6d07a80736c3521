"""Ask a library whether it runs the algorithms that variables force, at which sizes.

A library that takes another algorithm may print so, once in a call. This program, run on the ranks
of a launch, makes one native call for each collective and size, and prints a line before each.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from mpicoll.defaults import function
from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import Case, Wanted, groups
from mpicoll.measurement.workbench import Workbench
from mpicoll.records.lines import Forced
from mpicoll.study.libraries import libraries

_MARK = "mpicoll asks:"
_PAUSE = 0.05
"""Seconds in which what a call prints arrives at the launcher."""


def arguments(collectives: Sequence[str], sizes: Sequence[int], dtype: str, op: str) -> list[str]:
    """Return the arguments of Python that run this program."""
    every = ",".join(map(str, sizes))
    return ["-m", "mpicoll.study.asking", ",".join(collectives), every, dtype, op]


def heard(vendor: str, forced: Mapping[str, Forced], printed: str | None) -> dict[str, Forced]:
    """Return how the library is forced, with what it said to this program.

    Args:
        printed: what the program printed; None: the library cannot be asked, or it failed.
    """
    if printed is None:
        return dict(forced)
    refusal = libraries()[vendor].refusal
    asked: dict[str, list[int]] = {name: [] for name in forced}
    refused: dict[str, dict[int, str]] = {name: {} for name in forced}
    for name, size, text in _answers(printed):
        if name in forced:
            asked[name].append(size)
            lines = re.findall(rf".*(?:{refusal}).*", text, re.IGNORECASE)
            own = [each for each in lines if function(name) in each.lower()]
            if own:
                refused[name][size] = own[0].strip()[:200]
    return {name: _with(how, asked[name], refused[name]) for name, how in forced.items()}


def _with(how: Forced, asked: Sequence[int], refused: Mapping[int, str]) -> Forced:
    if not asked:
        return how
    said = next(iter(refused.values()), how.said)
    return Forced(
        how.algorithm, how.ours, how.variables, len(refused) < len(asked), said, sorted(refused)
    )


def _answers(printed: str) -> Iterator[tuple[str, int, str]]:
    """Yield the collective and the size of each call, and what was printed meanwhile."""
    _, *parts = re.split(rf"{_MARK} (\w+) (\d{{1,18}})\b", printed, flags=re.ASCII)
    for name, size, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        yield name, int(size), text


def main(given: Sequence[str]) -> None:
    """Make the calls, on every rank."""
    import mpicoll  # after the environment of a launch is set, and on ranks alone

    if len(given) != 4:
        raise ArgumentError("this is run by mpicoll.study")
    names, sizes, dtype, op = given
    wanted = Wanted(
        collectives=tuple(names.split(",")), sizes=tuple(map(int, sizes.split(","))),
        dtypes=(dtype,), ops=(op,),
    )  # fmt: skip
    with mpicoll.world() as world:
        for group in groups(wanted, world.size):
            plan = Workbench(world, group).bind(Case(group, "mpi4py", "native"))
            world.barrier()
            time.sleep(_PAUSE)
            if world.rank == 0:
                os.write(2, f"\n{_MARK} {group.what.name} {group.bytes_total}\n".encode())
            plan.run()
            time.sleep(_PAUSE)


if __name__ == "__main__":
    main(sys.argv[1:])
