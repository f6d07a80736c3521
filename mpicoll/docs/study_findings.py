"""The ten findings of the published study, computed from its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median, median_low
from typing import NamedTuple

from mpicoll.measurement.ping_pong import LATENCY, ONE_WAY
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.records.lines import CaseRecord, PairRecord, Record
from mpicoll.records.reading import load, only
from mpicoll.study.cells import (
    Cell,
    Contestant,
    Name,
    Panel,
    Ratio,
    Study,
    compare_contestants,
    study_of,
)
from mpicoll.study.findings import choose_pair
from mpicoll.study.forms import FORMS, fits, forms_of
from mpicoll.study.sentences import Pair, join_names, pairs
from mpicoll.text.numbers import interval, number
from mpicoll.text.sizes import bytes_text

LIBRARIES, ALGORITHMS, AVERAGE = "libraries", "algorithms", "average"
TWO_HOSTS, FOUR_HOSTS = "nodes-2x2", "nodes-4x2"
_HOSTS = {TWO_HOSTS: 2, FOUR_HOSTS: 4}
STUDIES = LIBRARIES, ALGORITHMS, AVERAGE, *_HOSTS
"""The studies. Descriptions and records are in files of these names."""
SHAPES = {
    "naive": "naive: the root sends to each rank",
    "binomial": "tree: binomial",
    "chain(segments=8)": "pipeline: chain of 8 segments",
    "scatter_ring": "ring: scatter, then ring",
}
"""The broadcasts of the sixth finding."""
OVER_MESSAGES = "@point-to-point"
_ENVIRONMENTS = {
    "mpich": "MPICH", "mpich-single": "MPICH, one thread", "openmpi": "Open MPI",
    "intel": "Intel MPI",
}  # fmt: skip
_BESIDE_TORCH = Name("mpich-torch", "mpi4py", "native")
_ENTRIES = {
    **{Name(name, "mpi4py", "native"): text for name, text in _ENVIRONMENTS.items()},
    _BESIDE_TORCH: "MPICH",
    Name("mpich-torch", "torch", "native"): "gloo",
}
_ONE_MACHINE = "One virtual machine with two shared cores; other machines have other ratios."
_SHARED_CORES = "4 ranks share 2 cores, so their times include waits for a core."
_EMULATED = (
    "Hosts are emulated on the two cores, with links of 1 Gbit/s; real clusters have other "
    "ratios. To repeat it, root and MPICH are needed."
)


@dataclass(frozen=True)
class Finding:
    """A finding.

    Attributes:
        sentence: at most 25 words.
        table: in Markdown.
        reason: why it is so.
        studies: whose commands repeat it.
        picture: the name of its chart, "" without one.
    """

    sentence: str
    table: str
    reason: str
    strength: str
    limits: str
    studies: Sequence[str]
    picture: str = ""


class Published(NamedTuple):
    """The records of a study, and its cells."""

    records: list[Record]
    study: Study

    def panels(self, collective: str, op: str = "sum") -> list[Panel]:
        """Return the panels of a collective, by the number of ranks."""
        panels = [
            panel for panel in self.study.panels()
            if panel.collective == collective and panel.op in ("", op)
        ]  # fmt: skip
        return sorted(panels, key=lambda panel: panel.ranks)


def read_studies(folder: Path) -> dict[str, Published]:
    """Return the published studies by their names."""
    studies = {}
    for name in STUDIES:
        records = load(folder / f"{name}.parquet")
        studies[name] = Published(records, study_of(records))
    return studies


def command(study: str) -> str:
    """Return the command that repeats a study.

    >>> command("average")
    'python -m mpicoll.study mpicoll/docs/study/average.toml -o average'
    """
    module = f"mpicoll.study mpicoll/docs/study/{study}.toml -o {study}"
    if study in _HOSTS:
        module = f"mpicoll.hosts --hosts {_HOSTS[study]} --per-host 2 --once -- -m {module}"
    return f"python -m {module}"


def ten_findings(studies: Mapping[str, Published]) -> list[Finding]:
    """Return the findings in their order."""
    return [
        _fastest(studies[LIBRARIES]),
        _right(studies),
        _native_calls(studies[LIBRARIES]),
        _threads(studies[LIBRARIES]),
        _one_or_two(studies[ALGORITHMS]),
        _shapes(studies[ALGORITHMS]),
        _average(studies[AVERAGE]),
        _backends(studies[ALGORITHMS]),
        _nodes(studies[TWO_HOSTS], studies[FOUR_HOSTS]),
        _network(studies[TWO_HOSTS]),
    ]


# -- the findings -------------------------------------------------------------------------


def strongest_pairs(published: Published, ranks: int) -> list[Pair]:
    """Return the fastest schedule and the strongest native call of every cell."""
    study = published.study
    return [
        pair for panel in study.panels() if panel.ranks == ranks
        for pair in pairs(study, panel, lambda cell: (cell.fastest_ours(), cell.strongest_native()))
    ]  # fmt: skip


def _fastest(published: Published) -> Finding:
    by_ranks = {ranks: strongest_pairs(published, ranks) for ranks in (2, 4)}
    every = [pair for group in by_ranks.values() for pair in group]
    kinds = Counter(pair.kind for pair in every)
    columns = [(ranks, size) for ranks in by_ranks for size in _sizes(by_ranks[ranks])]
    rows = []
    for name in COLLECTIVES:
        cells = {
            (pair.cell.panel.ranks, pair.cell.size): _marked(pair.ratio)
            for pair in every
            if pair.cell.panel.collective == name
        }
        if 0 in {size for _, size in cells}:  # the barrier
            cells = {(ranks, columns[0][1]): text for (ranks, _), text in cells.items()}
        rows.append([name, *(cells.get(column, "") for column in columns)])
    heads = [f"{ranks} ranks, {bytes_text(size)}" for ranks, size in columns]
    undecided = kinds["open"] + kinds["few"]
    return Finding(
        f"On one node, mpicoll's `auto` beats the fastest library call in {kinds['faster']} of "
        f"{len(every)} cases, on average {_mean(by_ranks[2])} times on 2 ranks, "
        f"{_mean(by_ranks[4])} on 4.",
        _table(["times as fast", *heads], rows),
        "Probably, as this was not measured separately: a rank reads the arrays of its peers in "
        "shared memory, and a call synchronises once. On 2 ranks the lead shrinks as messages "
        "grow, as both sides must copy the data.",
        f"{_launches(published)}. {kinds['slower'] or 'No'} cases are slower, {kinds['tie']} ties, "
        f"{undecided} undecided. The means are geometric, over all cases.",
        f"{_ONE_MACHINE} {_SHARED_CORES}",
        [LIBRARIES],
        "fastest",
    )


def all_times(published: Published) -> str:
    """Return the table of the fastest library call and of `auto` in every case, in us."""
    rows: dict[tuple[str, int], list[str]] = {}
    for ranks in (2, 4):
        for pair in strongest_pairs(published, ranks):
            schedule, call = pair.contestant, pair.reference
            library = _ENTRIES.get(call.name, str(call.name))
            algorithm = next(iter(schedule.ran.values())).partition("@")[0]
            row = rows.setdefault((pair.cell.panel.collective, pair.cell.size), [])
            row += [f"{number(call.us)} {library}", f"{number(schedule.us)} `{algorithm}`"]
    heads = [
        "collective", "size", "2 ranks: fastest call", "`auto`", "4 ranks: fastest call", "`auto`"
    ]  # fmt: skip
    return _table(
        heads,
        [[name, bytes_text(size) if size else "", *row] for (name, size), row in rows.items()],
    )


def _right(studies: Mapping[str, Published]) -> Finding:
    rows, totals = [], Counter[str]()
    for name, published in studies.items():
        cases = only(CaseRecord, published.records)
        counts = Counter(
            "right" if case.correct else "wrong" if case.correct is False else "not run"
            for case in cases
        )
        launches = len({case.run.id for case in cases})
        totals.update(counts)
        totals["launches"] += launches
        rows.append(
            [name, str(launches), *(str(counts[key]) for key in ("right", "wrong", "not run"))]
        )
    wrong = f"{totals['wrong']} were" if totals["wrong"] else "none was"
    return Finding(
        f"Each case was checked after timing, on the buffers that were timed: of "
        f"{totals['right'] + totals['wrong']} results, {wrong} wrong.",
        _table(["study", "launches", "right", "wrong", "not offered by the library"], rows),
        "Inputs depend on rank and index, so a block from the wrong rank or place shows. Outputs "
        "are overwritten before each check.",
        "One check of each case in each launch, with all ranks.",
        "float32, with values whose sums are exact: rounding was not tested.",
        STUDIES,
    )


def _native_calls(published: Published) -> Finding:
    rows, wins = [], Counter[str]()
    cells = [cell for cell in published.study.cells.values() if cell.natives()]
    entries = {name: text for name, text in _ENTRIES.items() if name != _BESIDE_TORCH}
    for cell in cells:
        best = min((c for c in cell.natives() if c.name in entries), key=lambda c: c.us)
        wins[entries[best.name]] += 1
    for name, text in entries.items():
        ratios = {
            ranks: [
                cell.contestants[name].us / min(c.us for c in cell.natives() if c.name in entries)
                for cell in cells
                if name in cell.contestants and cell.panel.ranks == ranks
            ]
            for ranks in (2, 4)
        }
        means = [number(geometric_mean(values)) if values else "-" for values in ratios.values()]
        rows.append([text, str(wins[text]), *means])
    (first, count), (second, second_count) = wins.most_common(2)
    return Finding(
        f"Among the libraries' own calls, {first} has the lowest median in {count} of {len(cells)} "
        f"cases, {second} in {second_count}.",
        _table(
            ["library", "lowest median in", "2 ranks: time over the lowest", "4 ranks: the same"],
            rows,
        ),
        "Ranks on one node exchange messages through shared memory; libraries differ in their "
        "start-up and in the size from which one side copies directly.",
        f"{_launches(published)}; geometric means over cases.",
        f"{_ONE_MACHINE} Default settings of each wheel, and Intel MPI with its tuning tables.",
        [LIBRARIES],
    )


def _threads(published: Published) -> Finding:
    multiple, single = (Name(name, "mpi4py", "native") for name in ("mpich", "mpich-single"))
    ratios: dict[int, dict[int, list[float]]] = {2: {}, 4: {}}
    for cell in published.study.cells.values():
        if {multiple, single} <= set(cell.contestants) and cell.size:
            times = [cell.contestants[name].us for name in (multiple, single)]
            ratios[cell.panel.ranks].setdefault(cell.size, []).append(times[0] / times[1])
    means = {
        ranks: {size: geometric_mean(values) for size, values in sorted(by_size.items())}
        for ranks, by_size in ratios.items()
    }
    spans = [interval(min(by_size.values()), max(by_size.values())) for by_size in means.values()]
    return Finding(
        f"MPICH's calls with MPI_THREAD_MULTIPLE take {spans[0]} times as long as with SINGLE on "
        f"2 ranks, {spans[1]} times on 4 ranks.",
        _table(
            ["time with MULTIPLE over SINGLE", *map(bytes_text, means[2])],
            [
                [f"{ranks} ranks", *map(number, by_size.values())]
                for ranks, by_size in means.items()
            ],
        ),
        "With MULTIPLE every call takes locks. But a rank that waits with SINGLE keeps its core, "
        "which costs more where ranks share cores. `mpi4py.rc.thread_level` sets the level; "
        "mpi4py asks for MULTIPLE by default.",
        f"{_launches(published)}; geometric means over collectives.",
        f"{_ONE_MACHINE} {_SHARED_CORES}",
        [LIBRARIES],
    )


def _one_or_two(published: Published) -> Finding:
    every = {
        (forms.panel.ranks, forms.backend): forms for forms in forms_of(published.study)
        if forms.environment in ("mpich", "mpich-torch") and forms.panel.op == "sum"
        and (forms.environment, forms.backend) != ("mpich-torch", "mpi4py")
    }  # fmt: skip
    single_call, first, second = FORMS
    rows = []
    for (ranks, backend), forms in sorted(every.items()):
        for size, times in sorted(forms.times.items()):
            cells = [_slowdown(times, form, single_call) for form in (first, second)]
            place = f"{ranks} ranks, {_library(backend)}"
            rows.append([place, bytes_text(size), number(times[single_call].us), *cells])
    forms = every[2, "mpi4py"]
    large = [times for size, times in forms.times.items() if size >= 1 << 20]
    spans = {
        form: _span(_share(times[form], times[single_call]) for times in large)
        for form in (first, second)
    }
    lines = fits(forms)
    costs = "; ".join(
        f"{FORMS[form]}: {number(line.alpha_us)} us and {number(line.beta_ns_per_byte)} ns a byte"
        for form, line in lines.items()
    )
    return Finding(
        f"From 1M on, 2 ranks of MPICH take {spans[first]} times one call for reduce + broadcast, "
        f"{spans[second]} for reduce_scatter + allgather.",
        _table(
            [
                "",
                "size",
                "one call, us",
                *(f"{FORMS[form]} / one call" for form in (first, second)),
            ],
            rows,
        ),
        "Three factors decide. Start-up: two calls synchronise twice. Bytes: reduce + broadcast "
        "moves the whole vector to the root and then back, the other form moves parts both ways at "
        "once. Memory: each call reads and writes the vector once more. "
        f"Fitted costs on 2 ranks: {costs}.",
        f"{_launches(published)}.",
        f"{_ONE_MACHINE} {_SHARED_CORES} gloo's reduce_scatter is an allreduce inside.",
        [ALGORITHMS],
    )


def _slowdown(times: Mapping[str, Contestant], form: str, single_call: str) -> str:
    """Return how many times as long as one call a form takes."""
    return _share(times[form], times[single_call]) if form in times else "-"


def _share(contestant: Contestant, reference: Contestant) -> str:
    """Return how many times as long as the reference a contestant takes, with its sign."""
    ratio = compare_contestants(contestant, reference)
    return _sign(ratio) + number(1 / ratio.ratio)


def _span(shares: Iterable[str]) -> str:
    """Return the smallest and the largest of some shares, with their signs."""
    ordered = sorted(shares, key=lambda share: float(share.lstrip("=~")))
    return f"{ordered[0]} to {ordered[-1]}"


def _shapes(published: Published) -> Finding:
    rows = []
    winners: dict[tuple[int, str, int], str] = {}
    for panel in published.panels("broadcast"):
        for environment, backend in (("mpich", "mpi4py"), ("mpich-torch", "torch")):
            for cell in published.study.of(panel):
                times = shape_times(cell, environment, backend)
                if len(times) < len(SHAPES):
                    continue
                best = _unbeaten(times)
                titles = [SHAPES[shape].partition(":")[0] for shape in best]
                winners[panel.ranks, backend, cell.size] = join_names(titles)
                place = f"{panel.ranks} ranks, {_library(backend)}"
                texts = [
                    f"**{number(times[shape].us)}**" if shape in best else number(times[shape].us)
                    for shape in SHAPES
                ]
                rows.append([place, bytes_text(cell.size), *texts])
    sizes = sorted({size for ranks, backend, size in winners if (ranks, backend) == (4, "mpi4py")})
    small, large = (winners[4, "mpi4py", size] for size in (sizes[0], sizes[-1]))
    return Finding(
        f"In broadcasts on 4 ranks over MPI's messages, {small} lead at {bytes_text(sizes[0])}, "
        f"{large} at {bytes_text(sizes[-1])}.",
        _table(["time in us", "size", *SHAPES.values()], rows),
        "Small messages cost start-up, so the form with the fewest rounds in a row wins. "
        "Large messages cost bytes, so a form wins in which every rank sends, and no rank sends "
        f"the vector twice. Over gloo the result at {bytes_text(sizes[-1])} is "
        f"{winners[4, 'torch', sizes[-1]]}, as each message costs more there.",
        f"{_launches(published)}; bold: not surely slower than the fastest.",
        f"{_ONE_MACHINE} {_SHARED_CORES}",
        [ALGORITHMS],
        "shapes",
    )


def _unbeaten(times: Mapping[str, Contestant]) -> list[str]:
    """Return the names of the fastest contestant and of those that are not surely slower."""
    best = min(times.values(), key=lambda contestant: contestant.us)
    return [
        name for name, contestant in times.items()
        if contestant is best or not _is_surely_faster(best, contestant)
    ]  # fmt: skip


def _is_surely_faster(best: Contestant, contestant: Contestant) -> bool:
    """Whether the launches show it: a significant ratio, or no launch in which it was slower."""
    is_clear = max(best.times.values()) < min(contestant.times.values())
    return is_clear or compare_contestants(best, contestant).decision == "faster"


def shape_times(cell: Cell, environment: str, backend: str) -> dict[str, Contestant]:
    """Return the measured broadcasts of `SHAPES` in a cell."""
    names = {shape: Name(environment, backend, f"{shape}{OVER_MESSAGES}") for shape in SHAPES}
    return {
        shape: cell.contestants[name] for shape, name in names.items() if name in cell.contestants
    }


def _average(published: Published) -> Finding:
    rows: list[list[str]] = []
    ratios: dict[str, dict[int, str]] = {}
    panels = {
        (panel.ranks, panel.op): panel for op in ("sum", "avg")
        for panel in published.panels("allreduce", op) if panel.op == op
    }  # fmt: skip
    for ranks in (2, 4):
        sums, averages = (
            {cell.size: cell for cell in published.study.of(panels[ranks, op])}
            for op in ("sum", "avg")
        )
        for name in (
            Name("mpich", "mpi4py", "auto"), Name("mpich", "mpi4py", "native"),
            Name("mpich-torch", "torch", "native"),
        ):  # fmt: skip
            sides = {
                size: (averages[size].contestants[name], cell.contestants[name])
                for size, cell in sums.items()
                if name in cell.contestants and name in averages[size].contestants
            }
            label = f"{ranks} ranks, {name.algorithm} of {_library(name.backend)}"
            label = label.replace("auto of MPICH", "mpicoll")
            ratios[label] = {size: _share(*side) for size, side in sides.items()}
            rows.append([label, *(ratios[label].get(size, "-") for size in sums)])
    shares = ratios["2 ranks, mpicoll"]
    return Finding(
        f"With mpicoll on 2 ranks, an average takes {_span(shares.values())} times as long as a "
        "sum.",
        _table(["time of avg over sum", *map(bytes_text, shares)], rows),
        "MPI has no average: each rank sums and then divides its result, in one more pass over the "
        "vector. mpicoll and torch do the same. That costs a fixed time for small vectors, and a "
        "pass over memory for large ones.",
        f"{_launches(published)}.",
        _ONE_MACHINE,
        [AVERAGE],
    )


def _backends(published: Published) -> Finding:
    algorithms = {"allreduce": ("ring", "recursive_doubling"), "broadcast": tuple(SHAPES)}
    rows: list[list[str]] = []
    ring: dict[int, str] = {}
    for collective, names in algorithms.items():
        for panel in published.panels(collective):
            cells = published.study.of(panel)
            for algorithm in (*(f"{name}{OVER_MESSAGES}" for name in names), "native"):
                ratios = {}
                for cell in cells:
                    sides = [
                        cell.contestants.get(Name("mpich-torch", backend, algorithm))
                        for backend in ("torch", "mpi4py")
                    ]
                    if sides[0] and sides[1]:
                        ratios[cell.size] = _share(sides[0], sides[1])
                if (panel.ranks, algorithm) == (2, f"ring{OVER_MESSAGES}"):
                    ring = ratios
                name = algorithm.removesuffix(OVER_MESSAGES).replace("native", "the library's own")
                texts = [ratios.get(cell.size, "-") for cell in cells]
                rows.append([f"{collective}, {panel.ranks} ranks: {name}", *texts])
    small, large = min(ring), max(ring)
    return Finding(
        f"A ring allreduce on 2 ranks takes {ring[small]} times as long over gloo's messages as "
        f"over MPICH's at {bytes_text(small)}, {ring[large]} times at {bytes_text(large)}.",
        _table(["time on torch over time on mpi4py", *map(bytes_text, sorted(ring))], rows),
        "Both run the same rounds. gloo sends over TCP with a thread that wakes up for each "
        "message; MPICH exchanges through shared memory on one node.",
        f"{_launches(published)}, both backends in one process.",
        f"{_ONE_MACHINE} gloo has no shared memory; NCCL needs GPUs.",
        [ALGORITHMS],
    )


def _nodes(*hosts: Published) -> Finding:
    rows: list[list[str]] = []
    slower: list[str] = []
    counts: dict[str, list[str]] = {"MPICH": [], "gloo": []}
    undecided = total = 0
    for published in hosts:
        study = published.study
        for environment, backend in (("mpich", "mpi4py"), ("mpich-torch", "torch")):
            names = (Name(environment, backend, algorithm) for algorithm in ("auto", "native"))
            choose = choose_pair(*names)
            by_panel = {panel: pairs(study, panel, choose) for panel in study.panels()}
            kinds = [pair.kind for group in by_panel.values() for pair in group]
            decided = sum(kind in ("faster", "slower", "tie") for kind in kinds)
            counts[_library(backend)].append(f"{kinds.count('faster')}/{decided}")
            undecided, total = undecided + len(kinds) - decided, total + len(kinds)
            for panel, group in by_panel.items():
                place = f"{panel.nodes}x2, {_library(backend)}: {panel.collective}"
                rows.append([place, *(_marked(pair.ratio) for pair in group)])
                slower += [
                    f"{panel.collective} of {bytes_text(pair.cell.size)} on {panel.nodes}x2 "
                    f"against {_library(backend)}"
                    for pair in group if pair.kind == "slower"
                ]  # fmt: skip
    sizes = [cell.size for cell in hosts[0].study.of(hosts[0].study.panels()[0])]
    return Finding(
        f"On 2 and 4 emulated hosts, mpicoll wins {' and '.join(counts['MPICH'])} of the decided "
        f"cases against MPICH, {' and '.join(counts['gloo'])} against gloo.",
        _table(["times as fast", *map(bytes_text, sizes)], rows),
        "Ranks of a node combine their data in shared memory first, so fewer messages cross the "
        "network. MPICH does that for some collectives, gloo for none.",
        f"{_launches(*hosts)}. Plans of `auto` were timed against the library's own calls. 2x2 is "
        f"2 hosts of 2 ranks, 4x2 is 4 hosts of 2. Of all {total} cases, {undecided} are "
        f"undecided. Slower: {'; '.join(slower) or 'none'}.",
        _EMULATED,
        [TWO_HOSTS, FOUR_HOSTS],
    )


def _network(published: Published) -> Finding:
    records = [
        record for record in only(PairRecord, published.records)
        if record.backend == "mpi4py" and record.transport == "point-to-point" and record.time_us
    ]  # fmt: skip
    largest = max(record.bytes for record in records)
    latency: dict[bool, float] = {}
    rate: dict[bool, float] = {}
    for within in (True, False):
        group = [r for r in records if (r.source_host == r.target_host) == within]
        latency[within] = median(
            r.time_us.median for r in group if r.quantity == LATENCY and r.time_us
        )
        rate[within] = median(
            r.GBps for r in group if r.quantity == ONE_WAY and r.bytes == largest and r.GBps
        )
    rows = [
        ["within a host", number(latency[True]), number(rate[True])],
        ["between hosts", number(latency[False]), number(rate[False])],
    ]
    return Finding(
        f"Between emulated hosts a message takes {number(latency[False])} us and moves "
        f"{number(rate[False])} GB/s, the set rate; within a host {number(latency[True])} us and "
        f"{number(rate[True])} GB/s.",
        _table(["pair of ranks", "latency, us", f"one way of {bytes_text(largest)}, GB/s"], rows),
        "This ratio decides between algorithms: crossing the network once for each node beats "
        "crossing it once for each rank.",
        "Medians over all pairs of ranks of a kind, one launch.",
        _EMULATED,
        [TWO_HOSTS],
    )


# -- words --------------------------------------------------------------------------------


def _library(backend: str) -> str:
    return "MPICH" if backend == "mpi4py" else "gloo"


def _sizes(group: Iterable[Pair]) -> list[int]:
    return sorted({pair.cell.size for pair in group if pair.cell.size})


def _marked(ratio: Ratio) -> str:
    """Return a ratio with its sign."""
    return _sign(ratio) + number(ratio.ratio)


def _sign(ratio: Ratio) -> str:
    """Return `=` for a ratio that is surely within 5 %, and `~` for one that is not decided."""
    return "" if ratio.is_sure else "=" if ratio.decision == "tie" else "~"


def _mean(group: Sequence[Pair]) -> str:
    return number(geometric_mean(pair.ratio.ratio for pair in group))


def _launches(*studies: Published) -> str:
    """Return how many launches of a configuration measured a cell, without disturbed ones."""
    counts = [
        contestant.launches for published in studies
        for cell in published.study.cells.values() for contestant in cell.contestants.values()
    ]  # fmt: skip
    return f"{median_low(counts)} launches of most configurations, {min(counts)} at least"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
