"""The findings of the published study, computed from its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import geometric_mean, median
from typing import NamedTuple

from mpicoll.docs.study_evidence import (
    ALGORITHMS,
    AVERAGE,
    FOUR_HOSTS,
    LIBRARIES,
    NOT_TESTED,
    RELEASE_GATHER,
    STUDIES,
    TWO_HOSTS,
    Finding,
    Published,
    in_words,
    library_of,
    pick,
    signed,
    size_of,
    span,
    table,
    times_as_fast,
    times_as_long,
)
from mpicoll.measurement.ping_pong import LATENCY, ONE_WAY
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.records.lines import CaseRecord, PairRecord
from mpicoll.records.reading import only
from mpicoll.study.cells import Cell, Contestant, Name, Ratio, compare_contestants, unbeaten
from mpicoll.study.findings import choose_pair
from mpicoll.study.forms import FORMS, forms_of
from mpicoll.study.sentences import Pair, join_names, pairs
from mpicoll.text.numbers import interval, number
from mpicoll.text.sizes import bytes_text

SHAPES = {
    "naive": "naive: the root sends to each rank",
    "binomial": "tree: binomial",
    "chain(segments=8)": "pipeline: chain of 8 segments",
    "scatter_ring": "ring: scatter, then ring",
}
"""The broadcasts of a finding."""
MESSAGES = "@point-to-point"
_MPICH, _SINGLE, _TORCH = "mpich", "mpich-single", "mpich-torch"
_LIBRARIES = {
    _MPICH: "MPICH", _SINGLE: "MPICH at SINGLE", "openmpi": "Open MPI", "intel": "Intel MPI",
}  # fmt: skip
_ENTRIES = {
    **{Name(name, "mpi4py", "native"): text for name, text in _LIBRARIES.items()},
    Name(_TORCH, "mpi4py", "native"): "MPICH beside torch",
    Name(_TORCH, "torch", "native"): "gloo",
}
_ONE_MACHINE = "One virtual machine with two shared cores; other machines have other ratios."
_SHARED_CORES = "4 ranks share 2 cores, so their times include waits for a core."
_EMULATED = (
    "Hosts are emulated on the two cores, with links of 1 Gbit/s; real clusters have other "
    "ratios. To repeat it, root and MPICH are needed."
)
_RELEASE_GATHER = ("barrier", "broadcast", "reduce", "allreduce")
"""The collectives for which MPICH has the algorithm."""
Side = tuple[Cell, Contestant]


def all_findings(studies: Mapping[str, Published]) -> list[Finding]:
    """Return the findings in their order."""
    return [
        _fastest(studies[LIBRARIES], studies[ALGORITHMS]),
        _allreduce(studies[ALGORITHMS], studies[LIBRARIES]),
        _right(studies),
        _native_calls(studies[LIBRARIES]),
        _threads(studies[LIBRARIES], studies[RELEASE_GATHER]),
        _one_or_two(studies[ALGORITHMS]),
        _shapes(studies[ALGORITHMS]),
        _average(studies[AVERAGE]),
        _backends(studies[ALGORITHMS], studies[TWO_HOSTS]),
        _nodes(studies[TWO_HOSTS], studies[FOUR_HOSTS]),
        _network(studies[TWO_HOSTS]),
    ]


# -- the fastest of each case ---------------------------------------------------------------


def strongest_pairs(published: Published, ranks: int) -> list[Pair]:
    """Return the strongest library call of every cell, and the schedule of the same launches."""
    study = published.study
    return [
        pair for panel in study.panels() if panel.ranks == ranks
        for pair in pairs(study, panel, Cell.rivals)
    ]  # fmt: skip


class Best(NamedTuple):
    """The fastest call and the fastest algorithm of a case, with their times.

    Attributes:
        library, algorithm: the names.
        library_us, algorithm_us: medians over the launches that have both.
        ratio: how many times as fast the algorithm is.
    """

    case: str
    library: str
    library_us: float
    algorithm: str
    algorithm_us: float
    ratio: Ratio


def fastest_of_cases(published: Published, ranks: int) -> Iterator[Best]:
    """Yield the fastest call and algorithm of each case."""
    for pair in strongest_pairs(published, ranks):
        us, library_us = pair.us
        yield Best(
            " ".join(filter(None, (pair.cell.panel.collective, size_of(pair.cell)))),
            _ENTRIES[pair.reference.name], library_us, choice_of(pair.contestant), us, pair.ratio,
        )  # fmt: skip


def table_of_fastest(published: Published, ranks: int) -> str:
    """Return the table of the fastest algorithm and the fastest library call of each case."""
    return table(
        ["case", "times as fast", "algorithm, us", "library, us"],
        [
            [
                best.case,
                f"{signed(best.ratio.ratio, best.ratio)} ({number(best.ratio.low)} to "
                f"{number(best.ratio.high)})",
                # No code, which would not wrap: the table fits a narrow screen.
                f"{best.algorithm.partition('(')[0]} {number(best.algorithm_us)}",
                f"{best.library} {number(best.library_us)}",
            ]
            for best in fastest_of_cases(published, ranks)
        ],
    )  # fmt: skip


def _fastest(published: Published, messages: Published) -> Finding:
    by_ranks = {ranks: strongest_pairs(published, ranks) for ranks in (2, 4)}
    every = [pair for group in by_ranks.values() for pair in group]
    kinds = Counter(pair.ratio.decision for pair in every)
    with_mpich = {
        ranks: number(geometric_mean(
            pair.reference.us / pair.cell.contestants[Name(_MPICH, "mpi4py", "auto")].us
            for pair in group
        ))
        for ranks, group in by_ranks.items()
    }  # fmt: skip
    slower = [
        f"{pair.cell.panel.collective} of {size_of(pair.cell)} on {pair.cell.panel.ranks} ranks"
        for pair in every if pair.ratio.decision == "slower"
    ]  # fmt: skip
    cause, evidence, evidence_strength = _without_shared_memory(published, messages)
    return Finding(
        f"On one node, mpicoll's `auto` beats the fastest library call in {kinds['faster']} of "
        f"{len(every)} cases, on average {_mean(by_ranks[2])} times on 2 ranks, "
        f"{_mean(by_ranks[4])} on 4.",
        _by_size(by_ranks),
        cause,
        f"Slower: {join_names(slower) if slower else 'none'}. Ties: {kinds['tie']}. Undecided: "
        f"{kinds['undecided']}. The means are geometric, over all cases. "
        + published.strength(_sides(every)),
        f"{_ONE_MACHINE} {_SHARED_CORES}",
        [LIBRARIES],
        [ALGORITHMS],
        evidence,
        evidence_strength,
        choice="The library call is the one with the lowest median of "
        f"{len(_ENTRIES)} environments: {'; '.join(_ENTRIES.values())}. `auto` ran in the same "
        f"launches as that call. With MPICH alone, `auto` is {with_mpich[2]} times as fast as the "
        f"best library call anywhere on 2 ranks, and {with_mpich[4]} times on 4 (geometric means "
        "of quotients of medians).",
        picture="fastest",
    )


def _by_size(by_ranks: Mapping[int, Sequence[Pair]]) -> str:
    """Return the ratios by collective, number of ranks and size."""
    columns = [
        (ranks, size) for ranks, group in by_ranks.items()
        for size in sorted({pair.cell.size for pair in group if pair.cell.size})
    ]  # fmt: skip
    rows = []
    for name in COLLECTIVES:
        texts = {
            # A barrier moves no bytes: it stands at the smallest size.
            (ranks, pair.cell.size or columns[0][1]): signed(pair.ratio.ratio, pair.ratio)
            for ranks, group in by_ranks.items() for pair in group
            if pair.cell.panel.collective == name
        }  # fmt: skip
        rows.append([name, *(texts.get(column, "") for column in columns)])
    heads = [f"{ranks} ranks, {bytes_text(size)}" for ranks, size in columns]
    return table(["times as fast", *heads], rows)


def _without_shared_memory(memory: Published, messages: Published) -> tuple[str, str, str]:
    """Return what remains of the lead over messages, a table, and its strength."""
    rows = []
    used: list[Side] = []
    leads: dict[int, list[tuple[float, float]]] = {}
    for panel in (*messages.panels("broadcast"), *messages.panels("allreduce")):
        cells = {cell.size: cell for cell in memory.study.of(panel)}
        for cell in messages.study.of(panel):
            if cell.size not in cells:
                continue
            times = _schedules(cell, _MPICH, "mpi4py", MESSAGES)
            name = unbeaten(times)[0]
            calls = [
                place.contestants[Name(_MPICH, "mpi4py", "native")]
                for place in (cells[cell.size], cell)
            ]
            auto = cells[cell.size].contestants[Name(_MPICH, "mpi4py", "auto")]
            used += [(cell, times[name]), (cell, calls[1])]
            sides = (auto, calls[0]), (times[name], calls[1])
            ratios = [compare_contestants(*side).ratio for side in sides]
            leads.setdefault(panel.ranks, []).append((ratios[0], ratios[1]))
            place = f"{panel.ranks} ranks: {panel.collective} {size_of(cell)}"
            rows.append([
                place, f"`{choice_of(auto)}` {times_as_fast(*sides[0])}",
                f"`{name}` {times_as_fast(*sides[1])}",
            ])  # fmt: skip
    means = {
        ranks: [number(geometric_mean(ratios)) for ratios in zip(*pairs_of_ranks, strict=True)]
        for ranks, pairs_of_ranks in leads.items()
    }
    return (
        "Shared memory, in part. For broadcast and allreduce with MPICH, `auto` over shared memory "
        f"is {means[2][0]} times as fast as MPICH's call on 2 ranks, and {means[4][0]} times on 4. "
        f"mpicoll's fastest algorithm over MPI's messages is {means[2][1]} and {means[4][1]} times "
        "as fast (geometric means). What explains these was not tested.",
        table(
            [
                "case", "over shared memory: times as fast as MPICH's call",
                "fastest over messages: the same",
            ],
            rows,
        ),
        "Both ratios are within launches, and the two studies ran on one machine. "
        + messages.strength(used),
    )  # fmt: skip


# -- algorithms of an allreduce -------------------------------------------------------------


def _allreduce(published: Published, libraries: Published) -> Finding:
    """Return the fastest algorithm over messages, beside the choice of `auto` in shared memory."""
    rows, leaders = [], {}
    used: list[Side] = []
    memory = {
        (cell.panel.ranks, cell.size): cell.contestants[Name(_MPICH, "mpi4py", "auto")]
        for panel in libraries.panels("allreduce")
        for cell in libraries.study.of(panel)
    }
    cells = [cell for panel in published.panels("allreduce") for cell in published.study.of(panel)]
    for cell in cells:
        texts = []
        for environment, backend in ((_MPICH, "mpi4py"), (_TORCH, "torch")):
            times = _schedules(cell, environment, backend, MESSAGES)
            used += [(cell, contestant) for contestant in times.values()]
            first = unbeaten(times)
            names = " or ".join(f"`{name}`" for name in first)
            leaders[cell.panel.ranks, backend, cell.size] = names
            texts.append(f"{names} {number(times[first[0]].us)}")
        shared = memory.get((cell.panel.ranks, cell.size))
        chosen = f"`{choice_of(shared)}` {number(shared.us)}" if shared else "-"
        rows.append([f"{cell.panel.ranks} ranks", size_of(cell), *texts, chosen])
    sizes = sorted({cell.size for cell in cells})
    small, large = (leaders[4, "mpi4py", size] for size in (sizes[0], sizes[-1]))
    return Finding(
        f"Over MPICH's messages on 4 ranks, the fastest all-reduce algorithm is {small} at "
        f"{bytes_text(sizes[0])}, and {large} at {bytes_text(sizes[-1])}.",
        table(
            [
                "", "size", "messages of MPICH: fastest, us", "messages of gloo: fastest, us",
                "shared memory: choice of `auto`, us",
            ],
            rows,
        ),
        NOT_TESTED,
        "`naive`, `recursive_doubling` and `ring` were compared. Names together share the lead: "
        "the first does not surely beat the others. The last column is of the study `libraries`, "
        f"and `auto` was not compared with other algorithms there. {published.strength(used)}",
        f"{_ONE_MACHINE} {_SHARED_CORES} Algorithms over shared memory, such as `two_shot` and "
        "`rabenseifner`, were not compared with each other. gloo ran beside MPICH in one process.",
        [ALGORITHMS, LIBRARIES],
    )  # fmt: skip


def choice_of(chooser: Contestant) -> str:
    """Return the algorithm that a chooser took most often."""
    choices = list(chooser.ran.values())
    return max(dict.fromkeys(choices), key=choices.count).partition("@")[0]


def _schedules(cell: Cell, environment: str, backend: str, suffix: str) -> dict[str, Contestant]:
    """Return the schedules of a cell over one transport, by their names without it."""
    return {
        name.algorithm.removesuffix(suffix): contestant
        for name, contestant in cell.contestants.items()
        if name.is_ours and name.algorithm.endswith(suffix)
        and (name.environment, name.backend) == (environment, backend)
    }  # fmt: skip


# -- results, libraries and thread levels ---------------------------------------------------


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
        rows.append(
            [name, str(launches), *(str(counts[key]) for key in ("right", "wrong", "not run"))]
        )
    wrong = f"{totals['wrong']} were" if totals["wrong"] else "none was"
    return Finding(
        f"Each case was checked after timing, on the buffers that were timed: of "
        f"{totals['right'] + totals['wrong']} results, {wrong} wrong.",
        table(["study", "launches", "right", "wrong", "not offered by the library"], rows),
        "",
        "One check of each case in each launch, with all ranks. Inputs depend on rank and index, "
        "so a block from the wrong rank or place shows. Outputs are overwritten before each check.",
        "float32, with values whose sums are exact: rounding was not tested.",
        STUDIES,
    )


def _native_calls(published: Published) -> Finding:
    rows, lowest, sure = [], Counter[str](), Counter[str]()
    entries = {name: text for name, text in _ENTRIES.items() if text != "MPICH beside torch"}
    cells = [cell for cell in published.cells() if cell.natives()]
    natives = [
        {entries[name]: cell.contestants[name] for name in entries if name in cell.contestants}
        for cell in cells
    ]
    for times in natives:
        first, *rivals = unbeaten(times)
        lowest[first] += 1
        sure[first] += not rivals
    for text in entries.values():
        ratios: dict[int, list[float]] = {2: [], 4: []}
        for cell, times in zip(cells, natives, strict=True):
            if text in times:
                best = min(contestant.us for contestant in times.values())
                ratios[cell.panel.ranks].append(times[text].us / best)
        means = [number(geometric_mean(values)) for values in ratios.values()]
        rows.append([text, str(lowest[text]), str(sure[text]), *means])
    (first, count), (second, second_count) = lowest.most_common(2)
    return Finding(
        f"Among the libraries' own calls, {first} has the lowest median in {count} of "
        f"{len(cells)} cases, {second} in {second_count}; {sum(sure.values())} cases are decided.",
        table(
            [
                "library", "lowest median in", "surely the fastest in",
                "2 ranks: time over the lowest", "4 ranks: the same",
            ],
            rows,
        ),
        NOT_TESTED,
        "Geometric means over cases. Libraries ran in launches of their own, in random order. "
        + published.strength(
            (cell, contestant)
            for cell, times in zip(cells, natives, strict=True) for contestant in times.values()
        ),
        f"{_ONE_MACHINE} {_SHARED_CORES} Default settings of each wheel, and Intel MPI with its "
        "tuning tables.",
        [LIBRARIES],
    )  # fmt: skip


def _threads(published: Published, experiment: Published) -> Finding:
    names = Name(_SINGLE, "mpi4py", "native"), Name(_MPICH, "mpi4py", "native")
    columns: dict[tuple[int, int], dict[str, str]] = {}
    used: list[Side] = []
    comparisons: list[Ratio] = []
    for cell in published.cells():
        sides = [cell.contestants[name] for name in names]
        used += [(cell, side) for side in sides]
        if cell.panel.ranks == 4 and cell.panel.collective not in _RELEASE_GATHER:
            comparisons.append(compare_contestants(sides[0], sides[1]))
        place = cell.panel.ranks, cell.size or 64
        columns.setdefault(place, {})[cell.panel.collective] = times_as_long(*sides)
    rows = [
        [name, *(texts.get(name, "") for _, texts in sorted(columns.items()))]
        for name in COLLECTIVES
    ]
    heads = [f"{ranks} ranks, {bytes_text(size)}" for ranks, size in sorted(columns)]
    cause, evidence, evidence_strength = _without_release_gather(experiment)
    (cell,) = (
        cell for cell in published.cells()
        if (cell.panel.ranks, cell.panel.collective, cell.size) == (4, "allreduce", 4096)
    )  # fmt: skip
    us = [number(cell.contestants[name].us) for name in names]
    slower = sum(ratio.decision == "slower" for ratio in comparisons)
    return Finding(
        f"On 4 ranks that share 2 cores, MPICH's allreduce of 4K takes {us[0]} us at "
        f"MPI_THREAD_SINGLE, and {us[1]} us at MULTIPLE.",
        table(["time with SINGLE over MULTIPLE", *heads], rows),
        f"{cause} Only {join_names(_RELEASE_GATHER)} have it: of {len(comparisons)} cases of other "
        f"collectives on 4 ranks, {slower} are surely slower at SINGLE.",
        "`mpi4py.rc.thread_level` sets the level; mpi4py asks for MULTIPLE by default. "
        + published.strength(used),
        f"{_ONE_MACHINE} {_SHARED_CORES}",
        [LIBRARIES],
        [RELEASE_GATHER],
        evidence,
        evidence_strength,
    )


def _without_release_gather(published: Published) -> tuple[str, str, str]:
    """Return what remains of the slowdown without the algorithm, a table, and its strength."""
    names = [Name(name, "mpi4py", "native") for name in ("single", "single-off", "multiple")]
    rows = []
    used: list[Side] = []
    gains: list[Ratio] = []
    losses: list[Ratio] = []
    for cell in published.cells():
        single, off, multiple = (cell.contestants[name] for name in names)
        used += [(cell, side) for side in (single, off, multiple)]
        if cell.panel.ranks == 4:
            gains.append(compare_contestants(off, single))
            losses.append(compare_contestants(off, multiple))
        rows.append([
            f"{cell.panel.ranks} ranks: {cell.panel.collective} {size_of(cell)}",
            *(number(side.us) for side in (single, off, multiple)),
            times_as_long(single, off), times_as_long(single, multiple),
            times_as_long(off, multiple),
        ])  # fmt: skip
    faster = [ratio.ratio for ratio in gains if ratio.decision == "faster"]
    slower = sum(ratio.decision == "slower" for ratio in losses)
    return (
        "MPICH's algorithm `release_gather`, which "
        "`MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM=mpir` switches off, and the same with `BCAST` "
        "and `REDUCE`. The experiment ran beside other programs: compare its columns with each "
        "other only. On 4 ranks, calls at "
        f"SINGLE are surely faster without it in {len(faster)} of {len(gains)} cases, "
        f"{interval(min(faster), max(faster))} times. Without it, SINGLE is surely slower than "
        f"MULTIPLE in {slower} of them. Why it is slow on shared cores was not tested.",
        table(
            [
                "case", "SINGLE, us", "SINGLE without it, us", "MULTIPLE, us",
                "with / without it", "SINGLE / MULTIPLE", "without it / MULTIPLE",
            ],
            rows,
        ),
        published.strength(used),
    )  # fmt: skip


# -- forms and shapes -----------------------------------------------------------------------


def _one_or_two(published: Published) -> Finding:
    every = {
        (forms.panel.ranks, forms.backend): forms for forms in forms_of(published.study)
        if forms.environment in (_MPICH, _TORCH) and forms.panel.op == "sum"
        and (forms.environment, forms.backend) != (_TORCH, "mpi4py")
    }  # fmt: skip
    single_call, first, second = FORMS
    rows = []
    used: list[Side] = []
    for (ranks, backend), forms in sorted(every.items()):
        cells = {cell.size: cell for cell in published.study.of(forms.panel)}
        for size, times in sorted(forms.times.items()):
            used += [(cells[size], contestant) for contestant in times.values()]
            shares = [times_as_long(times[form], times[single_call]) for form in (first, second)]
            place = f"{ranks} ranks, {library_of(backend)}"
            rows.append([place, bytes_text(size), number(times[single_call].us), *shares])
    large = [times for size, times in every[2, "mpi4py"].times.items() if size >= 1 << 20]
    spans = {
        form: span(times_as_long(times[form], times[single_call]) for times in large)
        for form in (first, second)
    }
    return Finding(
        f"From 1M on, 2 ranks of MPICH take {spans[first]} times one call for reduce + broadcast, "
        f"{spans[second]} for reduce_scatter + allgather.",
        table(
            [
                "",
                "size",
                "one call, us",
                *(f"{FORMS[form]} / one call" for form in (first, second)),
            ],
            rows,
        ),
        NOT_TESTED,
        f"Ratios are within launches. {published.strength(used)}",
        f"{_ONE_MACHINE} {_SHARED_CORES} gloo's reduce_scatter is an allreduce inside. gloo ran "
        "beside MPICH in one process.",
        [ALGORITHMS],
    )


def _shapes(published: Published) -> Finding:
    rows = []
    winners: dict[tuple[int, str, int], str] = {}
    used: list[Side] = []
    for panel in published.panels("broadcast"):
        for environment, backend in ((_MPICH, "mpi4py"), (_TORCH, "torch")):
            for cell in published.study.of(panel):
                times = shape_times(cell, environment, backend)
                best = unbeaten(times)
                used += [(cell, contestant) for contestant in times.values()]
                titles = [SHAPES[shape].partition(":")[0] for shape in SHAPES if shape in best]
                winners[panel.ranks, backend, cell.size] = join_names(titles)
                texts = [
                    f"**{number(times[shape].us)}**" if shape in best else number(times[shape].us)
                    for shape in SHAPES
                ]
                place = f"{panel.ranks} ranks, {library_of(backend)}"
                rows.append([place, bytes_text(cell.size), *texts])
    sizes = sorted({size for _, _, size in winners})
    small, large = (winners[4, "mpi4py", size] for size in (sizes[0], sizes[-1]))
    return Finding(
        f"In broadcasts on 4 ranks over MPI's messages, {small} lead at {bytes_text(sizes[0])}, "
        f"{large} at {bytes_text(sizes[-1])}.",
        table(["time in us", "size", *SHAPES.values()], rows),
        NOT_TESTED,
        "Bold: the fastest, and those that it does not surely beat. " + published.strength(used),
        f"{_ONE_MACHINE} {_SHARED_CORES} gloo ran beside MPICH in one process.",
        [ALGORITHMS],
        picture="shapes",
    )


def shape_times(cell: Cell, environment: str, backend: str) -> dict[str, Contestant]:
    """Return the measured broadcasts of `SHAPES` in a cell."""
    names = {shape: Name(environment, backend, f"{shape}{MESSAGES}") for shape in SHAPES}
    return {
        shape: cell.contestants[name] for shape, name in names.items() if name in cell.contestants
    }


def _average(published: Published) -> Finding:
    rows: list[list[str]] = []
    ratios: dict[str, dict[int, str]] = {}
    used: list[Side] = []
    for ranks in (2, 4):
        sums, averages = (
            {
                cell.size: cell for panel in published.panels("allreduce", op)
                if (panel.ranks, panel.op) == (ranks, op) for cell in published.study.of(panel)
            }
            for op in ("sum", "avg")
        )  # fmt: skip
        for text, side in {
            "mpicoll": (_MPICH, "mpi4py", "auto"), "native of MPICH": (_MPICH, "mpi4py", "native"),
            "native of gloo": (_TORCH, "torch", "native"),
        }.items():  # fmt: skip
            shares = ratios.setdefault(f"{ranks} ranks, {text}", {})
            for size in sums:
                average, total = pick(averages[size], *side), pick(sums[size], *side)
                if average and total:
                    shares[size] = times_as_long(average, total)
                    used += [(averages[size], average), (sums[size], total)]
            rows.append([f"{ranks} ranks, {text}", *(shares.get(size, "-") for size in sums)])
    shares = ratios["2 ranks, mpicoll"]
    return Finding(
        f"With mpicoll on 2 ranks, an average takes {span(shares.values())} times as long as a "
        "sum.",
        table(["time of avg over sum", *map(bytes_text, shares)], rows),
        NOT_TESTED,
        f"Ratios are within launches. {published.strength(used)}",
        f"{_ONE_MACHINE} {_SHARED_CORES} gloo ran beside MPICH in one process.",
        [AVERAGE],
    )


# -- backends -------------------------------------------------------------------------------


def _backends(published: Published, hosts: Published) -> Finding:
    algorithms = {"allreduce": ("ring", "recursive_doubling"), "broadcast": tuple(SHAPES)}
    rows: list[list[str]] = []
    ring: dict[int, str] = {}
    slowdowns: list[float] = []
    used: list[Side] = []
    for collective, names in algorithms.items():
        for panel in published.panels(collective):
            cells = published.study.of(panel)
            for algorithm in (*(f"{name}{MESSAGES}" for name in names), "native"):
                ratios = {}
                for cell in cells:
                    torch, mpi, mpi_alone = (
                        cell.contestants[Name(environment, backend, algorithm)]
                        for environment, backend in (
                            (_TORCH, "torch"), (_TORCH, "mpi4py"), (_MPICH, "mpi4py"),
                        )
                    )  # fmt: skip
                    ratios[cell.size] = times_as_long(torch, mpi)
                    slowdowns.append(1 / compare_contestants(mpi, mpi_alone).ratio)
                    used += [(cell, torch), (cell, mpi), (cell, mpi_alone)]
                if (panel.ranks, algorithm) == (2, f"ring{MESSAGES}"):
                    ring = ratios
                name = algorithm.removesuffix(MESSAGES).replace("native", "the library's own")
                rows.append([f"{collective}, {panel.ranks} ranks: {name}", *ratios.values()])
    small, large = min(ring), max(ring)
    cause, evidence, evidence_strength = _between_hosts(published, hosts)
    return Finding(
        f"A ring allreduce on 2 ranks takes {in_words(ring[small])} times as long over gloo's "
        f"messages as over MPICH's at {bytes_text(small)}, {in_words(ring[large])} times at "
        f"{bytes_text(large)}.",
        table(["time on torch over time on mpi4py", *map(bytes_text, sorted(ring))], rows),
        cause,
        "Both backends ran in one process, and the ratios are within launches. Beside torch MPICH "
        f"takes {number(min(slowdowns))} to {number(max(slowdowns))} times as long as alone. "
        + published.strength(used),
        f"{_ONE_MACHINE} {_SHARED_CORES} gloo has no shared memory; NCCL needs GPUs.",
        [ALGORITHMS],
        [TWO_HOSTS],
        evidence,
        evidence_strength,
    )


def _between_hosts(one_node: Published, hosts: Published) -> tuple[str, str, str]:
    """Return how long gloo takes if MPICH's messages cross a network, too; the native calls."""
    rows = []
    used: list[Side] = []
    shares = {}
    for panel in (entry for entry in hosts.study.panels() if entry.op in ("", "sum")):
        nodes = [entry for entry in one_node.panels(panel.collective) if entry.ranks == panel.ranks]
        cells = {cell.size: cell for entry in nodes for cell in one_node.study.of(entry)}
        for cell in hosts.study.of(panel):
            if cell.size not in cells:
                continue
            texts = []
            for place in (cells[cell.size], cell):
                gloo, mpi = (
                    place.contestants[Name(_TORCH, backend, "native")]
                    for backend in ("torch", "mpi4py")
                )
                texts.append(times_as_long(gloo, mpi))
            used += [(cell, gloo), (cell, mpi)]
            shares[panel.collective, cell.size] = texts
            rows.append([f"{panel.collective} {size_of(cell)}", *texts])
    on_node, between = shares["allreduce", 64]
    return (
        "Shared memory alone is not the cause. Between 2 emulated hosts of 2 ranks, MPICH's "
        "messages cross a network as gloo's do. There gloo's allreduce of 64 B takes "
        f"{in_words(between)} times as long as MPICH's, and {in_words(on_node)} times on one node. "
        "Other causes were not tested.",
        table(["time of gloo's call over MPICH's, 4 ranks", "one node", "2 hosts of 2"], rows),
        hosts.strength(used),
    )


