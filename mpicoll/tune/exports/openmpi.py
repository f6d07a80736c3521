"""Open MPI's rules for coll_tuned: files of versions 4 and 5, and JSON from 6 on.

Files have version 1, or version 2 if a rule has the maximum of requests of an alltoall. A rule
holds from a number of ranks upwards. Numbers of ranks that were not measured therefore get rule 0,
the library's own decision. From release 6 on, ranges of files are shifted by one entry, so that
release gets JSON, whose ranges have both ends.

On several nodes Open MPI asks coll_han first, which has a separate file. It passes the calls of a
range to coll_tuned, or decides by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpicoll.tune.exports.choices import Choice, Range, starts

LIBRARY = "Open MPI"
_IDS = {
    "allgather": 0, "allreduce": 2, "alltoall": 3, "broadcast": 7, "reduce": 11,
    "reduce_scatter": 13,
}  # fmt: skip
_NAMES = {"broadcast": "bcast", "reduce_scatter": "reduce_scatter_block"}
_ALGORITHMS = {
    "allgather": {"bruck": 2, "recursive_doubling": 3, "ring": 4, "neighbor": 5, "sparbit": 7},
    "allreduce": {
        "basic_linear": 1, "nonoverlapping": 2, "recursive_doubling": 3, "ring": 4,
        "segmented_ring": 5, "rabenseifner": 6,
    },
    "alltoall": {"linear": 1, "pairwise": 2, "modified_bruck": 3, "linear_sync": 4},
    "broadcast": {
        "basic_linear": 1, "chain": 2, "pipeline": 3, "split_binary_tree": 4, "binary_tree": 5,
        "binomial": 6, "knomial": 7, "scatter_allgather": 8, "scatter_allgather_ring": 9,
    },
    "reduce": {
        "linear": 1, "chain": 2, "pipeline": 3, "binary": 4, "binomial": 5,
        "in-order_binary": 6, "rabenseifner": 7,
    },
    "reduce_scatter": {
        "basic_linear": 1, "recursive_doubling": 2, "recursive_halving": 3, "butterfly": 4,
    },
}  # fmt: skip
"""The library's names and numbers, as `ompi_info --param coll tuned --level 9` lists them."""

_FAN = {("broadcast", "chain"): 4, ("reduce", "chain"): 4}
"""The fan that the variables of a study use; 0 in a rule means a fan of 1."""
_RADIX = {("allgather", "bruck"): 2}
"""From release 6 on the algorithm takes any radix, and 0 in a rule makes it run forever."""
_REQUESTS = "OMPI_MCA_coll_tuned_alltoall_algorithm_max_requests"
_SYNC = "linear_sync"
_HAN = {"allgather", "allreduce", "broadcast", "reduce"}
"""Collectives that coll_han runs on several nodes, unless it passes them to coll_tuned."""
_OF_HAN = "han_"
HAN_RULES = ".han.rules"
"""Suffix of the file for coll_han."""


def takes(collective: str, algorithm: str, variables: dict[str, str]) -> bool:
    """Whether the rules can name an algorithm."""
    if algorithm.startswith(_OF_HAN):
        return collective in _HAN
    return _plain(algorithm) in _ALGORITHMS.get(collective, {}) and (
        _REQUESTS not in variables or variables[_REQUESTS].isdecimal()
    )


def _plain(algorithm: str) -> str:
    """Return the library's name without the number of requests."""
    return _SYNC if algorithm.startswith(_SYNC) else algorithm


def _number(collective: str, algorithm: str | None) -> int:
    """Return an algorithm's number for coll_tuned, 0 for the library's own decision."""
    if algorithm is None or algorithm.startswith(_OF_HAN):
        return 0
    return _ALGORITHMS[collective][_plain(algorithm)]


def rules(choices: Sequence[Choice]) -> str:
    """Return a file of rules for Open MPI 4 and 5."""
    names = [*dict.fromkeys(choice.collective for choice in choices)]
    has_requests = any(_REQUESTS in part.variables for choice in choices for part in choice.ranges)
    lines = ["rule-file-version-2"] if has_requests else []
    lines.append(f"{len(names)} # collectives")
    for name in names:
        sizes = _sizes([choice for choice in choices if choice.collective == name])
        lines += [f"{_IDS[name]} # {name}", f"{len(sizes)} # numbers of ranks"]
        for ranks, choice in sizes.items():
            ranges = choice.ranges if choice else [Range(None, None, {})]
            lines += [f"{ranks} # ranks and more", f"{len(ranges)} # sizes"]
            for start, entry in starts(ranges):
                fan = _FAN.get((name, entry.algorithm or ""), 0)
                number = _number(name, entry.algorithm)
                parts = (start, number, fan, 0, entry.variables.get(_REQUESTS))
                numbers = " ".join(str(part) for part in parts if part is not None)
                lines.append(f"{numbers} # {entry.algorithm or 'its own choice'}")
    return "\n".join(lines) + "\n"


