"""The registry: every algorithm under its collective and name, with its parameters.

An algorithm is a generator function ``name(rank, size[, root][, nodes][, counts], **parameters)``
registered by `algorithm`; it is found again by `find("broadcast", "knomial(radix=8)")`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from mpicoll.errors import ArgumentError, UnknownName, Unsupported, brief
from mpicoll.notation.contract import COLLECTIVES, Collective, collective
from mpicoll.notation.schedule import Round, Schedule, rounds
from mpicoll.notation.sweep import DEEPEST, LONGEST, depth, outside_brackets

Nodes = tuple[tuple[int, ...], ...]
Rows = Sequence[int]
"""Every rank's number of rows."""
Pairs = Sequence[Sequence[int]]
"""``counts[source][target]`` rows."""
Counts = Rows | Pairs
Blocks = int | str | Callable[..., int]

MAX_BLOCKS = 16384
"""The largest parameter, and the most blocks that parameters may cut a vector into."""


@dataclass(frozen=True)
class Constraint:
    """Which numbers of ranks an algorithm serves, as the argument ``needs`` of `algorithm`.

    >>> power_of_two.text, power_of_two.holds(8), even.holds(5)
    ('a power of two of ranks', True, False)
    """

    text: str
    holds: Callable[[int], bool] = field(repr=False)


any_size = Constraint("any number of ranks", lambda size: True)
even = Constraint("an even number of ranks", lambda size: size % 2 == 0 or size == 1)
power_of_two = Constraint("a power of two of ranks", lambda size: size & (size - 1) == 0)
power_of_three = Constraint("a power of three of ranks", lambda size: 3**40 % size == 0)
Needs = Constraint | Callable[..., Constraint]
"""The numbers of ranks served; where they depend on parameters, a function of these."""


