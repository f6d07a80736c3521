"""Find out whether a library runs the algorithms that variables force, and at which sizes.

Some libraries print the algorithm of each call, or a message if they refuse one. This program runs
on the ranks of a launch. It makes one native call for each collective and size, and prints a line
before each call.
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
from mpicoll.measurement.worlds import ALL_BACKENDS
from mpicoll.records.lines import Forced
from mpicoll.study.libraries import Library, libraries

_MARK = "mpicoll asks:"
_PAUSE = 0.05
"""Seconds within which the output of a call reaches the launcher."""
SECONDS_OF_CALL = 2 * _PAUSE


def arguments(
    collectives: Sequence[str], sizes: Sequence[int], dtype: str, op: str, backend: str, device: str
) -> list[str]:  # fmt: skip
    """Return the arguments of Python that run this program."""
    every = ",".join(map(str, sizes))
    return ["-m", "mpicoll.study.asking", ",".join(collectives), every, dtype, op, backend, device]


def read_answers(
    vendor: str, forced: Mapping[str, Forced], printed: str | None
) -> dict[str, Forced]:
    """Return how the library is forced, with its answers to this program.

    Args:
        printed: the output of the program; None: the library cannot be asked, or the program
        failed.
    """
    if printed is None:
        return dict(forced)
    library = libraries()[vendor]
    answered: dict[str, list[int]] = {name: [] for name in forced}
    refused: dict[str, dict[int, str]] = {name: {} for name in forced}
    for name, size, text in _answers(printed):
        if name not in forced:
            continue
        if library.runs:
            ran = _ran(library, name, text)
            wanted = forced[name].algorithm
            refusal = "" if _plain(wanted) in map(_plain, ran) else ", ".join(ran)
            # The library reports every algorithm with this prefix that it runs.
            prefix = library.named.partition("{")[0]
            if not ran and prefix and wanted.startswith(prefix):
                refusal = f"nothing of {wanted}"
            is_answer = bool(ran or refusal)
        else:
            refusal = _refusal(library.refusal, name, printed if library.at_start else text)
            # No refusal at start-up is no answer: the number exists, but another one may run.
            is_answer = bool(refusal) or not library.at_start
        if is_answer:
            answered[name].append(size)
        if refusal:
            refused[name][size] = refusal
    return {name: _with(how, answered[name], refused[name]) for name, how in forced.items()}


def _refusal(pattern: str, name: str, text: str) -> str:
    """Return the line in which a library refuses an algorithm, "" without one."""
    lines = re.findall(rf".*(?:{pattern}).*", text, re.IGNORECASE)
    matches = [line for line in lines if re.search(rf"\b{function(name)}\b", line, re.IGNORECASE)]
    return matches[0].strip()[:200] if matches else ""


def _ran(library: Library, name: str, text: str) -> list[str]:
    """Return the algorithms that a library reports, by their names in `libraries.toml`."""
    algorithms = []
    for match in re.finditer(library.runs, text):
        parts = match.groupdict()
        if _plain(parts.pop("function")) in (_plain(name), _plain(function(name))):
            algorithms.append(library.named.format(**parts).lower())
    return algorithms


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _with(how: Forced, sizes: Sequence[int], refused: Mapping[int, str]) -> Forced:
    if not sizes:
        return how
    answer = next(iter(refused.values()), how.said)
    return Forced(
        how.algorithm, how.ours, how.variables, len(refused) < len(sizes), answer, sorted(refused)
    )


def _answers(printed: str) -> Iterator[tuple[str, int, str]]:
    """Yield the collective and the size of each call, and the output meanwhile."""
    _, *parts = re.split(rf"{_MARK} (\w+) (\d{{1,18}})\b", printed, flags=re.ASCII)
    for name, size, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        yield name, int(size), text


def main(argv: Sequence[str]) -> None:
    """Make the calls, on every rank."""
    if len(argv) != 6:
        raise ArgumentError("this is run by mpicoll.study")
    names, sizes, dtype, op, backend, device = argv
    wanted = Wanted(
        collectives=tuple(names.split(",")), sizes=tuple(map(int, sizes.split(","))),
        dtypes=(dtype,), ops=(op,), device=device,
    )  # fmt: skip
    with ALL_BACKENDS[backend](None) as world:
        for group in groups(wanted, world.size):
            plan = Workbench(world, group).bind(Case(group, backend, "native"))
            world.barrier()
            time.sleep(_PAUSE)
            if world.rank == 0:
                os.write(2, f"\n{_MARK} {group.contract.name} {group.bytes_total}\n".encode())
            plan.run()
            time.sleep(_PAUSE)


if __name__ == "__main__":
    main(sys.argv[1:])
