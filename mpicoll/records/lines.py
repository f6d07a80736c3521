"""The lines of a file of records: a class for each kind, with the meaning of its keys.

A key that older files lack has a default here. Times are microseconds (`us`), bandwidths 10^9 bytes
a second (`GBps`), sizes bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.json import schema_components

from mpicoll.records.description import FullRun, Run
from mpicoll.records.fields import Amount, Count, Name, Positive, Ranks, Verdict
from mpicoll.text.html import facts_table

SCHEMA = 1


class _Line(Struct):
    """A line of a file; a notebook shows its facts as a table."""

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, str | int | float):
                facts[name] = f"{value:.4g}" if isinstance(value, float) else value
            elif isinstance(value, Times):
                facts[name] = f"{value.median:.4g} ({value.low:.4g} to {value.high:.4g})"
        kind = facts.pop("kind", "")
        return facts_table(str(kind), facts)


class RunRecord(_Line, kw_only=True):
    """The line that describes a run."""

    schema: int = SCHEMA
    kind: Literal["run"] = "run"
    run: FullRun


# -- a case of the benchmark --------------------------------------------------------------


class Times(Struct):
    """The distribution of the samples.

    Attributes:
        median: the median.
        low, high: its 95 % interval; the extremes if there are too few samples.
        mean, min, max: mean and extremes.
        p95, p99: percentiles.
    """

    median: Positive
    low: Positive
    high: Positive
    mean: Positive | None = None
    min: Positive | None = None
    max: Positive | None = None
    p95: Positive | None = None
    p99: Positive | None = None


class Speedup(Struct):
    """How many times as fast a case is as another.

    Attributes:
        ratio: the ratio; above 1, the case is faster than the other.
        low, high: 95 % interval of the ratio.
        verdict: ``faster``, ``slower`` or ``tie``.
    """

    ratio: Positive
    low: Positive
    high: Positive
    verdict: Verdict


class SpeedupVsOther(Speedup):
    """The same against the other backend, or against the algorithm that the library was forced to.

    Attributes:
        against: the other backend and algorithm.
    """

    against: Name


class SpeedupVsStrongest(SpeedupVsOther):
    """The same against the fastest native call of a cell, over all environments and algorithms.

    Attributes:
        environment: the environment of that call.
    """

    environment: Name | None


class FirstWrong(Struct):
    """The first wrong element of a result.

    Attributes:
        rank: the rank that has it.
        count: number of wrong elements of that rank.
        index: its index in the array.
        expected, got: the right and the actual value.
        array: the array: ``output`` or ``input``.
    """

    rank: Count
    count: Count
    index: Count
    expected: bool | int | float | str | None
    got: bool | int | float | str | None
    array: Name = field(default="output", name="where")


class CaseRecord(_Line, kw_only=True):
    """The record of a case. `identity.FIELDS` identify it.

    Attributes:
        schema: version of the format.
        kind: ``case``.
        run: a part of the description of the run, below.
        environment: environment of a study: an MPI, its thread level and variables.
        launch: number of the launch among those of its configuration in a study.
        collective: the collective.
        algorithm: the requested algorithm.
        call: ``plan``; ``method``, as ``c.allreduce(x, out=y)``; ``method, new arrays``, with other
            arrays in every call. The method of ``native`` is the library's own.
        executed: the algorithm that ran.
        backend: ``mpi4py`` or ``torch``.
        library: the library below the backend, with its version.
        transport: the transport that carried the data.
        executor: ``compiled``, or ``native`` for the library's own call; once also ``closures``.
        note: of a library's default: its name there, and how the schedule here differs.
        device: place of the arrays: ``cpu`` or ``cuda``.
        dtype: dtype of the elements; None for a barrier.
        op: operator of a reduction.
        root: root of a rooted collective.
        in_place: whether input and output share memory.
        allocated: whether the arrays are from ``c.allocate()``.
        ranks: number of ranks.
        nodes: number of nodes.
        bytes_total: bytes of the whole vector or of all rows, as nccl-tests counts them.
        bytes_per_rank: bytes of one vector or one row.
        count: elements of one vector or one row.
        samples: number of samples that count.
        samples_us: these samples, in the order in which they were taken.
        blocks: number of the block of each sample. Samples of one run and group in the same block
            were taken moments apart. Older files, and cases of several launches, lack it.
        undisturbed: whether no sample was late or preempted.
        calls_per_sample: number of calls in a sample; a sample is the time of one call.
        timing: ``together``: samples start at a common deadline; ``loop``: as ranks arrive.
        late_starts: samples in which a rank came late. They count only if too few others do.
        late_share: share of late samples among all samples that were taken.
        preempted: samples in which a rank lost its core. They count only if too few others do.
        worst_late_us: the longest delay of a rank at the start of a sample.
        sync_error_us: bound on the error of the ranks' clocks.
        slowest_rank: the rank that was most often the slowest.
        time_us: distribution of the samples.
        host_us: the same samples by the ranks' clocks, if events of a GPU timed them.
        algbw_GBps: `bytes_total` over the median time.
        busbw_GBps: `algbw_GBps` times the factor of nccl-tests; None on one rank.
        speedup_vs_native: ratio to ``native`` on the same backend.
        speedup_vs_other: ratio to the other backend.
        correct: whether the result was right; None if nothing was checked.
        wrong: number of wrong elements on all ranks.
        first_wrong: the first wrong element.
        message: the reason of a refused case, or what was wrong with its result. A refused case
            has None for all measured values.
        best: whether the case is surely the fastest of its group: nothing else leads.
        launches: number of launches, in a record that sums them up. Its samples are the medians of
            the launches, and its ratios are over launches.
        spread_within: half the distance of the quartiles over the median, of the samples of a
            launch (the median over launches).
        spread_between: the same of the medians of the launches.
        speedup_vs_strongest: ratio to the fastest native call of all environments.
    """

    schema: int = SCHEMA
    kind: Literal["case"] = "case"
    run: Run
    environment: Name | None = None
    launch: Count | None = None
    collective: Name
    algorithm: Name
    call: Name = "plan"
    executed: Name | None = None
    backend: Name
    library: str = ""
    transport: Name | None = None
    executor: Name | None = None
    note: str | None = None
    device: Name = "cpu"
    dtype: Name | None
    op: Name | None
    root: Count | None
    in_place: bool
    allocated: bool = False
    ranks: Ranks
    nodes: Ranks = 1
    bytes_total: Count
    bytes_per_rank: Count = 0
    count: Count = 0
    samples: Count = 0
    samples_us: list[Positive] = field(default_factory=list)
    blocks: list[Count] | UnsetType = UNSET
    undisturbed: bool = True
    calls_per_sample: Count = 1
    timing: Name = "together"
    late_starts: Count = 0
    late_share: Annotated[float, Meta(ge=0, le=1)] | None = None
    preempted: Count = 0
    worst_late_us: Amount = 0.0
    sync_error_us: Amount = 0.0
    slowest_rank: Count | None = None
    time_us: Times | None
    host_us: Times | None = None
    algbw_GBps: Positive | None = None
    busbw_GBps: Positive | None = None
    speedup_vs_native: Speedup | None = None
    speedup_vs_other: SpeedupVsOther | None = None
    correct: bool | None
    wrong: Count = 0
    first_wrong: FirstWrong | None = None
    message: str | None = None
    best: bool = False
    launches: Count | UnsetType = UNSET
    spread_within: Amount | UnsetType = UNSET
    spread_between: Amount | UnsetType = UNSET
    speedup_vs_strongest: SpeedupVsStrongest | UnsetType = UNSET


# -- pairs of ranks -----------------------------------------------------------------------


class _Between(_Line, kw_only=True):
    """The fields that all records over pairs begin with."""

    schema: int = SCHEMA
    kind: Name
    run: Run
    backend: Name
    library: str = ""
    transport: Name
    device: Name = "cpu"
    ranks: Ranks
    nodes: Ranks = 1


class PairRecord(_Between, kw_only=True):
    """One number of an ordered pair of ranks.

    Times are of one message, of one exchange where it goes both ways; a bandwidth both ways
    counts the bytes of both directions.

    Attributes:
        quantity: ``latency``, ``one_way``, ``both_ways``, or ``copy``: within a rank's own memory.
        source_gpu, target_gpu: the GPUs of the buffers, None on the host.
        link: the class of the pair.
        visits_us: the median of each visit.
        GBps: None for a latency.
        typical: the median of the pair's class, in us or GB/s; `outlier`: far from that.
        correct: None where nothing was checked.
        message: why there is no number, or what was wrong.
    """

    kind: Literal["pair"] = "pair"
    quantity: Name
    source: Count
    target: Count
    source_host: Name = ""
    target_host: Name = ""
    source_gpu: Name | None = None
    target_gpu: Name | None = None
    link: Name
    link_detail: str | None = None
    bytes: Count
    visits_us: list[Positive] = field(default_factory=list)
    samples: Count = 0
    samples_us: list[Positive] = field(default_factory=list)
    calls_per_sample: Count = 1
    time_us: Times | None
    GBps: Positive | None = None
    typical: Positive | None = None
    outlier: bool = False
    correct: bool | None = None
    message: str | None = None


class FitRecord(_Between, kw_only=True):
    """Hockney's model of a class of pairs: alpha + beta x bytes.

    Attributes:
        GBps: 1 / beta, None where size made no difference.
        error: the median of the relative errors of `points` points (a pair, a size);
            `worst_error`: their 95th percentile.
        pairs: how many ordered pairs of ranks; `sizes`: the smallest and the largest.
    """

    kind: Literal["fit"] = "fit"
    link: Name
    alpha_us: Amount
    beta_ns_per_byte: Amount
    GBps: Positive | None = None
    error: Amount = 0.0
    worst_error: Amount = 0.0
    points: Count = 0
    pairs: Count = 0
    sizes: list[Count] = field(default_factory=list)


class FanOutRecord(_Between, kw_only=True):
    """Copies of `bytes` each from rank `source` to `peers` GPUs at once; `GBps` of all."""

    kind: Literal["fan_out"] = "fan_out"
    source: Count
    peers: Count
    bytes: Count
    time_us: Amount
    GBps: Positive


# -- the self-check -----------------------------------------------------------------------


class AARecord(_Line, kw_only=True):
    """An A/A comparison: a call against itself, one side made slower by `delay` per cent.

    Attributes:
        verdict: of the delayed side; ``no verdict`` where no block has both samples.
        late, preempted: the spoilt samples of the first side.
    """

    schema: int = SCHEMA
    kind: Literal["twins"] = "twins"
    case: Name
    backend: Name
    ranks: Count
    delay: Amount
    ratio: Positive | UnsetType = UNSET
    low: Positive | UnsetType = UNSET
    high: Positive | UnsetType = UNSET
    verdict: Verdict | Literal["no verdict"]
    samples: Count = 0
    late: Count = 0
    preempted: Count = 0


# -- a launch of a study ------------------------------------------------------------------


class Forced(Struct):
    """A library's own algorithm that environment variables asked for.

    Attributes:
        algorithm: the library's name; `ours`: that of the same algorithm here, None without one.
        variables: what was set.
        obeyed: False where the library said that it takes another, None where it cannot be asked.
        said: what it said, or how it was asked.
        refused: the total bytes at which it takes another, where it takes this one elsewhere.
    """

    algorithm: Name
    ours: Name | None = None
    variables: dict[str, str] = field(default_factory=dict)
    obeyed: bool | None = None
    said: str = ""
    refused: list[Count] = field(default_factory=list)


class LaunchRecord(_Line, kw_only=True):
    """How a launch of a study was made, and how it ended.

    Attributes:
        configuration: the name of all that is the same in its repetitions.
        run: the id of the run whose records follow, None where there are none.
        environment, threads: the environment and its thread level.
        forced: by collective, the library's own algorithm that was asked for.
        seconds: that it took, with those in which the library was asked before what it runs.
        message: why it failed, None where it did not.
    """

    schema: int = SCHEMA
    kind: Literal["launch"] = "launch"
    configuration: Name
    launch: Count
    run: Name | None = None
    environment: Name
    threads: Name | None = None
    ranks: Ranks
    forced: dict[str, Forced] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    started: Name = ""
    seconds: Amount = 0.0
    message: str | None = None


Record = RunRecord | CaseRecord | PairRecord | FitRecord | FanOutRecord | AARecord | LaunchRecord
KINDS: dict[str, type[Record]] = {
    "run": RunRecord, "case": CaseRecord, "pair": PairRecord, "fit": FitRecord,
    "fan_out": FanOutRecord, "twins": AARecord, "launch": LaunchRecord,
}  # fmt: skip


def json_schema() -> dict[str, Any]:
    """Return the schema that every line of a file fulfils: it is one of the kinds."""
    alternatives, definitions = schema_components(KINDS.values(), ref_template="#/$defs/{name}")
    for name, kind in KINDS.items():
        # Only a case may lack its kind; no line may lack its schema.
        definitions[kind.__name__]["required"] += (
            ["schema"] if name == "case" else ["schema", "kind"]
        )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of mpicoll's records",
        "anyOf": list(alternatives),
        "$defs": definitions,
    }