@dataclass(frozen=True, repr=False)
class Algorithm:
    """A registered generator together with chosen parameters.

    >>> ring = find("allreduce", "ring")
    >>> ring, ring.needs.text, ring.takes("root")
    (<Algorithm allreduce ring>, 'any number of ranks', False)
    >>> ring.summary.endswith(".")
    True
    """

    collective: Collective
    name: str
    generator: Callable[..., Schedule]
    block_count: Blocks = "size"
    rule: Needs = any_size
    parameters: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.collective.name} {self}>"

    def __str__(self) -> str:
        parameters = ((key, value) for key, value in self.parameters.items() if value != "")
        inner = ",".join(f"{key}={value}" for key, value in parameters)
        return f"{self.name}({inner})" if inner else self.name

    def _repr_html_(self) -> str:
        from mpicoll.text import pictures

        text: str = pictures.notebook().algorithm_html(self)
        return text

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.generator) or "").split("\n", 1)[0]

    @property
    def needs(self) -> Constraint:
        """The numbers of ranks it serves."""
        return self.rule if isinstance(self.rule, Constraint) else self.rule(**self.parameters)

    def blocks(self, size: int) -> int:
        """Return the number of blocks that the vector, or all rows, are cut into.

        >>> find("allreduce", "ring").blocks(4), find("broadcast", "chain(segments=32)").blocks(4)
        (4, 32)
        """
        if self.collective.unit not in ("vector", "rows"):
            return size
        if self.block_count == "size":
            return size
        if isinstance(self.block_count, int):
            return self.block_count
        if callable(self.block_count):
            return self.block_count(size, **self.parameters)
        return int(self.parameters[self.block_count])

    def serve(self, size: int) -> None:
        """Check that this algorithm can serve `size` ranks.

        >>> find("allreduce", "ring").serve(5)

        Raises:
            Unsupported: it cannot.
        """
        if not self.needs.holds(size):
            raise Unsupported(
                f"{self.collective.name} algorithm {self} needs {self.needs.text}, not {size}"
            )

    @property
    def is_catalogued(self) -> bool:
        """Whether it is one of mpicoll's own, which the tests prove, and not a user's.

        >>> find("allreduce", "ring").is_catalogued
        True
        """
        return _is_catalogued(self.generator)

    def takes(self, context: str) -> bool:
        """Whether the schedule depends on ``root``, ``nodes`` or ``counts``."""
        return context in _signature(self.generator)

    def _equal_counts(self, size: int) -> Counts:
        ones = (1,) * size
        return (ones,) * size if self.collective.unit == "pairs" else ones

    def rounds(
        self, rank: int, size: int, root: int = 0, nodes: Nodes | None = None,
        counts: Counts | None = None,
    ) -> list[Round]:  # fmt: skip
        """Return the schedule of one rank.

        >>> for step in find("broadcast", "binomial").rounds(0, 4):
        ...     print(*step)
        send(2, 0)
        send(1, 0)

        Args:
            nodes: the ranks of each node, for node-aware algorithms; one node by default.
            counts: every rank's rows, or for alltoall ``counts[source][target]``, for
                size-aware algorithms; one each by default.

        Raises:
            ArgumentError: there is no such rank or root.
            Unsupported: the algorithm cannot serve this size, or needs more than `MAX_BLOCKS`
                blocks.
        """
        return rounds(self.schedule(rank, size, root, nodes, counts))

    def schedule(
        self, rank: int, size: int, root: int = 0, nodes: Nodes | None = None,
        counts: Counts | None = None,
    ) -> Schedule:  # fmt: skip
        """Return the schedule as a generator, for those too long to be held.

        >>> steps = find("broadcast", "binomial").schedule(0, 4)
        >>> next(steps)
        (Send(peer=2, blocks=(0,)),)
        """
        for name, number in (("rank", rank), ("root", root)):
            if not 0 <= number < size:
                raise ArgumentError(f"{name} {number} is not one of {size} ranks")
        self.serve(size)
        if self.parameters and (blocks := self.blocks(size)) > max(MAX_BLOCKS, size):
            raise Unsupported(
                f"{self.collective.name} algorithm {self} would cut the vector into {blocks} "
                f"blocks: at most {MAX_BLOCKS}"
            )
        wanted: dict[str, Any] = {}
        if self.takes("root"):
            wanted["root"] = root
        if self.takes("nodes"):
            wanted["nodes"] = nodes or (tuple(range(size)),)
        if self.takes("counts"):
            wanted["counts"] = counts or self._equal_counts(size)
        keywords = wanted | self.parameters
        if self.is_catalogued:
            return self.generator(rank, size, **keywords)
        from mpicoll.algorithms.checked_schedule import checked_schedule

        return checked_schedule(self.generator, rank, size, keywords)

    def show(self, rank: int, size: int, **context: Any) -> None:
        """Print the schedule of one rank, a line for each round; `context` as in `rounds`.

        >>> find("broadcast", "binomial").show(3, 4)
        recv(2, 0)
        """
        for step in self.rounds(rank, size, **context):
            print(*step)


def _is_catalogued(generator: Callable[..., Schedule]) -> bool:
    return generator.__module__.startswith("mpicoll.algorithms.")


_CONTEXT = ("rank", "size", "root", "nodes", "counts")
_REGISTRY: dict[str, dict[str, Algorithm]] = {name: {} for name in COLLECTIVES}
_ALIASES: dict[tuple[str, str], str] = {}


@functools.cache
def _signature(generator: Callable[..., Schedule]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(generator).parameters)


