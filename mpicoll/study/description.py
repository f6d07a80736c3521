r"""The content of ``study.toml``: the environments, the factors, and the number of launches.

>>> study = parse(b'[[environments]]\nname = "mine"\n[factors]\nsizes = ["1K"]', "study.toml")
>>> study.environments[0].name, study.factors.sizes, study.launches
('mine', ['1K'], 10)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from mpicoll.backend import TRANSPORTS
from mpicoll.calls.natives import COMPOSITIONS
from mpicoll.errors import ArgumentError, brief
from mpicoll.measurement.cases import BASELINES, CALLS, is_known
from mpicoll.notation.contract import collective
from mpicoll.notation.elements import check_op, kind_of, reduce_op
from mpicoll.text.files import content_of
from mpicoll.text.html import facts_table
from mpicoll.text.names import swept_names
from mpicoll.text.sizes import parse_size

# Not `$`, which matches before a line feed at the end, too.
Text = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]
Variable = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00-\x1f\x7f=]+\Z")]
Value = Annotated[str, Meta(max_length=10_000, pattern=r"^[^\x00]*\Z")]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""The pattern of an environment's name, which is a part of file names and sentences."""
Level = Literal["single", "funneled", "serialized", "multiple"]
Ranks = Annotated[int, Meta(ge=1, le=1 << 20)]
MOST_LAUNCHES = 1000
_MAX_ENVIRONMENTS = 64
_MOST_WORDS = 500
BACKENDS = ("mpi4py", "torch")


class Environment(Struct, kw_only=True, forbid_unknown_fields=True):
    """An MPI and its launcher, and how they run.

    Attributes:
        name: the name in records and findings: letters, digits, ``.``, ``_`` and ``-``.
        venv: folder of a virtual environment.
        python: path of an interpreter, by default the one that runs the study.
        modules: environment modules to load first.
        launcher: ``mpirun`` (beside the interpreter, else of PATH), ``srun-pmi2``, ``srun-pmix``,
            the path of an mpirun, or ``auto``: the matching srun within an allocation of Slurm,
            mpirun elsewhere.
        threads: MPI's thread levels; each level becomes a separate environment.
        bind: the part of the machine that each rank is bound to.
        variables: environment variables of each launch.
        backends: with both backends, the environment becomes two: mpi4py alone, and NAME-torch with
            both side by side and without forced algorithms.
        group: the backend of torch.distributed; with ``nccl`` arrays are on GPUs.
        algorithms: algorithms of the library (MPI or `group`): ``every`` known one, ``all`` with a
            counterpart in mpicoll, a ``few`` of these for each collective, ``none``, or names as
            ``allreduce=ring`` (``libraries.toml``).
    """

    name: str
    venv: Text | None = None
    python: Text | None = None
    modules: Annotated[list[Text], Meta(max_length=_MAX_ENVIRONMENTS)] = field(default_factory=list)
    launcher: Text = "auto"
    threads: Annotated[list[Level], Meta(min_length=1, max_length=4)] = field(
        default_factory=lambda: ["multiple"]
    )
    bind: Literal["none", "cores", "sockets"] = "none"
    variables: dict[Variable, Value] = field(default_factory=dict)
    backends: Annotated[list[Literal["mpi4py", "torch"]], Meta(min_length=1, max_length=2)] = field(
        default_factory=lambda: ["mpi4py"]
    )
    group: Literal["gloo", "nccl", "ccl"] = "gloo"
    algorithms: Annotated[list[Text], Meta(max_length=_MAX_ENVIRONMENTS)] = field(
        default_factory=lambda: ["all"]
    )


