"""Write lists of hosts in the forms of Slurm, MPICH and Open MPI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby


def slurm_list(hosts: Iterable[str]) -> str:
    """Return a host list of Slurm: names that differ by one number are joined to ranges.

    >>> slurm_list(["node01", "node02", "node03", "node07", "login"])
    'node[01-03,07],login'
    >>> slurm_list(["r1-n9", "r1-n10", "r2-n1"])
    'r1-n[9-10],r2-n1'
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for host in dict.fromkeys(hosts):
        stem, digits, end = _parts(host)
        groups.setdefault((stem, end), []).append(digits)
    return ",".join(f"{stem}{_numbers(digits)}{end}" for (stem, end), digits in groups.items())


def _parts(host: str) -> tuple[str, str, str]:
    """Return the text before the last number of a name, its digits, and the text after it."""
    match = re.fullmatch(r"(.*?)([0-9]+)([^0-9]*)", host)
    return (match[1], match[2], match[3]) if match else (host, "", "")


def _numbers(digits: Sequence[str]) -> str:
    """Return the digits of a group; several of them between brackets."""
    if len(digits) == 1:
        return digits[0]
    return f"[{','.join(_ranges(digits))}]"


def _ranges(digits: Sequence[str]) -> Iterator[str]:
    """Yield ranges of numbers that Slurm expands to these digits.

    Slurm gives all numbers of a range the width of the first, if that begins with a zero.
    """

    def run(place: tuple[int, str]) -> tuple[int, int]:
        index, text = place
        return int(text) - index, len(text) if is_padded else 0

    is_padded = any(text != str(int(text)) for text in digits)
    ordered = sorted(digits, key=lambda text: (len(text) if is_padded else 0, int(text)))
    for _, places in groupby(enumerate(ordered), run):
        texts = [text for _, text in places]
        yield texts[0] if len(texts) == 1 else f"{texts[0]}-{texts[-1]}"


def counted_list(slots: Mapping[str, int]) -> str:
    """Return the hosts with their ranks, as MPICH's ``-hosts`` and Open MPI's ``--host`` read them.

    >>> counted_list({"a": 2, "b": 1})
    'a:2,b:1'
    """
    return ",".join(f"{host}:{count}" for host, count in slots.items())


def hostfile(slots: Mapping[str, int]) -> str:
    """Return the lines of a host file: each host once for each of its ranks.

    MPICH, Intel MPI and Open MPI read this form alike. Slurm's ``--nodelist`` reads it too.
    """
    return "".join(f"{host}\n" * count for host, count in slots.items())
