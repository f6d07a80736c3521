"""Libraries' own algorithms as candidates: the variables that force them, and their names here.

The facts are in ``libraries.toml``. Variables hold for a whole launch, so several collectives share
launches: one launch forces the first algorithm of each collective, the next one the second, and so
on.

>>> how = force_algorithm("MPICH", "allreduce", "ring")
>>> how.ours, how.variables["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"]
('ring', 'ring')
>>> variables = force_algorithm("Open MPI", "broadcast", "han_simple").variables
>>> variables["OMPI_MCA_coll_han_use_bcast_algorithm"]
'simple'
>>> force_algorithm("NCCL", "allreduce", "tree_ll").variables
{'NCCL_ALGO': 'allreduce:tree', 'NCCL_PROTO': 'allreduce:ll'}
>>> [sorted(variant) for variant in variants("MPICH", ["reduce", "gather"], ["all"])]
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
    """The variables that force some algorithms of a collective.

    Attributes:
        variables: texts with {} for the algorithm, or with {0} and {1} for the parts of its name
            before and after the underscore.
        algorithms: the library's names, each with mpicoll's name, "" without a counterpart.
        values: the text of a name in a variable, if it differs from the name.
        presets: the largest number that a variable takes; numbers without a name are preset_N.
    """

    variables: dict[str, str]
    algorithms: dict[str, str]
    values: dict[str, int | str] = field(default_factory=dict)
    presets: int = 0

    @property
    def names(self) -> dict[str, str]:
        """The library's names, including presets, each with mpicoll's name."""
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
        question: how the study asks the library which algorithm ran, or that it cannot.
        refusal: pattern of the message that refuses an algorithm; "": there is no message.
        at_start: the library prints that message at start-up, not in a call.
        runs: pattern of the message about a call, with the function and the fields of `named`.
        named: format of the name of a reported algorithm.
        asking: variables of the launch that asks the library, in which nothing is timed.
        variables: set with any of its algorithms.
        shared_variables: variables with the texts of several collectives, separated by semicolons.
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
        """Whether the library reports or refuses algorithms."""
        return bool(self.refusal or self.runs)


@cache
def libraries() -> dict[str, Library]:
    """Return every known library by its vendor."""
    content = resources.files(__package__).joinpath("libraries.toml").read_bytes()
    by_name = msgspec.toml.decode(content, type=dict[str, Library])
    return {library.vendor: library for library in by_name.values()}


def algorithms_of(vendor: str, name: str) -> dict[str, str]:
    """Return the names of a library's algorithms for a collective, each with mpicoll's name."""
    library = libraries().get(vendor)
    rules = library.collectives.get(name, []) if library else []
    return {
        library_name: counterpart
        for rule in rules
        for library_name, counterpart in rule.names.items()
    }


def force_algorithm(vendor: str, name: str, algorithm: str) -> Forced:
    """Return the variables that force one of a library's algorithms.

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
        names: ``every`` known one, ``all`` with a counterpart in mpicoll, a ``few`` of these for
            each collective, ``none``, or names as ``allreduce=ring``.

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
        [(name, force_algorithm(vendor, name, choice)) for choice in dict.fromkeys(choices)]
        for name, choices in wanted.items() if name in collectives
    ]  # fmt: skip
    return [dict(filter(None, row)) for row in zip_longest(*columns)]