# -- nodes ----------------------------------------------------------------------------------


def _nodes(two_hosts: Published, four_hosts: Published) -> Finding:
    rows: list[list[str]] = []
    slower: list[str] = []
    counts: dict[str, list[str]] = {"MPICH": [], "gloo": []}
    strengths = []
    kinds = Counter[str]()
    for published in (two_hosts, four_hosts):
        study, used = published.study, []
        for environment, backend in ((_MPICH, "mpi4py"), (_TORCH, "torch")):
            names = (Name(environment, backend, algorithm) for algorithm in ("auto", "native"))
            choose = choose_pair(*names)
            by_panel = {panel: pairs(study, panel, choose) for panel in study.panels()}
            every = [pair for group in by_panel.values() for pair in group]
            used += _sides(every)
            kinds.update(pair.ratio.decision for pair in every)
            faster = sum(pair.ratio.decision == "faster" for pair in every)
            counts[library_of(backend)].append(str(faster))
            for panel, group in by_panel.items():
                place = f"{panel.nodes}x2, {library_of(backend)}: {panel.collective}"
                texts = (signed(pair.ratio.ratio, pair.ratio) for pair in group)
                rows.append([place, *texts])
                slower += [
                    f"{panel.collective} of {size_of(pair.cell)} on {panel.nodes}x2 against "
                    f"{library_of(backend)}"
                    for pair in group if pair.ratio.decision == "slower"
                ]  # fmt: skip
        strengths.append(published.strength(used))
    sizes = [cell.size for cell in two_hosts.study.of(two_hosts.study.panels()[0])]
    return Finding(
        f"Of {len(every)} cases on each of 2 and 4 emulated hosts, mpicoll beats MPICH in "
        f"{join_names(counts['MPICH'])}, and gloo in {join_names(counts['gloo'])}.",
        table(["times as fast", *map(bytes_text, sizes)], rows),
        NOT_TESTED,
        f"Slower: {join_names(slower) if slower else 'none'}. Ties: {kinds['tie']}. Undecided: "
        f"{kinds['undecided'] + kinds['disturbed']}. 2x2 is 2 hosts of 2 ranks, 4x2 is 4 hosts of "
        f"2. {' '.join(strengths)}",
        f"{_EMULATED} gloo ran beside MPICH in one process.",
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
    groups: dict[bool, list[PairRecord]] = {}
    for within in (True, False):
        group = [r for r in records if (r.source_host == r.target_host) == within]
        groups[within] = [r for r in group if r.quantity == LATENCY]
        latency[within] = median(r.time_us.median for r in groups[within] if r.time_us)
        rate[within] = median(
            r.GBps for r in group if r.quantity == ONE_WAY and r.bytes == largest and r.GBps
        )
    rows = [
        [name, str(len(groups[within])), number(latency[within]), number(rate[within])]
        for name, within in (("within a host", True), ("between hosts", False))
    ]
    samples = median(record.samples for record in records)
    return Finding(
        f"Between emulated hosts a message takes {number(latency[False])} us and moves "
        f"{number(rate[False])} GB/s, the set rate; within a host {number(latency[True])} us and "
        f"{number(rate[True])} GB/s.",
        table(
            ["pairs of ranks", "pairs", "latency, us", f"one way of {bytes_text(largest)}, GB/s"],
            rows,
        ),
        "",
        f"Medians over ordered pairs of ranks, one launch, {samples:.0f} samples of a pair. No "
        "interval follows from one launch.",
        _EMULATED,
        [TWO_HOSTS],
    )


# -- sides ----------------------------------------------------------------------------------


def _sides(group: Iterable[Pair]) -> list[Side]:
    """Return both sides of pairs, with their cells."""
    return [
        *chain.from_iterable(
            ((pair.cell, pair.contestant), (pair.cell, pair.reference)) for pair in group
        )
    ]


def _all_sides(cells: Iterable[Cell]) -> list[Side]:
    return [(cell, contestant) for cell in cells for contestant in cell.contestants.values()]


def _mean(group: Sequence[Pair]) -> str:
    return number(geometric_mean(pair.ratio.ratio for pair in group))