def han_rules(choices: Sequence[Choice]) -> str | None:
    """Return a file of rules for coll_han, None without a choice for several nodes."""
    wide = [choice for choice in choices if choice.nodes > 1 and choice.collective in _HAN]
    names = [*dict.fromkeys(choice.collective for choice in wide)]
    lines = [f"{len(names)} # collectives"]
    for name in names:
        sizes = _sizes([choice for choice in wide if choice.collective == name])
        lines += [_NAMES.get(name, name), "1 # level", "global_communicator"]
        lines += [f"{len(sizes)} # numbers of ranks"]
        for ranks, choice in sizes.items():
            ranges = choice.ranges if choice else [Range(None, None, {})]
            # For an allgather HAN counts the bytes of one rank.
            parts = ranks if name == "allgather" else 1
            lines += [f"{max(1, ranks)} # ranks and more", f"{len(ranges)} # sizes"]
            lines += [f"{-(-start // max(1, parts))} {_module(part)}"
                      for start, part in starts(ranges)]  # fmt: skip
    return "\n".join(lines) + "\n" if names else None


def _module(chosen: Range) -> str:
    """Return the module that coll_han runs: itself, one of its algorithms, or coll_tuned."""
    if chosen.algorithm is None:
        return "han"
    is_own = chosen.algorithm.startswith(_OF_HAN)
    return f"han @{chosen.algorithm.removeprefix(_OF_HAN)}" if is_own else "tuned"


def _sizes(choices: Sequence[Choice]) -> dict[int, Choice | None]:
    """Return the choice from each number of ranks upwards, None if the library decides."""
    by_ranks: dict[int, Choice | None] = {0: None}
    for choice in sorted(choices, key=lambda choice: choice.ranks):
        by_ranks |= {choice.ranks: choice, choice.ranks + 1: None}
    return by_ranks


def json_rules(choices: Sequence[Choice]) -> str:
    """Return rules for Open MPI 6, as JSON (docs/tuning-apps/tuned_dynamic_file_schema.json there).

    Algorithms are numbers: a release that has renamed an algorithm would ignore a rule by name.
    """
    collectives: dict[str, list[object]] = {}
    for choice in choices:
        entries = [
            {
                "msg_size_min": start,
                "msg_size_max": "inf" if part.upto is None else part.upto,
                **_parameters(choice.collective, part),
            }
            for start, part in starts(choice.ranges)
            if _number(choice.collective, part.algorithm)
        ]
        name = _NAMES.get(choice.collective, choice.collective)
        collectives.setdefault(name, []).append(
            {"comm_size_min": choice.ranks, "comm_size_max": choice.ranks, "rules": entries}
        )
    document = {"rule_file_version": 3, "module": "tuned", "collectives": collectives}
    return json.dumps(document, indent=1) + "\n"


def _parameters(collective: str, chosen: Range) -> dict[str, int]:
    """Return the number of an algorithm and its parameters, as fields of a JSON rule."""
    place = collective, chosen.algorithm or ""
    parameters = {"faninout": _FAN.get(place) or _RADIX.get(place),
                  "reqs": chosen.variables.get(_REQUESTS)}  # fmt: skip
    present = {name: int(value) for name, value in parameters.items() if value}
    return {"alg": _number(collective, chosen.algorithm), **present}


def variables(paths: Mapping[str, Path]) -> dict[str, str]:
    """Return the variables by which Open MPI reads the rules of coll_tuned and coll_han."""
    settings = {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_dynamic_rules_filename": str(paths[""].resolve()),
    }
    if HAN_RULES in paths:
        settings |= {
            "OMPI_MCA_coll_han_use_dynamic_file_rules": "1",
            "OMPI_MCA_coll_han_dynamic_rules_filename": str(paths[HAN_RULES].resolve()),
        }
    return settings
