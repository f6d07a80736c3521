"""Libraries' own algorithms as candidates: the variables that force them, and their names here.

The facts are in ``libraries.toml``. A library is forced for a whole launch, so the algorithms of
several collectives share launches: the first of each, the second of each, and so on.

>>> found = forced("MPICH", "allreduce", "ring")
>>> found.ours, found.variables["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"]
('ring', 'ring')
>>> forced("Open MPI", "broadcast", "han_simple").variables["OMPI_MCA_coll_han_use_bcast_algorithm"]
'simple'
>>> [sorted(each) for each in variants("MPICH", ["reduce", "gather"], ["all"])]
[['gather', 'reduce'], ['reduce']]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from itertools import zip_longest

import msgspec
from msgspec import Struct, field

from mpicoll.errors import ArgumentError
from mpicoll.notation.contract import collective
from mpicoll.records.lines import Forced

ALL, FEW, NONE = "all", "few", "none"
_FEW = 3


class Rule(Struct, forbid_unknown_fields=True):
    """How the algorithms of a collective are forced.

    Attributes:
        variables: their values, with {} for the algorithm.
        algorithms: the library's names, each with ours, "" where there is none.
        numbers: what stands for a name in a variable, where that is no name.
        own: the variables of an algorithm that has others.
    """

    variables: dict[str, str]
    algorithms: dict[str, str]
    numbers: dict[str, int] = field(default_factory=dict)
    own: dict[str, dict[str, str]] = field(default_factory=dict)


class Library(Struct, forbid_unknown_fields=True):
    """A library; `vendor` is its name by mpi4py's `get_vendor`.

    Attributes:
        question: how it is asked what it runs, or that it cannot be asked.
        refusal: a pattern of what it prints where it takes another one; "": it prints nothing.
        variables: set with any of its algorithms.
    """

    vendor: str
    question: str
    collectives: dict[str, Rule]
    refusal: str = ""
    variables: dict[str, str] = field(default_factory=dict)


@cache
def libraries() -> dict[str, Library]:
    """Return every known library by its vendor."""
    content = resources.files(__package__).joinpath("libraries.toml").read_bytes()
    found = msgspec.toml.decode(content, type=dict[str, Library])
    return {each.vendor: each for each in found.values()}


def forced(vendor: str, name: str, algorithm: str) -> Forced:
    """Return how a library is told to run one of its algorithms.

    Raises:
        ArgumentError: the library, or its algorithm, is not known.
    """
    library = libraries().get(vendor)
    rule = library.collectives.get(name) if library else None
    if library is None or rule is None:
        raise ArgumentError(f"no variable is known that forces {vendor}'s {name}")
    if algorithm not in rule.algorithms:
        raise ArgumentError(
            f"{vendor}'s {name} has no algorithm {algorithm!r} that is known here: "
            f"{', '.join(rule.algorithms)}"
        )
    value = str(rule.numbers.get(algorithm, algorithm))
    given = rule.own.get(algorithm, rule.variables)
    own = {name: text.replace("{}", value) for name, text in given.items()}
    return Forced(
        algorithm, rule.algorithms[algorithm] or None, {**library.variables, **own},
        said=library.question,
    )  # fmt: skip


def variants(
    vendor: str, collectives: Sequence[str], names: Sequence[str]
) -> list[dict[str, Forced]]:
    """Return what each launch forces, by collective.

    Args:
        names: ``all`` that have a counterpart here, a ``few`` of these for each collective,
            ``none``, or ``allreduce=ring`` and alike.

    Raises:
        ArgumentError: a name is not known.
    """
    asked: dict[str, list[str]] = {}
    for each in names:
        if each == NONE:
            continue
        if each in (ALL, FEW):
            _add_all(asked, vendor, collectives, _FEW if each == FEW else None)
            continue
        name, _, algorithm = each.partition("=")
        if not algorithm:
            raise ArgumentError(
                f"{each!r} names no algorithm: write allreduce=ring, all, few or none"
            )
        asked.setdefault(collective(name).name, []).append(algorithm)
    columns = [
        [(name, forced(vendor, name, each)) for each in dict.fromkeys(found)]
        for name, found in asked.items() if name in collectives
    ]  # fmt: skip
    return [dict(filter(None, row)) for row in zip_longest(*columns)]


def _add_all(
    asked: dict[str, list[str]], vendor: str, collectives: Sequence[str], most: int | None
) -> None:
    library = libraries().get(vendor)
    for name in collectives:
        rule = library.collectives.get(name) if library else None
        ours = [each for each, own in rule.algorithms.items() if own] if rule else []
        asked.setdefault(name, []).extend(ours[:most])