def algorithm(
    of: str,
    *,
    name: str | None = None,
    blocks: Blocks = "size",
    needs: Needs = any_size,
    aliases: tuple[str, ...] = (),
) -> Callable[[Callable[..., Schedule]], Callable[..., Schedule]]:
    """Register a generator as an algorithm of collective `of`.

    The generator is called as ``name(rank, size[, root][, nodes][, counts], **parameters)`` and
    yields the rounds of one rank.

    >>> from mpicoll.notation.schedule import recv, send
    >>> def ladder(rank, size, root):
    ...     if rank != root:
    ...         yield recv((rank - 1) % size, 0)
    ...     if (rank + 1) % size != root:
    ...         yield send((rank + 1) % size, 0)
    >>> register = algorithm("broadcast", blocks=1)  # as a decorator: @algorithm(...)
    >>> callable(register)
    True

    Args:
        of: the collective.
        name: the generator's own name by default.
        blocks: the number of blocks that a vector is cut into, by default one per rank. It is a
            number, the name of a parameter, or a function of the number of ranks and the
            parameters. Rows are cut evenly: a multiple of the number of ranks. Pairs are not cut.
        needs: the numbers of ranks it serves, or a function of the parameters that says it.
        aliases: further names; an alias may fix parameters, as in ``"tree(radix=2)"``,
            written ``"alias=target"``.

    Raises:
        UnknownName: there is no such collective.
        ArgumentError: another algorithm has the name, or a parameter has no default.
    """
    contract = collective(of)

    def register(generator: Callable[..., Schedule]) -> Callable[..., Schedule]:
        plain_name = name or generator.__name__
        targets = {
            alias.partition("=")[0]: alias.partition("=")[2] or plain_name for alias in aliases
        }
        if not _is_catalogued(generator):
            _load_catalogue()  # whose names are taken
        _check_names(contract.name, generator, plain_name, targets)
        parameters = _defaults(generator)
        is_number = isinstance(blocks, int) and blocks >= 1
        if not is_number and not callable(blocks) and blocks not in ("size", *parameters):
            raise ArgumentError(
                f"blocks of {plain_name} must be a number of at least 1, a parameter, or a "
                f"function, not {blocks!r}"
            )
        _REGISTRY[contract.name][plain_name] = Algorithm(
            contract, plain_name, generator, blocks, needs, parameters
        )
        _ALIASES.update({(contract.name, alias): target for alias, target in targets.items()})
        _find.cache_clear()
        return generator

    return register


def _check_names(
    of: str, generator: Callable[..., Schedule], name: str, targets: Mapping[str, str]
) -> None:
    """Raise ArgumentError for a name of another algorithm; a module may register its own again."""
    entry = _REGISTRY[of].get(name)
    is_same = entry is not None and entry.generator.__module__ == generator.__module__
    is_taken = (entry is not None and not is_same) or (of, name) in _ALIASES
    taken = [name] if is_taken else []
    taken += [
        alias for alias, target in targets.items()
        if alias in _REGISTRY[of] or _ALIASES.get((of, alias), target) != target
    ]  # fmt: skip
    if taken:
        raise ArgumentError(f"{of} already has an algorithm {taken[0]!r}: choose another name")


def _defaults(generator: Callable[..., Schedule]) -> dict[str, int | str]:
    """Return the parameters of an algorithm with their defaults.

    Raises:
        ArgumentError: the generator cannot be called as an algorithm.
    """
    signature = _signature(generator)
    if [*signature][:2] != ["rank", "size"]:
        raise ArgumentError(f"{generator.__name__} must take rank and size first")
    defaults = {
        key: parameter.default for key, parameter in signature.items() if key not in _CONTEXT
    }
    for key, value in defaults.items():
        if type(value) not in (int, str):
            raise ArgumentError(
                f"{key} of {generator.__name__} needs a default, a whole number or a name; only "
                f"{', '.join(_CONTEXT)} have none"
            )
    return defaults


