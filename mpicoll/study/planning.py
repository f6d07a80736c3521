"""The launches of a study: configurations, their order, and their estimated time.

A configuration is the setting of a launch and its repetitions: environment, ranks, and forced
algorithms of the library. The launches of all configurations run in random order, so that changes
of the machine affect all alike.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from mpicoll.algorithms.registry import find
from mpicoll.errors import ArgumentError, CollectiveError, UnknownName
from mpicoll.machine.launches import planned_ranks
from mpicoll.measurement.cases import BASELINES, CPU, CUDA
from mpicoll.notation.contract import collective
from mpicoll.records.lines import Forced
from mpicoll.study.asking import SECONDS_OF_CALL
from mpicoll.study.description import Description, serves
from mpicoll.study.environments import LaunchEnvironment
from mpicoll.study.libraries import libraries, variants
from mpicoll.text.names import swept_names
from mpicoll.text.sizes import parse_size

DEFAULT_ALGORITHMS = (
    "auto", "ring", "recursive_doubling", "rabenseifner", "one_shot", "two_shot",
    "native:reduce+broadcast", "native:reduce_scatter+allgather", "binomial", "scatter_ring",
    "bruck", "recursive_halving", "pairwise",
)  # fmt: skip
"""Default algorithms; a launch runs those that its collectives have."""
ON_NODES = ("two_level",)
"""Additional default algorithms for ranks on several nodes."""
START_UP, WITH_TORCH = 2.0, 5.0
"""Approximate seconds of a launch without measuring, for the estimate."""
_USUAL_SECONDS, _PAIR_SECONDS = 5.0, 5.0
_LEAST_SECONDS = 1.0
_LEAST_OF_CASE, _USUAL_OF_CASE = 0.05, 0.06
"""Seconds that the benchmark needs for a case on an idle machine (30 to 80 ms were measured)."""


@dataclass(frozen=True)
class Configuration:
    """The settings that the repetitions of a launch have in common.

    Attributes:
        forced: the forced algorithm of the library by collective; empty: the library chooses.
        pairs: the launch measures pairs of ranks, only once.
    """

    name: str
    environment: LaunchEnvironment
    ranks: int
    ranks_per_node: int | None = None
    forced: Mapping[str, Forced] = field(default_factory=dict)
    pairs: bool = False

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends whose calls are measured side by side."""
        wanted = self.environment.settings.backends
        if self.pairs or (self.forced and self.environment.settings.group == "gloo"):
            return ("mpi4py",)
        return tuple(
            backend for backend in wanted if backend != "torch" or self.environment.has_torch
        )

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that starts Python with these arguments on its ranks."""
        return self.environment.command(self.ranks, arguments, self.ranks_per_node)

    def arguments(self, study: Description, seconds: float, index: int, output: str) -> list[str]:
        """Return the arguments of Python for its launch number `index`."""
        shared = [
            "--backends", ",".join(self.backends),
            "--seed", str(study.seed + index), "-T", f"{study.timeout:g}",
            "-J" if self.pairs else "--resume", output,
        ]  # fmt: skip
        if "mpi4py" in self.backends:
            shared += ["--threads", self.environment.level]
        if self.ranks_per_node:
            shared += ["--ranks-per-node", str(self.ranks_per_node)]
        if self.pairs:
            return ["-m", "mpicoll.p2p", "--time", f"{_PAIR_SECONDS:g}", *shared]
        factors = study.factors
        more = ["--transports", ",".join(factors.transports)] if factors.transports else []
        return [
            "-m", "mpicoll.bench", *self._collectives(study),
            "--sizes", ",".join(str(parse_size(str(size))) for size in factors.sizes),
            "--datatype", ",".join(factors.dtypes), "--op", ",".join(factors.operators),
            "--algorithms", ",".join(self._algorithms(study)), *more,
            "--calls", factors.calls, "--format", "jsonl", "--device", self.device,
            "--time", f"{seconds + self.start_up:.1f}", *shared,
        ]  # fmt: skip

    @property
    def device(self) -> str:
        """Where arrays are."""
        return CUDA if self.environment.settings.group == "nccl" else CPU

    def cases(self, study: Description) -> int:
        """Return the approximate number of cases of a launch."""
        factors = study.factors
        algorithms = self._algorithms(study)
        count = sum(
            1 + sum(self._serves(name, algorithm) for algorithm in algorithms)
            for name in self._collectives(study)
        )
        variants = len(factors.sizes) * len(factors.dtypes) * len(factors.operators)
        return count * variants * len(self.backends) * (2 if factors.calls == "both" else 1)

    def _collectives(self, study: Description) -> list[str]:
        """Return the collectives of a launch: all, or those with a forced algorithm."""
        names = dict.fromkeys(collective(name).name for name in study.factors.collectives)
        return [name for name in names if name in self.forced or not self.forced]

    def _algorithms(self, study: Description) -> list[str]:
        """Return the algorithms of a launch that its collectives and backends have."""
        names = study.factors.algorithms or DEFAULT_ALGORITHMS + (
            ON_NODES if self.ranks_per_node else ()
        )
        wanted = list(chain.from_iterable(map(swept_names, names)))
        if self.forced and not set(wanted) <= set(BASELINES):
            wanted = [how.ours for how in self.forced.values() if how.ours]
        collectives = self._collectives(study)
        fitting = [name for name in wanted if serves(name, collectives, self.backends)]
        return list(dict.fromkeys(fitting)) or list(BASELINES)

    def runs(self, study: Description, algorithm: str) -> bool:
        """Whether a launch runs an algorithm for one of its collectives."""
        return any(self._serves(name, algorithm) for name in self._collectives(study))

    def _serves(self, name: str, algorithm: str) -> bool:
        """Whether a collective has an algorithm for the ranks of a launch."""
        if not serves(algorithm, [name], self.backends):
            return False
        try:
            find(name, algorithm.partition("@")[0]).serve(self.ranks)
        except UnknownName:
            return algorithm not in BASELINES  # a choice, or a native call
        except CollectiveError:
            return False
        return True

    @property
    def start_up(self) -> float:
        """The seconds of a launch without measuring."""
        return WITH_TORCH if "torch" in self.backends else START_UP

    @property
    def is_asked(self) -> bool:
        """Whether a separate launch asks the library which forced algorithm it runs."""
        library = libraries().get(self.environment.forces)
        return bool(self.forced) and library is not None and library.can_be_asked

    def asking(self, study: Description) -> float:
        """Return the seconds of the launch that asks the library."""
        calls = len(self.forced) * len(study.factors.sizes)
        return self.start_up + calls * SECONDS_OF_CALL if self.is_asked else 0.0


@dataclass(frozen=True)
class Plan:
    """The configurations of a study.

    Attributes:
        seconds: measuring time of a launch.
        remarks: the omissions of the plan, with reasons.
    """

    study: Description
    configurations: list[Configuration]
    seconds: float
    remarks: list[str]

    def first(self) -> list[tuple[Configuration, int]]:
        """Return the launches that every configuration has, in random order.

        Each configuration runs once before any runs again. A study that runs out of time then has
        all of them.
        """
        rounds = (
            [
                (configuration, index)
                for configuration in self.configurations
                if not (configuration.pairs and index)
            ]
            for index in range(self.study.min_launches)
        )
        return [
            launch
            for index, launches in enumerate(rounds)
            for launch in self.shuffle(launches, f"first {index}")
        ]

    def shuffle(
        self, launches: Iterable[tuple[Configuration, int]], salt: str
    ) -> list[tuple[Configuration, int]]:
        """Return launches in an order that depends only on the seed and on `salt`."""
        order = sorted(launches, key=lambda launch: (launch[0].name, launch[1]))
        random.Random(f"{self.study.seed} {salt}").shuffle(order)
        return order

    def estimate(self, launches: int) -> float:
        """Return the seconds of some launches of each configuration, including the asking ones."""
        return sum(
            configuration.asking(self.study)
            + self.seconds_of(configuration) * (1 if configuration.pairs else launches)
            for configuration in self.configurations
        )

    def seconds_of(self, configuration: Configuration) -> float:
        """Return the seconds of one launch on an idle machine."""
        usual = _USUAL_OF_CASE * configuration.cases(self.study)
        seconds = (
            _PAIR_SECONDS if configuration.pairs else min(self.measuring(configuration), usual)
        )
        return seconds + configuration.start_up

    def measuring(self, configuration: Configuration) -> float:
        """Return the measuring time of a launch: at least the time that its cases need."""
        return max(self.seconds, _LEAST_OF_CASE * configuration.cases(self.study))


def plan(study: Description, environments: Sequence[LaunchEnvironment]) -> Plan:
    """Return the launches of a study.

    Raises:
        ArgumentError: an algorithm of a library is unknown, the ranks do not fill the nodes, or two
            configurations have the same name.
    """
    remarks: list[str] = []
    configurations = list(_configurations(study, environments, remarks))
    remarks += _remark_unserved(study, configurations)
    names = [configuration.name.lower() for configuration in configurations]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ArgumentError(
            f"$.environments: two configurations would be called {twice}: an environment's name "
            "with its thread level, with -torch or with its ranks equals that of another one"
        )
    return Plan(study, configurations, _seconds(study, configurations), remarks)


def _remark_unserved(study: Description, configurations: Sequence[Configuration]) -> Iterator[str]:
    """Yield a remark on each algorithm of the description that no launch can run."""
    choices = [
        configuration
        for configuration in configurations
        if not (configuration.forced or configuration.pairs)
    ]
    names = chain.from_iterable(map(swept_names, study.factors.algorithms))
    for name in dict.fromkeys(names):
        if name not in BASELINES and not any(
            configuration.runs(study, name) for configuration in choices
        ):
            yield f"{name} is not measured: no launch has such ranks, or a backend that has it"


def _seconds(study: Description, configurations: Sequence[Configuration]) -> float:
    """Return the measuring time of a launch with which the study ends in time."""
    if study.seconds is not None:
        return study.seconds
    if study.minutes is None:
        return _USUAL_SECONDS
    measuring = [configuration for configuration in configurations if not configuration.pairs]
    fixed = sum(configuration.start_up for configuration in measuring) * study.launches
    fixed += sum(
        _PAIR_SECONDS + configuration.start_up
        for configuration in configurations
        if configuration.pairs
    )
    fixed += sum(configuration.asking(study) for configuration in configurations)
    remaining = study.minutes * 60 * 0.95 - fixed
    return max(_LEAST_SECONDS, remaining / (study.launches * max(1, len(measuring))))


def _configurations(
    study: Description, environments: Sequence[LaunchEnvironment], remarks: list[str]
) -> Iterator[Configuration]:
    names = [collective(name).name for name in study.factors.collectives]
    for environment in environments:
        try:
            forced_variants = variants(environment.forces, names, environment.settings.algorithms)
        except ArgumentError as error:
            raise ArgumentError(f"$.environments: {environment.settings.name}: {error}") from None
        if not forced_variants and environment.settings.algorithms not in (["none"], []):
            remarks.append(
                f"{environment.name}: no algorithms of {environment.forces} are known to force"
            )
        for ranks in dict.fromkeys(study.factors.ranks):
            yield from _of_ranks(study, environment, ranks, forced_variants)


def _of_ranks(
    study: Description,
    environment: LaunchEnvironment,
    ranks: int,
    variants: Sequence[Mapping[str, Forced]],
) -> Iterator[Configuration]:
    for width in dict.fromkeys(study.factors.ranks_per_node) or [None]:
        if width is not None and ranks % width:
            raise ArgumentError(f"$.factors: {ranks} ranks do not fill nodes of {width}")
        hosts = len(planned_ranks())
        if width is not None and hosts > 1 and ranks > hosts * width:
            raise ArgumentError(
                f"$.factors: {ranks} ranks in nodes of {width} need {ranks // width} hosts, and "
                f"the launcher has {hosts}"
            )
        base = f"{environment.name}-{ranks}" + (f"-of-{width}" if width else "")
        yield Configuration(f"{base}-choice", environment, ranks, width)
        for number, forced in enumerate(variants, 1):
            yield Configuration(f"{base}-forced{number}", environment, ranks, width, forced)
        if study.factors.pairs and ranks > 1 and environment.has_pairs:
            yield Configuration(f"{base}-pairs", environment, ranks, width, pairs=True)
