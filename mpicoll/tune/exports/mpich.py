"""MPICH's selection of algorithms: the trees of its three layers.

``MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE`` names the algorithms of MPIR. MPICH asks its device
first (``CH4``), which chooses a composition of parts between and within nodes. Within a node it
asks the POSIX layer, which has flags in shared memory (``release_gather``). If neither tree has an
entry, MPIR decides for the same ranks. The device's tree therefore gets a gap for each chosen
algorithm of MPIR.

A file replaces a built-in tree completely, and missing entries fall back to the slowest algorithm.
So each exported tree starts as a copy of the library's tree, which libmpi.so contains as text.
(src/mpi/coll/src/csel.c and src/mpid/ch4/src/ch4_coll.h of MPICH 5.0.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec

from mpicoll.errors import ArgumentError
from mpicoll.text.files import content_of
from mpicoll.tune.exports.choices import Choice

LIBRARY = "MPICH"
Tree = dict[str, Any]
Leaf = Callable[[str, str, Tree], Tree]
"""Returns the branch for an algorithm of a collective in a layer, from the built-in branch."""
_NAMES = {
    "allreduce": "allreduce", "broadcast": "bcast", "reduce": "reduce", "allgather": "allgather",
    "reduce_scatter": "reduce_scatter_block", "alltoall": "alltoall",
}  # fmt: skip
_PLAIN = {
    "recursive_doubling", "reduce_scatter_allgather", "ring", "binomial", "reduce_scatter_gather",
    "scatter_recursive_doubling_allgather", "scatter_ring_allgather", "brucks", "pairwise",
    "scattered", "recursive_halving", "noncommutative",
}  # fmt: skip
"""Algorithms without parameters; all others need parameters in the tree."""
_FROM_POWER = {"reduce_scatter_allgather", "reduce_scatter_gather"}
"""Algorithms that need one element for each rank of the largest power of two."""
_TOTAL = {"allgather", "reduce_scatter"}
"""Collectives whose conditions count the bytes of all ranks, not those of a vector or a row."""
_REDUCING = {"allreduce", "reduce", "reduce_scatter"}
_COMPOSITION = "composition_"
_WITHIN = {"mpir": "MPIR_{}_impl", "release_gather": "MPIDI_POSIX_mpi_{}_release_gather"}
"""Algorithms of the POSIX layer, with their names in its tree."""
_POSIX = "allreduce", "broadcast", "reduce"
MPIR, CH4, POSIX = "", ".ch4.json", ".posix.json"
"""The layers by the suffix of their file; the file of -o has that of MPIR."""
_VARIABLES = {
    MPIR: "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE",
    CH4: "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE",
    POSIX: "MPIR_CVAR_CH4_POSIX_COLL_SELECTION_TUNING_JSON_FILE",
}


def takes(collective: str, algorithm: str, variables: dict[str, str]) -> bool:
    """Whether the trees can name an algorithm."""
    return collective in _NAMES and (
        algorithm in _PLAIN
        or algorithm.startswith(_COMPOSITION)
        or (collective in _POSIX and algorithm in _WITHIN)
    )


def built_in(library: Path) -> Tree:
    """Return the tree in a libmpi.so, or in a file of JSON.

    Raises:
        ArgumentError: the file cannot be read, or has no tree.
    """
    branches = _tree_with(b"algorithm=MPIR_Allreduce_intra_", content_of(library))
    if branches is None:
        raise ArgumentError(f"{library} has no tree of algorithms: give the libmpi.so of an MPICH")
    return branches


def built_in_layers(library: Path) -> dict[str, Tree]:
    """Return the trees of the device and of its POSIX layer, as far as the library has them."""
    content = content_of(library)
    words = {CH4: b"composition=MPIDI_", POSIX: b"algorithm=MPIDI_POSIX_mpi_"}
    return {
        layer: branches for layer, word in words.items() if (branches := _tree_with(word, content))
    }


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
    """Return the built-in tree of MPIR with the choices added.

    Raises:
        ArgumentError: the built-in tree has no such collective.
    """
    for name in dict.fromkeys(_NAMES[choice.collective] for choice in choices):
        branch = base.get(f"collective={name}")
        if not isinstance(branch, dict) or "comm_type=intra" not in branch:
            raise ArgumentError(f"the library's tree has no {name}")
    return _change_tree(choices, base, _algorithm)


def layers(choices: Sequence[Choice], bases: Mapping[str, Tree]) -> dict[str, str]:
    """Return the changed trees of the other layers."""
    trees = {}
    if CH4 in bases:
        trees[CH4] = _change_tree(choices, bases[CH4], _composition)
    within = [
        choice for choice in choices if any(part.algorithm in _WITHIN for part in choice.ranges)
    ]
    if within and POSIX in bases:
        trees[POSIX] = _change_tree(within, bases[POSIX], _flags)
    return trees


def _change_tree(choices: Sequence[Choice], base: Tree, leaf: Leaf) -> str:
    changed = deepcopy(base)
    for name in dict.fromkeys(choice.collective for choice in choices):
        branch = changed.get(f"collective={_NAMES[name]}", {})
        default = branch.get("comm_type=intra")
        if default is None:
            continue
        by_size: Tree = {}
        for choice in (choice for choice in choices if choice.collective == name):
            ranks = choice.ranks // choice.nodes if leaf is _flags else choice.ranks
            # In a tree with gaps, MPICH 5.0 compares sizes by < instead of <=.
            by_size.setdefault(f"comm_size<={ranks - 1}", default)
            by_size[f"comm_size<={ranks}"] = _branch(choice, default, leaf)
        by_size["comm_size=any"] = default
        branch["comm_type=intra"] = by_size
    return json.dumps(changed, indent=1) + "\n"


def _branch(choice: Choice, default: Tree, leaf: Leaf) -> Tree:
    """Return the branch for one number of ranks."""
    total = choice.collective in _TOTAL
    rows = choice.ranks if choice.collective == "alltoall" else 1
    condition = "total_msg_size" if total else "avg_msg_size"
    ranges: Tree = {}
    for upto, algorithm, _ in choice.ranges:
        key = f"{condition}=any" if upto is None else f"{condition}<={upto // rows}"
        ranges[key] = default if algorithm is None else leaf(choice.collective, algorithm, default)
    if choice.collective in _REDUCING:
        return {"is_commutative=yes": ranges, "is_commutative=no": default}
    return ranges


def _algorithm(collective: str, algorithm: str, default: Tree) -> Tree:
    if algorithm not in _PLAIN:
        return default
    leaf: Tree = {f"algorithm=MPIR_{_function(collective)}_intra_{algorithm}": {}}
    return {"count<pow2": default, "count=any": leaf} if algorithm in _FROM_POWER else leaf


def _composition(collective: str, algorithm: str, default: Tree) -> Tree:
    if algorithm in _PLAIN:
        return {"comm_type=inter": default}  # never true: a gap
    if collective == "broadcast" and algorithm in _WITHIN:
        algorithm = "composition_beta"  # other compositions may skip the POSIX layer
    if not algorithm.startswith(_COMPOSITION):
        return default
    return {f"composition=MPIDI_{_function(collective)}_intra_{algorithm}": {}}


def _flags(collective: str, algorithm: str, default: Tree) -> Tree:
    if algorithm not in _WITHIN:
        return default
    flags = algorithm == "release_gather"
    name = _NAMES[collective] if flags else _function(collective)
    leaf: Tree = {f"algorithm={_WITHIN[algorithm].format(name)}": {}}
    return {"is_multi_threaded=no": leaf} if flags else leaf


def _function(collective: str) -> str:
    return _NAMES[collective].capitalize()


def variables(choices: Sequence[Choice], paths: Mapping[str, Path]) -> dict[str, str]:
    """Return the variables by which MPICH reads the trees of these layers.

    A device without a tree leaves the choice to MPIR.
    """
    settings = {_VARIABLES[layer]: str(path.resolve()) for layer, path in paths.items()}
    names = [] if CH4 in paths else [_NAMES[choice.collective].upper() for choice in choices]
    return settings | {f"MPIR_CVAR_{name}_DEVICE_COLLECTIVE": "0" for name in names}
