"""Tables of libraries that read variables or a few lines: Intel MPI, UCC, NCCL's tuner plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from mpicoll.errors import ArgumentError
from mpicoll.tune.exports.choices import Choice, Range, starts

INTEL = "Intel(R) MPI"
_VECTORS = {"allreduce", "broadcast", "reduce"}
"""Collectives for which all libraries count the bytes of the vector."""
_NCCL = {
    "allreduce": "allreduce", "broadcast": "broadcast", "reduce": "reduce",
    "allgather": "allgather", "reduce_scatter": "reducescatter",
}  # fmt: skip
_UCC = {
    "allreduce": "allreduce", "broadcast": "bcast", "reduce": "reduce", "allgather": "allgather",
    "reduce_scatter": "reduce_scatter", "alltoall": "alltoall",
}  # fmt: skip
_NCCL_ALGORITHMS = {
    "tree": "tree", "ring": "ring", "collnetdirect": "collnet_direct",
    "collnetchain": "collnet_chain", "nvls": "nvls", "nvlstree": "nvls_tree", "pat": "pat",
}  # fmt: skip
"""The plugin's names by those of `NCCL_ALGO`; the plugin runs ring for any other name."""
_NCCL_PROTOCOLS = {"ll", "ll128", "simple"}
_LARGEST = (1 << 31) - 1
_ADJUST, _TUNE, _ALGORITHM, _PROTOCOL = (
    "I_MPI_ADJUST_", "UCC_TL_UCP_TUNE", "NCCL_ALGO", "NCCL_PROTO"
)  # fmt: skip


def intel_takes(collective: str, algorithm: str, variables: dict[str, str]) -> bool:
    """Whether `I_MPI_ADJUST` can name an algorithm for ranges of bytes."""
    adjustments = {name: number for name, number in variables.items() if name.startswith(_ADJUST)}
    return (
        collective in _VECTORS
        and bool(adjustments)
        and _are_words(*adjustments, *adjustments.values())
    )


def _are_words(*texts: str) -> bool:
    """Whether texts of a record are safe in a file that a shell or a library reads."""
    return all(re.fullmatch("[A-Za-z0-9_]{1,100}", text) for text in texts)


def intel(choices: Sequence[Choice]) -> str:
    """Return a shell's assignments of the I_MPI_ADJUST variables.

    Every range has a preset, since sizes without a range use the first one. Preset 0 is not the
    library's own choice but "basic logic" (Intel's reference), which is slower. Ranges have no
    numbers of ranks: with them, 2021.15 uses the first range at every size.

    Raises:
        ArgumentError: the choices are for several numbers of ranks.
    """
    if len(counts := sorted({choice.ranks for choice in choices})) > 1:
        raise ArgumentError(
            "Intel MPI takes one table for all numbers of ranks: give records of one of "
            f"{', '.join(map(str, counts))}"
        )
    lines = []
    for choice in choices:
        name = _variable(choice)
        rules = [
            f"{part.variables.get(name, '0')}:{start}-"
            f"{_LARGEST if part.upto is None else part.upto}"
            for start, part in starts(choice.ranges)
        ]
        lines.append(f"export {name}='{';'.join(rules)}'\n")
    return "".join(lines)


def _variable(choice: Choice) -> str:
    """Return the name of the variable of a collective."""
    names = (name for part in choice.ranges for name in part.variables)
    return next(name for name in names if name.startswith(_ADJUST))


def ucc_takes(collective: str, algorithm: str, variables: dict[str, str]) -> bool:
    """Whether `UCC_TL_UCP_TUNE` can name an algorithm."""
    return collective in _UCC and _TUNE in variables and _are_words(algorithm)


def ucc(choices: Sequence[Choice]) -> str:
    """Return a shell's assignment of UCC_TL_UCP_TUNE.

    UCC (openucx/ucc, src/coll_score/ucc_coll_score.c) includes both ends of a range. It counts the
    bytes that a rank has at the end: for a reduce_scatter, the p-th part of the vector.
    """
    tokens = []
    for choice in choices:
        parts = choice.ranks if choice.collective == "reduce_scatter" else 1
        for start, part in _decided_ranges(choice):
            upto = "inf" if part.upto is None else part.upto // parts
            tokens.append(
                f"{_UCC[choice.collective]}:{-(-start // parts)}-{upto}"
                f":[{choice.ranks}-{choice.ranks}]:inf:@{part.algorithm}"
            )
    return f"export {_TUNE}='{'#'.join(tokens)}'\n"


def nccl_takes(collective: str, algorithm: str, variables: dict[str, str]) -> bool:
    """Whether NCCL's tuner plugin can name an algorithm."""
    named, protocol = (_of_nccl(variables, name) for name in (_ALGORITHM, _PROTOCOL))
    return collective in _NCCL and named in _NCCL_ALGORITHMS and protocol in _NCCL_PROTOCOLS


def _of_nccl(variables: Mapping[str, str], name: str) -> str:
    """Return the name in a variable of NCCL, with or without the collective before it."""
    return variables.get(name, "").lower().rpartition(":")[2]


def nccl(choices: Sequence[Choice]) -> str:
    """Return lines for the plugin: collective, first and last byte count, algorithm, protocol, ...

    The plugin (NVIDIA/nccl, plugins/tuner/example/plugin.c) includes both ends of a range, counts
    the bytes of all ranks, and reads -1 as any value.
    """
    lines = [
        f"{_NCCL[choice.collective]},{start},{(1 << 62) if part.upto is None else part.upto},"
        f"{_NCCL_ALGORITHMS[_of_nccl(part.variables, _ALGORITHM)]},"
        f"{_of_nccl(part.variables, _PROTOCOL)},"
        f"-1,{choice.nodes},{choice.ranks},-1,-1\n"
        for choice in choices
        for start, part in _decided_ranges(choice)
    ]
    return "".join(lines)


def _decided_ranges(choice: Choice) -> Iterator[tuple[int, Range]]:
    """Yield the ranges with an algorithm, each with its first byte count."""
    return ((start, part) for start, part in starts(choice.ranges) if part.algorithm is not None)
