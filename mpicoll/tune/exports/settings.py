"""Libraries that are told by variables or a few lines: Intel MPI, UCC, NCCL's tuner plugin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpicoll.tune.exports.choices import Choice, Range

INTEL = "Intel(R) MPI"
_VECTORS = {"allreduce", "broadcast", "reduce"}
"""Where all libraries count the same bytes: those of the vector."""
_NCCL = {
    "allreduce": "allreduce", "broadcast": "broadcast", "reduce": "reduce",
    "allgather": "allgather", "reduce_scatter": "reducescatter",
}  # fmt: skip
_UCC = {
    "allreduce": "allreduce", "broadcast": "bcast", "reduce": "reduce", "allgather": "allgather",
    "reduce_scatter": "reduce_scatter", "alltoall": "alltoall",
}  # fmt: skip
_MOST = (1 << 31) - 1
_ADJUST, _TUNE, _ALGORITHM, _PROTOCOL = (
    "I_MPI_ADJUST_", "UCC_TL_UCP_TUNE", "NCCL_ALGO", "NCCL_PROTO"
)  # fmt: skip


def intel_takes(collective: str, algorithm: str, variables: dict[str, str]) -> bool:
    """Whether `I_MPI_ADJUST` can name an algorithm for ranges of bytes."""
    return collective in _VECTORS and any(name.startswith(_ADJUST) for name in variables)


def intel(choices: Sequence[Choice]) -> str:
    """Return a shell's assignments of the I_MPI_ADJUST variables."""
    found: dict[str, list[str]] = {}
    for choice in choices:
        for start, each in _forced(choice):
            name, value = next(
                pair for pair in each.variables.items() if pair[0].startswith(_ADJUST)
            )
            end = _MOST if each.upto is None else each.upto
            condition = f"{start}-{end}@{choice.ranks}-{choice.ranks}"
            found.setdefault(name, []).append(f"{value}:{condition}")
    return "".join(f"export {name}='{';'.join(rules)}'\n" for name, rules in found.items())


def ucc_takes(collective: str, algorithm: str, variables: dict[str, str]) -> bool:
    """Whether `UCC_TL_UCP_TUNE` can name an algorithm."""
    return collective in _UCC and _TUNE in variables


def ucc(choices: Sequence[Choice]) -> str:
    """Return a shell's assignment of UCC_TL_UCP_TUNE."""
    tokens = [
        f"{_UCC[choice.collective]}:{start}-{'inf' if each.upto is None else each.upto}"
        f":[{choice.ranks}-{choice.ranks}]:inf:@{each.algorithm}"
        for choice in choices
        for start, each in _forced(choice)
    ]
    return f"export {_TUNE}='{'#'.join(tokens)}'\n"


def nccl_takes(collective: str, algorithm: str, variables: dict[str, str]) -> bool:
    """Whether NCCL's tuner plugin can name an algorithm."""
    return collective in _NCCL and _ALGORITHM in variables and _PROTOCOL in variables


def nccl(choices: Sequence[Choice]) -> str:
    """Return lines for the plugin: collective, bytes from and to, algorithm, protocol, ..."""
    lines = [
        f"{_NCCL[choice.collective]},{start},{(1 << 62) if each.upto is None else each.upto},"
        f"{each.variables[_ALGORITHM].lower()},{each.variables[_PROTOCOL].lower()},"
        f"-1,{choice.nodes},{choice.ranks},-1,-1\n"
        for choice in choices
        for start, each in _forced(choice)
    ]
    return "".join(lines)


def _forced(choice: Choice) -> Iterator[tuple[int, Range]]:
    """Yield the ranges that do not leave the choice to the library, with their first bytes."""
    start = 0
    for each in choice.ranges:
        if each.algorithm is not None:
            yield start, each
        start = (each.upto or 0) + 1