class Factors(Struct, kw_only=True, forbid_unknown_fields=True):
    """The factors of a study; every combination is measured.

    Attributes:
        collectives: the collectives.
        sizes: total bytes, as nccl-tests counts them.
        ranks: numbers of ranks.
        ranks_per_node: numbers of ranks on each node. The launcher places the ranks if the hosts
            are known; otherwise so many ranks of this machine form a node.
        dtypes: the dtypes of the elements.
        operators: the operators of reductions.
        algorithms: schedules beside the native call; by default ``auto`` and a few for each
            collective. A launch runs those that its collectives and backends have.
        transports: transports of the schedules; by default the fastest that reaches a rank.
        calls: kinds of calls: ``plans``, ``methods``, or ``both``.
        pairs: also measure pairs of ranks, for the prices of the cost model.
    """

    collectives: Annotated[list[Text], Meta(min_length=1, max_length=_MAX_ENVIRONMENTS)] = field(
        default_factory=lambda: [
            "allreduce",
            "broadcast",
            "allgather",
            "reduce_scatter",
            "alltoall",
        ]
    )
    sizes: Annotated[list[Text | int], Meta(min_length=1, max_length=_MAX_ENVIRONMENTS)] = field(
        default_factory=lambda: ["64", "4K", "64K", "1M"]
    )
    ranks: Annotated[list[Ranks], Meta(min_length=1, max_length=_MAX_ENVIRONMENTS)] = field(
        default_factory=lambda: [2]
    )
    ranks_per_node: Annotated[list[Ranks], Meta(max_length=_MAX_ENVIRONMENTS)] = field(
        default_factory=list
    )
    dtypes: Annotated[list[Text], Meta(min_length=1, max_length=_MAX_ENVIRONMENTS)] = field(
        default_factory=lambda: ["float32"]
    )
    operators: Annotated[list[Text], Meta(min_length=1, max_length=_MAX_ENVIRONMENTS)] = field(
        default_factory=lambda: ["sum"]
    )
    algorithms: Annotated[list[Text], Meta(max_length=_MAX_ENVIRONMENTS)] = field(
        default_factory=list
    )
    transports: Annotated[list[Text], Meta(max_length=_MAX_ENVIRONMENTS)] = field(
        default_factory=list
    )
    calls: Literal["plans", "methods", "both"] = "plans"
    pairs: bool = True


