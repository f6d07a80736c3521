"""The findings on libraries: mpicoll against their calls, and their calls against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import NamedTuple

from mpicoll.docs.study_evidence import (
    ALGORITHMS,
    LIBRARIES,
    MESSAGES,
    MPICH,
    ONE_MACHINE,
    PERSISTENT,
    RELEASE_GATHER,
    SETTINGS,
    SHARED_CORES,
    SINGLE,
    TORCH,
    Cause,
    Finding,
    Published,
    Side,
    choice_of,
    schedules_over,
    sides_of,
    signed,
    size_of,
    table,
    times_as_fast,
    times_as_long,
)
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.study.cells import Cell, Name, Ratio, compare_contestants, unbeaten
from mpicoll.study.sentences import Pair, join_names, pairs
from mpicoll.text.numbers import interval, number
from mpicoll.text.sizes import bytes_text

_LIBRARIES = {
    MPICH: "MPICH", SINGLE: "MPICH at SINGLE", "openmpi": "Open MPI", "intel": "Intel MPI",
}  # fmt: skip
_ENTRIES = {
    **{Name(name, "mpi4py", "native"): text for name, text in _LIBRARIES.items()},
    Name(TORCH, "torch", "native"): "gloo",
    Name(TORCH, "mpi4py", "native"): "MPICH beside torch",
}
_SETTINGS = {
    "openmpi-boxes-off": ("openmpi", "fast boxes", "OMPI_MCA_btl_sm_fbox_max=0"),
    "openmpi-tuned-off": ("openmpi", "its component `tuned`", "OMPI_MCA_coll=^tuned"),
    "intel-shared-off": ("intel", "collectives in shared memory", "I_MPI_COLL_INTRANODE=pt2pt"),
}
"""The environments that switch something off: that with it, what is off, and the variable."""
_RELEASE_GATHER = ("barrier", "broadcast", "reduce", "allreduce")
"""The collectives for which MPICH has the algorithm."""


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


def find_fastest(published: Published, messages: Published) -> Finding:
    """Return how many times as fast `auto` is as the fastest library call."""
    by_ranks = {ranks: strongest_pairs(published, ranks) for ranks in (2, 4)}
    every = [pair for group in by_ranks.values() for pair in group]
    kinds = Counter(pair.ratio.decision for pair in every)
    with_mpich = {
        ranks: number(geometric_mean(
            pair.reference.us / pair.cell.contestants[Name(MPICH, "mpi4py", "auto")].us
            for pair in group
        ))
        for ranks, group in by_ranks.items()
    }  # fmt: skip
    slower = [
        f"{pair.cell.panel.collective} of {size_of(pair.cell)} on {pair.cell.panel.ranks} ranks"
        for pair in every if pair.ratio.decision == "slower"
    ]  # fmt: skip
    return Finding(
        f"On one node, mpicoll's `auto` beats the fastest library call in {kinds['faster']} of "
        f"{len(every)} cases, on average {mean_of(by_ranks[2])} times on 2 ranks, "
        f"{mean_of(by_ranks[4])} on 4.",
        _by_size(by_ranks),
        f"Slower: {join_names(slower) if slower else 'none'}. Ties: {kinds['tie']}. Undecided: "
        f"{kinds['undecided']}. The means are geometric, over all cases. "
        + published.strength(sides_of(every)),
        f"{ONE_MACHINE} {SHARED_CORES}",
        [LIBRARIES],
        _without_shared_memory(published, messages),
        choice=f"The library call of a case has the lowest median of these {len(_ENTRIES)}: "
        f"{join_names([*_ENTRIES.values()])}, in one process. `auto` ran in the same "
        f"launches as that call. With MPICH alone, `auto` is {with_mpich[2]} times as fast as the "
        f"best library call anywhere on 2 ranks, and {with_mpich[4]} times on 4. These are "
        "geometric means of quotients of medians.",
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


def _without_shared_memory(memory: Published, messages: Published) -> Cause:
    """Return what remains of the lead over messages."""
    rows = []
    used: list[Side] = []
    leads: dict[int, list[tuple[float, float]]] = {}
    for panel in (*messages.panels("broadcast"), *messages.panels("allreduce")):
        cells = {cell.size: cell for cell in memory.study.of(panel)}
        for cell in messages.study.of(panel):
            if cell.size not in cells:
                continue
            times = schedules_over(cell, MESSAGES)
            name = unbeaten(times)[0]
            calls = [
                place.contestants[Name(MPICH, "mpi4py", "native")]
                for place in (cells[cell.size], cell)
            ]
            auto = cells[cell.size].contestants[Name(MPICH, "mpi4py", "auto")]
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
    return Cause(
        "shared memory",
        "For broadcast and allreduce with MPICH, `auto` over shared memory "
        f"is {means[2][0]} times as fast as MPICH's call on 2 ranks, and {means[4][0]} times on 4. "
        f"Over MPI's messages, mpicoll's fastest algorithm is {means[2][1]} and {means[4][1]} "
        "times as fast (geometric means).",
        "why these are faster",
        [ALGORITHMS],
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


def find_native_calls(
    published: Published, persistent: Published, settings: Published
) -> Finding:  # fmt: skip
    """Return which library has the fastest calls."""
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
    factors = {}
    for text in entries.values():
        ratios: dict[int, list[float]] = {2: [], 4: []}
        for cell, times in zip(cells, natives, strict=True):
            if text in times:
                best = min(contestant.us for contestant in times.values())
                ratios[cell.panel.ranks].append(times[text].us / best)
        means = [number(geometric_mean(values)) for values in ratios.values()]
        factors[text] = means
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
        "Geometric means over cases. Libraries ran in launches of their own, in random order. "
        + published.strength(
            (cell, contestant)
            for cell, times in zip(cells, natives, strict=True) for contestant in times.values()
        ),
        f"{ONE_MACHINE} {SHARED_CORES} Default settings of each wheel, and Intel MPI with its "
        "tuning tables.",
        [LIBRARIES],
        _joined(_without_blocking_calls(persistent, factors), _without_settings(settings)),
    )  # fmt: skip


def _joined(first: Cause, second: Cause) -> Cause:
    """Return two causes of a finding as one."""
    return Cause(
        f"{first.tested}, and {second.tested}", f"{first.result} {second.result}",
        f"{first.untested}, and {second.untested}", [*first.studies, *second.studies],
        f"{first.table}\n\n{second.table}",
        f"First experiment: {first.strength} Second experiment: {second.strength}",
    )  # fmt: skip


def _without_settings(published: Published) -> Cause:
    """Return how much slower Open MPI and Intel MPI are without what may make them fast."""
    used: list[Side] = []
    rows, results = dict[str, list[str]](), list[str]()
    for name, (library, feature, variable) in _SETTINGS.items():
        comparisons: dict[int, list[Ratio]] = {2: [], 4: []}
        for cell in published.cells():
            off, on = (cell.contestants[Name(env, "mpi4py", "native")] for env in (name, library))
            used += [(cell, off), (cell, on)]
            comparisons[cell.panel.ranks].append(compare_contestants(on, off))
            case = f"{cell.panel.ranks} ranks: {cell.panel.collective} {size_of(cell)}"
            rows.setdefault(case, []).append(times_as_long(off, on))
        means = [number(geometric_mean(r.ratio for r in group)) for group in comparisons.values()]
        sure = sum(r.decision == "faster" for group in comparisons.values() for r in group)
        count = sum(map(len, comparisons.values()))
        results.append(
            f"Without {feature} (`{variable}`), {_LIBRARIES[library]}'s calls take {means[0]} "
            f"times as long on 2 ranks and {means[1]} on 4; {sure} of {count} cases are surely "
            "slower."
        )
    return Cause(
        "what makes Open MPI and Intel MPI fast",
        " ".join(results), "combinations of these settings", [SETTINGS],
        table(
            ["time with / by default", *(f"`{variable}`" for *_, variable in _SETTINGS.values())],
            [[case, *texts] for case, texts in rows.items()],
        ),
        published.strength(used),
    )  # fmt: skip


def _without_blocking_calls(published: Published, factors: Mapping[str, Sequence[str]]) -> Cause:
    """Return how much faster MPICH's persistent calls are than its blocking calls.

    Args:
        factors: the times of each library over the lowest, on 2 and on 4 ranks.
    """
    names = Name(MPICH, "mpi4py", "native_persistent"), Name(MPICH, "mpi4py", "native")
    cells = [cell for cell in published.cells() if {*names} <= {*cell.contestants}]
    persistent, blocking = names
    ratios = [
        compare_contestants(cell.contestants[persistent], cell.contestants[blocking])
        for cell in cells
    ]
    columns = dict.fromkeys((cell.panel.ranks, cell.size or 64) for cell in cells)
    texts: dict[str, dict[tuple[int, int], str]] = {}
    for cell, ratio in zip(cells, ratios, strict=True):
        place = cell.panel.ranks, cell.size or 64
        texts.setdefault(cell.panel.collective, {})[place] = signed(ratio.ratio, ratio)
    parts = []
    for index, ranks in enumerate((2, 4)):
        group = [
            ratio for cell, ratio in zip(cells, ratios, strict=True) if cell.panel.ranks == ranks
        ]
        faster = sum(ratio.decision == "faster" for ratio in group)
        parts.append(
            f"On {ranks} ranks persistent calls are surely faster in {faster} of {len(group)} "
            f"cases. On average they are {number(geometric_mean(r.ratio for r in group))} times as "
            f"fast; blocking calls take {factors['MPICH'][index]} times the lowest median."
        )
    return Cause(
        "MPICH's blocking calls",
        "MPICH's persistent calls, such as `MPI_Allreduce_init`, do the same work. "
        + " ".join(parts),
        "why the times of blocking and persistent calls differ",
        [PERSISTENT],
        table(
            [
                "persistent calls: times as fast as blocking",
                *(f"{ranks} ranks, {bytes_text(size)}" for ranks, size in sorted(columns)),
            ],
            [
                [name, *(texts[name].get(place, "") for place in sorted(columns))]
                for name in COLLECTIVES if name in texts
            ],
        ),
        published.strength(
            (cell, cell.contestants[name]) for cell in cells for name in names
        ),
    )  # fmt: skip


def find_thread_levels(published: Published, experiment: Published) -> Finding:
    """Return how long MPICH's calls take at `MPI_THREAD_SINGLE`."""
    names = Name(SINGLE, "mpi4py", "native"), Name(MPICH, "mpi4py", "native")
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
        "`mpi4py.rc.thread_level` sets the level; mpi4py asks for MULTIPLE by default. "
        + published.strength(used),
        f"{ONE_MACHINE} {SHARED_CORES}",
        [LIBRARIES],
        _without_release_gather(
            experiment,
            f"Only {join_names(_RELEASE_GATHER)} have it: of {len(comparisons)} cases of other "
            f"collectives on 4 ranks, {slower} are surely slower at SINGLE.",
        ),
    )


def _without_release_gather(published: Published, other_collectives: str) -> Cause:
    """Return what remains of the slowdown without the algorithm."""
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
    return Cause(
        "MPICH's algorithm `release_gather`",
        "`MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM=mpir` switches it off, and the same with "
        "`BCAST` and `REDUCE`. Compare the columns of the experiment with each other only: its "
        "strength has the load. On 4 ranks, calls at "
        f"SINGLE are surely faster without it in {len(faster)} of {len(gains)} cases, "
        f"{interval(min(faster), max(faster))} times. Without it, SINGLE is surely slower than "
        f"MULTIPLE in {slower} of them. {other_collectives}",
        "why it is slow on shared cores",
        [RELEASE_GATHER],
        table(
            [
                "case", "SINGLE, us", "SINGLE without it, us", "MULTIPLE, us",
                "with / without it", "SINGLE / MULTIPLE", "without it / MULTIPLE",
            ],
            rows,
        ),
        published.strength(used),
    )  # fmt: skip


def mean_of(group: Sequence[Pair]) -> str:
    """Return the geometric mean of ratios."""
    return number(geometric_mean(pair.ratio.ratio for pair in group))
