"""Libraries' own algorithms as candidates: the variables that force them, and their names here.

The facts are in ``libraries.toml``. A library is forced for a whole launch, so the algorithms of
several collectives share launches: the first of each, the second of each, and so on.

>>> found = forced("MPICH", "allreduce", "ring")
>>> found.ours, found.variables["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"]
('ring', 'ring')
>>> forced("Open MPI", "broadcast", "han_simple").variables["OMPI_MCA_coll_han_use_bcast_algorithm"]
'simple'
>>> forced("NCCL", "allreduce", "tree_ll").variables
{'NCCL_ALGO': 'allreduce:tree', 'NCCL_PROTO': 'allreduce:ll'}
>>> [sorted(each) for each in variants("MPICH", ["reduce", "gather"], ["all"])]
[['gather', 'reduce'], ['reduce']]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from itertools import zip_longest

import msgspec
from msgspec import Struct, field

from mpicoll.errors import ArgumentError
from mpicoll.notation.contract import collective
from mpicoll.records.lines import Forced

EVERY, ALL, A_FEW, NONE = "every", "all", "few", "none"
_FEW_COUNT = 3
_PRESET = "preset_"


class Rule(Struct, forbid_unknown_fields=True):
    """How some algorithms of a collective are forced.

    Attributes:
        variables: their texts, with {} for the algorithm, or {0} and {1} for the parts of its name
            before and after the underscore.
        algorithms: the library's names, each with ours, "" where there is none.
        values: what stands for a name in a variable, where that is not the name.
        presets: the largest number that a variable takes; numbers without a name are preset_N.
    """

    variables: dict[str, str]
    algorithms: dict[str, str]
    values: dict[str, int | str] = field(default_factory=dict)
    presets: int = 0

    @property
    def names(self) -> dict[str, str]:
        """The library's names, those of presets among them, each with ours."""
        named = {*self.values.values()}
        numbers = [number for number in range(1, self.presets + 1) if number not in named]
        return self.algorithms | dict.fromkeys((f"{_PRESET}{number}" for number in numbers), "")

    def texts(self, algorithm: str) -> dict[str, str]:
        """Return the variables that force an algorithm."""
        value = str(self.values.get(algorithm, algorithm.removeprefix(_PRESET)))
        first, _, second = value.partition("_")
        parts = (("{}", value), ("{0}", first), ("{1}", second))
        texts = dict(self.variables)
        for mark, text in parts:
            texts = {name: pattern.replace(mark, text) for name, pattern in texts.items()}
        return texts


class Library(Struct, forbid_unknown_fields=True):
    """A library; `vendor` is its name by mpi4py's `get_vendor`, or by torch.distributed's backend.

    Attributes:
        question: how it is asked what it runs, or that it cannot be asked.
        refusal: a pattern of what it prints where it takes another one; "": it prints nothing.
        at_start: it prints that as it starts, not with a call.
        runs: a pattern of what it prints of a call, with the function and what `named` has.
        named: how an algorithm is called here that it says it ran.
        asking: variables set where it is asked, and nothing is timed.
        variables: set with any of its algorithms.
        joined: variables that have texts of several collectives, with semicolons between.
    """

    vendor: str
    question: str
    collectives: dict[str, list[Rule]]
    refusal: str = ""
    at_start: bool = False
    runs: str = ""
    named: str = ""
    asking: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    shared_variables: list[str] = field(default_factory=list)

    @property
    def can_be_asked(self) -> bool:
        """Whether it prints the algorithm that it runs, or the one that it does not."""
        return bool(self.refusal or self.runs)


@cache
def libraries() -> dict[str, Library]:
    """Return every known library by its vendor."""
    content = resources.files(__package__).joinpath("libraries.toml").read_bytes()
    by_name = msgspec.toml.decode(content, type=dict[str, Library])
    return {library.vendor: library for library in by_name.values()}


def algorithms_of(vendor: str, name: str) -> dict[str, str]:
    """Return the names of a library's algorithms for a collective, each with ours."""
    library = libraries().get(vendor)
    rules = library.collectives.get(name, []) if library else []
    return {
        library_name: counterpart
        for rule in rules
        for library_name, counterpart in rule.names.items()
    }


def forced(vendor: str, name: str, algorithm: str) -> Forced:
    """Return how a library is told to run one of its algorithms.

    Raises:
        ArgumentError: the library, or its algorithm, is not known.
    """
    algorithms = algorithms_of(vendor, name)
    if not algorithms:
        raise ArgumentError(f"no variable is known that forces {vendor}'s {name}")
    if algorithm not in algorithms:
        raise ArgumentError(
            f"{vendor}'s {name} has no algorithm {algorithm!r} that is known here: "
            f"{', '.join(algorithms)}"
        )
    library = libraries()[vendor]
    rule = next(entry for entry in library.collectives[name] if algorithm in entry.names)
    variables = library.variables | rule.texts(algorithm)
    return Forced(algorithm, algorithms[algorithm] or None, variables, said=library.question)


def variables_of(vendor: str, forced: Iterable[Forced]) -> dict[str, str]:
    """Return the variables that force algorithms of several collectives at once."""
    shared = libraries()[vendor].shared_variables if vendor in libraries() else []
    variables: dict[str, str] = {}
    for how in forced:
        for name, text in how.variables.items():
            prefix = f"{variables[name]};" if name in shared and name in variables else ""
            variables[name] = prefix + text
    return variables


def variants(
    vendor: str, collectives: Sequence[str], names: Sequence[str]
) -> list[dict[str, Forced]]:
    """Return the algorithm that each launch forces, by collective.

    Args:
        names: ``every`` one that is known, ``all`` that have a counterpart here, a ``few`` of these
            for each collective, ``none``, or ``allreduce=ring`` and alike.

    Raises:
        ArgumentError: a name is not known.
    """
    wanted: dict[str, list[str]] = {}
    for text in names:
        if text == NONE:
            continue
        if text in (EVERY, ALL, A_FEW):
            for name in collectives:
                algorithms = algorithms_of(vendor, name).items()
                chosen = [
                    library_name
                    for library_name, counterpart in algorithms
                    if counterpart or text == EVERY
                ]
                wanted.setdefault(name, []).extend(chosen[: _FEW_COUNT if text == A_FEW else None])
            continue
        name, _, algorithm = text.partition("=")
        if not algorithm:
            raise ArgumentError(
                f"{text!r} names no algorithm: write allreduce=ring, every, all, few or none"
            )
        wanted.setdefault(collective(name).name, []).append(algorithm)
    columns = [
        [(name, forced(vendor, name, choice)) for choice in dict.fromkeys(choices)]
        for name, choices in wanted.items() if name in collectives
    ]  # fmt: skip
    return [dict(filter(None, row)) for row in zip_longest(*columns)]