class Description(Struct, kw_only=True, forbid_unknown_fields=True):
    """A study.

    Attributes:
        seed: seed of the order of the launches.
        launches: approximate number for each configuration: fewer if the verdicts are clear, more
            if they are not.
        minutes: minutes after which no launch begins; by default there is no limit.
        seconds: measuring time of a launch; by default as much as fits into `minutes`, else 5.
        timeout: seconds after which a step of a launch counts as hung.
        environments: the MPIs, below; by default those of this machine.
        factors: the factors, below.
    """

    seed: Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    launches: Annotated[int, Meta(ge=1, le=MOST_LAUNCHES)] = 10
    minutes: Annotated[float, Meta(gt=0, le=100_000)] | None = None
    seconds: Annotated[float, Meta(gt=0, le=100_000)] | None = None
    timeout: Annotated[float, Meta(gt=0, le=100_000)] = 60.0
    environments: Annotated[list[Environment], Meta(max_length=_MAX_ENVIRONMENTS)] = field(
        default_factory=list
    )
    factors: Factors = field(default_factory=Factors)

    def _repr_html_(self) -> str:
        facts = {
            "environments": ", ".join(environment.name for environment in self.environments),
            "launches": self.launches, "minutes": self.minutes,
        }  # fmt: skip
        factors = {
            name: ", ".join(map(str, value)) if isinstance(value, list) else value
            for name in self.factors.__struct_fields__
            if (value := getattr(self.factors, name))
        }
        return facts_table("description of a study", facts | factors)

    @property
    def min_launches(self) -> int:
        """The number of launches of a configuration whose verdicts are clear."""
        return max(1, min(self.launches, max(6, self.launches * 6 // 10)))

    @property
    def max_launches(self) -> int:
        """The number of launches of a configuration whose verdicts are not clear."""
        return max(self.launches, self.launches * 3 // 2) if self.launches > 1 else 1


def load(path: Path) -> Description:
    """Return the study that a file describes.

    Raises:
        ArgumentError: the file cannot be read, or a value is impossible; the message names the key.
    """
    return parse(content_of(path), str(path))


def parse(content: bytes, name: str) -> Description:
    """Return the study that TOML describes; errors begin with `name`.

    Raises:
        ArgumentError: the content is no TOML, or a key or a value is impossible.
    """
    try:
        description = msgspec.toml.decode(content, type=Description)
    except (ValueError, RecursionError) as error:  # also tomllib's own errors, as for huge numbers
        raise ArgumentError(f"{name}: {str(error)[:_MOST_WORDS]}") from None
    check(description, name)
    return description


def check(description: Description, name: str = "study") -> None:
    """Raise ArgumentError with the key if a name or a size does not exist."""
    factors = description.factors
    for place, values, check_value in (
        ("factors.collectives", factors.collectives, collective),
        ("factors.sizes", [str(size) for size in factors.sizes], parse_size),
        ("factors.dtypes", factors.dtypes, kind_of),
        ("factors.operators", factors.operators, reduce_op),
        ("factors.algorithms", factors.algorithms, partial(_algorithms, factors.collectives)),
        ("factors.transports", factors.transports, _transport),
    ):
        for value in values:
            try:
                check_value(value)
            except ArgumentError as error:
                raise ArgumentError(f"{name}: $.{place}: {error}") from None
    assert factors.calls in CALLS
    _check_operators(factors, name)
    _check_names(description.environments, name)
    for environment in description.environments:
        if environment.venv and environment.python:
            raise ArgumentError(
                f"{name}: $.environments: {environment.name} has venv and python: give one of them"
            )
        if environment.group != "gloo" and environment.backends != ["torch"]:
            raise ArgumentError(
                f"{name}: $.environments: {environment.name}: group {environment.group} is "
                'torch.distributed\'s: give backends = ["torch"]'
            )


def _check_names(environments: Sequence[Environment], name: str) -> None:
    """Raise ArgumentError if the name of an environment is no file name, or is not unique."""
    spellings: dict[str, str] = {}
    for index, environment in enumerate(environments):
        place, text = f"{name}: $.environments[{index}].name", environment.name
        if not _NAME.fullmatch(text):
            raise ArgumentError(
                f"{place}: {brief(text)} is no name: it takes 1 to 40 letters, digits and '.', '_' "
                "or '-', a letter or a digit first"
            )
        spelling = spellings.setdefault(text.lower(), text)
        if spelling != text or len(spellings) <= index:
            raise ArgumentError(
                f"{place}: two are called {text}" if spelling == text else
                f"{place}: {text} differs from {spelling} in upper and lower case only"
            )  # fmt: skip


def _check_operators(factors: Factors, name: str) -> None:
    """Raise ArgumentError if no operator fits a collective, or no dtype fits an operator."""
    reductions = [
        operation for operation in map(collective, factors.collectives) if operation.reduces
    ]
    reasons: dict[str, list[str | None]] = {}
    for operation, op, dtype in product(reductions, factors.operators, factors.dtypes):
        try:
            check_op(reduce_op(op), dtype, operation)
            reason = None
        except ArgumentError as error:
            reason = str(error)
        reasons.setdefault(operation.name, []).append(reason)
        reasons.setdefault(op, []).append(reason)
    for messages in reasons.values():
        if messages[0] and all(messages):
            raise ArgumentError(f"{name}: $.factors.operators: {messages[0]}")


def _algorithms(collectives: Sequence[str], text: str) -> None:
    for name in swept_names(text):
        if not serves(name, collectives, BACKENDS):
            raise ArgumentError(f"no collective of this study has an algorithm {name!r}")


def serves(algorithm: str, collectives: Sequence[str], backends: Sequence[str]) -> bool:
    """Whether the benchmark takes an algorithm for one of these collectives and backends.

    >>> serves("recursive_halving", ["allreduce"], ["mpi4py"])
    False
    >>> serves("native:reduce+broadcast", ["bcast", "allreduce"], ["mpi4py"])
    True

    Raises:
        ArgumentError: the algorithm exists, but not its parameters or its transport.
    """
    if algorithm.lower() == "all":
        return True
    return any(
        is_known(operation, algorithm, _natives(operation.name, algorithm, backends))
        for operation in map(collective, collectives)
    )


def _natives(name: str, algorithm: str, backends: Sequence[str]) -> list[str]:
    """Return the names of a collective's native calls.

    The calls of a second library, such as ``native:nccl``, depend on the machine: `algorithm` is
    among the names where it may be one.
    """
    names = [*BASELINES, *(f"native:{pair}" for pair in COMPOSITIONS.get(name, ()))]
    if "mpi4py" in backends:
        names.append("native_persistent")
    if algorithm.startswith("native:") and "+" not in algorithm:
        names.append(algorithm)
    return names


def _transport(name: str) -> str:
    if name not in TRANSPORTS:
        raise ArgumentError(f"{name!r} is no transport: {', '.join(TRANSPORTS)}")
    return name
