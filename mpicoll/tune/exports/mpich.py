"""MPICH's selection of algorithms: the tree of ``MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE``.

A file replaces the built-in tree as a whole, and what it leaves out falls to the least able
algorithm. So the tree starts as the one in the library, which it contains as text.

On one node a single-threaded program runs flags in shared memory instead (``release_gather``), as
another tree says, that of ``MPIR_CVAR_CH4_POSIX_COLL_SELECTION_TUNING_JSON_FILE``. It names nothing
else: where it finds nothing, the first tree decides. So it gets gaps where an algorithm was chosen,
and keeps the flags where the library's choice was. (src/mpi/coll/src/csel.c of MPICH 5.0.)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec

from mpicoll.errors import ArgumentError
from mpicoll.text.files import content_of
from mpicoll.tune.exports.choices import Choice

LIBRARY = "MPICH"
Tree = dict[str, Any]
_NAMES = {
    "allreduce": "allreduce", "broadcast": "bcast", "reduce": "reduce", "allgather": "allgather",
    "reduce_scatter": "reduce_scatter_block", "alltoall": "alltoall",
}  # fmt: skip
_PLAIN = {
    "recursive_doubling", "reduce_scatter_allgather", "ring", "binomial", "reduce_scatter_gather",
    "scatter_recursive_doubling_allgather", "scatter_ring_allgather", "brucks", "pairwise",
    "scattered", "recursive_halving",
}  # fmt: skip
"""Algorithms without parameters: the others need some in the tree."""
_FROM_POWER = {"reduce_scatter_allgather", "reduce_scatter_gather"}
"""Those that need an element for each rank of the largest power of two."""
_TOTAL = {"allgather", "reduce_scatter"}
"""Where conditions are on the bytes of all ranks; elsewhere on a vector's, or a row's."""
_REDUCING = {"allreduce", "reduce", "reduce_scatter"}


_POSIX = "allreduce", "broadcast", "reduce"
"""What has flags in shared memory; the device sends all others by algorithms of its own."""


def takes(collective: str, algorithm: str, variables: dict[str, str]) -> bool:
    """Whether the tree can name an algorithm."""
    return collective in _NAMES and algorithm in _PLAIN


def built_in(library: Path) -> Tree:
    """Return the tree in a libmpi.so, or in a file of JSON.

    Raises:
        ArgumentError: it cannot be read, or there is none.
    """
    found = _tree_with(b"algorithm=MPIR_Allreduce_intra_", content_of(library))
    if found is None:
        raise ArgumentError(f"{library} has no tree of algorithms: give the libmpi.so of an MPICH")
    return found


def built_in_posix(library: Path) -> Tree:
    """Return the tree of flags in shared memory, empty where the library has none."""
    return _tree_with(b"algorithm=MPIDI_POSIX_mpi_", content_of(library)) or {}


def _tree_with(word: bytes, content: bytes) -> Tree | None:
    start = content.find(b'{"collective=')
    while start >= 0:
        end = content.find(b"\0", start)
        text = content[start : end if end >= 0 else None]
        if word in text:
            try:
                return msgspec.json.decode(text, type=Tree)
            except (ValueError, RecursionError):
                break
        start = content.find(b'{"collective=', start + 1)
    return None


def tree(choices: Sequence[Choice], base: Tree) -> str:
    """Return the tree that takes the choices, and elsewhere what the built-in one takes.

    Raises:
        ArgumentError: the built-in tree has no such collective.
    """
    found = deepcopy(base)
    for name in dict.fromkeys(each.collective for each in choices):
        branch = found.get(f"collective={_NAMES[name]}")
        if not isinstance(branch, dict) or "comm_type=intra" not in branch:
            raise ArgumentError(f"the library's tree has no {_NAMES[name]}")
        own = branch["comm_type=intra"]
        by_size: Tree = {}
        for each in (each for each in choices if each.collective == name):
            by_size[f"comm_size<{each.ranks}"] = own
            by_size[f"comm_size<={each.ranks}"] = _chosen(each, own)
        by_size["comm_size=any"] = own
        branch["comm_type=intra"] = by_size
    return json.dumps(found, indent=1) + "\n"


def _chosen(choice: Choice, own: Tree) -> Tree:
    """Return the branch of one number of ranks."""
    total = choice.collective in _TOTAL
    rows = choice.ranks if choice.collective == "alltoall" else 1
    condition = "total_msg_size" if total else "avg_msg_size"
    ranges: Tree = {}
    for upto, algorithm, _ in choice.ranges:
        key = f"{condition}=any" if upto is None else f"{condition}<={upto // rows}"
        ranges[key] = own if algorithm is None else _leaf(choice.collective, algorithm, own)
    if choice.collective in _REDUCING:
        return {"is_commutative=yes": ranges, "is_commutative=no": own}
    return ranges


def _leaf(collective: str, algorithm: str, own: Tree) -> Tree:
    name = _NAMES[collective].capitalize()
    leaf: Tree = {f"algorithm=MPIR_{name}_intra_{algorithm}": {}}
    return {"count<pow2": own, "count=any": leaf} if algorithm in _FROM_POWER else leaf


def posix_tree(choices: Sequence[Choice], base: Tree) -> str | None:
    """Return the tree of flags with gaps for the choices, None where there is nothing to say."""
    found = deepcopy(base)
    names = [each for each in _through_posix(choices) if f"collective={_NAMES[each]}" in found]
    for name in names:
        branch = found[f"collective={_NAMES[name]}"]
        own = branch["comm_type=intra"]
        by_size: Tree = {}
        for each in (each for each in choices if each.collective == name):
            # When it looks a size up, 5.0 takes < for <=.
            by_size.setdefault(f"comm_size<={each.ranks - 1}", own)
            by_size[f"comm_size<={each.ranks}"] = {
                "avg_msg_size=any" if upto is None else f"avg_msg_size<={upto}":
                own if algorithm is None else {"comm_type=inter": own}
                for upto, algorithm, _ in each.ranges
            }  # fmt: skip
        by_size["comm_size=any"] = own
        # A branch that any program may take is searched as a whole, and may find nothing.
        branch["comm_type=intra"] = {"is_multi_threaded=no": by_size}
    return json.dumps(found, indent=1) + "\n" if names else None


def _through_posix(choices: Sequence[Choice]) -> list[str]:
    """Return the collectives whose choices are all for one node."""
    nodes = {name: {e.nodes for e in choices if e.collective == name} for name in _POSIX}
    return [name for name, found in nodes.items() if found == {1}]


def variables(
    choices: Sequence[Choice], path: Path, posix: Path | None = None
) -> dict[str, str]:  # fmt: skip
    """Return what to set, so that MPICH reads the trees.

    Its device leaves the choice to them: at once where there is no tree of flags.
    """
    read = _through_posix(choices) if posix else []
    names = dict.fromkeys(each.collective for each in choices if each.collective not in read)
    found = {"MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": str(path.resolve())}
    if posix:
        found["MPIR_CVAR_CH4_POSIX_COLL_SELECTION_TUNING_JSON_FILE"] = str(posix.resolve())
    return found | {f"MPIR_CVAR_{_NAMES[name].upper()}_DEVICE_COLLECTIVE": "0" for name in names}