@functools.cache
def _load_catalogue() -> None:
    from pkgutil import iter_modules

    for module in iter_modules(sys.modules[__package__].__path__, f"{__package__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


@functools.cache
def _load() -> None:
    from mpicoll.algorithms.user_files import load_files

    _load_catalogue()
    load_files(lambda: sum(map(len, _REGISTRY.values())))


@functools.cache
def _load_installed() -> None:
    from mpicoll.algorithms.user_files import load_installed

    _load()
    load_installed()


def algorithms(of: str) -> Iterator[Algorithm]:
    """Yield every algorithm of a collective, with default parameters.

    >>> sum(entry.name == "ring" for entry in algorithms("allreduce"))
    1
    """
    _load_installed()
    return iter(_REGISTRY[collective(of).name].values())


def aliases(of: str) -> dict[str, str]:
    """Return the aliases of a collective's algorithms, each with the name that it stands for.

    >>> aliases("broadcast")["pipeline"]
    'chain'
    """
    _load()
    return {alias: to for (owner, alias), to in _ALIASES.items() if owner == collective(of).name}


def find(of: str, text: str) -> Algorithm:
    """Return the algorithm that `text` names, with the parameters it gives.

    >>> str(find("broadcast", "knomial(radix=8)"))
    'knomial(radix=8)'

    Raises:
        UnknownName: the collective has no such algorithm.
        ArgumentError: a parameter is unknown, or its value is out of range.
    """
    name = collective(of).name
    if os.environ.get("MPICOLL_LOAD"):
        _load()  # an error of a user's file comes first
    else:
        importlib.import_module(f"mpicoll.algorithms.{name}")
    # The file of the collective has most names. Only a name that is not ours costs a look at all
    # installed packages.
    for load in (_load, _load_installed):
        with suppress(UnknownName):
            return _find(name, text)
        load()
    return _find(name, text)


@functools.lru_cache(maxsize=1024)
def _find(of: str, text: str) -> Algorithm:
    contract = collective(of)
    name, chosen = parse(text)
    if (target := _ALIASES.get((contract.name, name))) is not None:
        name, fixed = parse(target)
        chosen = {**fixed, **chosen}
    entries = _REGISTRY[contract.name]
    if name not in entries:
        raise UnknownName(f"{contract.name} algorithm", text, [*entries, *aliases(contract.name)])
    entry = entries[name]
    for key, value in chosen.items():
        if key not in entry.parameters:
            choices = ", ".join(entry.parameters) or "none"
            raise ArgumentError(
                f"{contract.name} algorithm {name} has no {key!r}: it takes {choices}"
            )
        default = entry.parameters[key]
        if type(value) is not type(default):
            kind = {int: "a whole number", str: "a name"}[type(default)]
            raise ArgumentError(f"{key} of {name} must be {kind}, not {brief(value)}")
        if isinstance(default, int):
            minimum = 2 if key == "radix" else min(1, default)
            if not minimum <= value <= MAX_BLOCKS:
                bound = f"least {minimum}" if value < minimum else f"most {MAX_BLOCKS}"
                raise ArgumentError(f"{key} of {name} must be at {bound}, not {brief(value)}")
    return replace(entry, parameters={**entry.parameters, **chosen})


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``name(key=value,...)``; a value is a whole number, a name, or again of this form.

    >>> parse("chain(segments=32)")
    ('chain', {'segments': 32})
    >>> parse("reduce+broadcast(over=tree)")
    ('reduce+broadcast', {'over': 'tree'})

    Raises:
        ArgumentError: the text has no such form, or is longer or deeper than any algorithm.
    """
    if len(text) > LONGEST:
        raise ArgumentError(f"algorithm {brief(text)} is longer than {LONGEST} characters")
    if depth(text) > DEEPEST:
        raise ArgumentError(f"algorithm {brief(text)} has more than {DEEPEST} levels of brackets")
    return _parse(re.sub(r"\s*([(),=])\s*", r"\1", text.strip()), text)


def _parse(part: str, text: str) -> tuple[str, dict[str, Any]]:
    if "(" not in part:
        return part, {}
    form = re.fullmatch(r"([^()=,\s]*)\((\S*)\)", part)
    inner = form[2] if form else ""
    pairs = [pair.partition("=") for pair in outside_brackets(inner, ",")] if inner else []
    keys = {key for key, sign, value in pairs if key.isidentifier() and value}
    if not form or len(keys) < len(pairs):
        raise ArgumentError(
            f"algorithm {brief(text)} is not of the form name(key=value,...), each key once"
        )
    return form[1], {key: _value(value, text) for key, _, value in pairs}


def _value(value: str, text: str) -> int | str:
    if re.fullmatch("[+-]?[0-9]+", value):
        return int(value)
    quoted = re.fullmatch(r"""(['"])(.*)\1""", value)
    value = quoted[2] if quoted else value
    _parse(value, text)
    return value
