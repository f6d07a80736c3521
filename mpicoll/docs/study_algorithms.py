"""The findings on algorithms: of a reduction, of a broadcast, and in one call or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpicoll.algorithms import find
from mpicoll.costs import Switch, pattern_of
from mpicoll.costs.events import chain_length
from mpicoll.docs.study_evidence import (
    ALGORITHMS,
    AVERAGE,
    BESIDE_TORCH,
    MESSAGES,
    MPICH,
    ONE_MACHINE,
    PAGE_FAULTS,
    ROUNDS,
    SHARED_CORES,
    SHARED_MEMORY,
    SYMMETRIC,
    TORCH,
    Cause,
    Finding,
    Published,
    Side,
    choice_of,
    in_words,
    library_of,
    pick,
    schedules_over,
    size_of,
    span,
    table,
    times_as_long,
)
from mpicoll.study.cells import Cell, Contestant, Name, unbeaten
from mpicoll.study.forms import FORMS, forms_of
from mpicoll.study.sentences import join_names
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text

SHAPES = {
    "naive": "naive: the root sends to each rank",
    "binomial": "tree: binomial",
    "chain(segments=8)": "pipeline: chain of 8 segments",
    "scatter_ring": "ring: scatter, then ring",
}
"""The broadcasts of a finding."""
_IN_SHARED_MEMORY = "one_shot", "two_shot", "recursive_doubling", "rabenseifner", "ring"
"""The allreduces of a finding."""
_SEGMENTS = "chain(segments=1)", "chain(segments=8)"


# -- allreduce ------------------------------------------------------------------------------


def find_over_shared_memory(published: Published) -> Finding:
    """Return the fastest algorithm in shared memory, and what `auto` chose beside it."""
    rows = []
    used: list[Side] = []
    best_choices = 0
    fastest = {}
    panels = published.panels("allreduce")
    cells = [cell for panel in panels for cell in published.study.of(panel)]
    for cell in cells:
        every = schedules_over(cell, SYMMETRIC)
        times = {name: every[name] for name in _IN_SHARED_MEMORY}
        auto = cell.contestants[Name(MPICH, "mpi4py", "auto")]
        used += [(cell, contestant) for contestant in (*times.values(), auto)]
        best = unbeaten(times)
        best_choices += choice_of(auto) in best
        fastest[cell.panel.ranks, cell.size] = best[0]
        rows.append([
            f"{cell.panel.ranks} ranks, {size_of(cell)}", *_bold_times(times, best),
            f"`{choice_of(auto)}` {number(auto.us)}",
        ])  # fmt: skip
    sizes = sorted({cell.size for cell in cells})
    at_sizes = [
        f"`{fastest[4, size]}` at {bytes_text(size)}"
        for size in (sizes[0], sizes[len(sizes) // 2], sizes[-1])
    ]
    return Finding(
        "In shared memory on 4 ranks, the all-reduce with the lowest median is "
        f"{join_names(at_sizes)}.",
        table(["time in us", *_IN_SHARED_MEMORY, "`auto`'s choice"], rows),
        "Bold: the fastest, and those that it does not surely beat. Ratios are within launches. "
        + published.strength(used),
        f"{ONE_MACHINE} More ranks than cores wait for a core. The first tables have "
        "other launches, so a case has other times there: compare times of one table only.",
        [SHARED_MEMORY],
        _without_rounds_or_bytes(published, SHARED_MEMORY, SYMMETRIC, "shared memory"),
        choice=f"`auto` takes an algorithm in bold in {best_choices} of {len(cells)} cases. It "
        "follows the table that mpicoll ships, not a measurement of this machine.",
    )


def find_over_messages(published: Published, experiment: Published) -> Finding:
    """Return the fastest allreduce over messages."""
    rows, leaders = [], {}
    used: list[Side] = []
    cells = [cell for panel in published.panels("allreduce") for cell in published.study.of(panel)]
    for cell in cells:
        texts = []
        for environment, backend in ((MPICH, "mpi4py"), (TORCH, "torch")):
            times = schedules_over(cell, MESSAGES, environment, backend)
            used += [(cell, contestant) for contestant in times.values()]
            best = unbeaten(times)
            names = " or ".join(f"`{name}`" for name in best)
            leaders[cell.panel.ranks, backend, cell.size] = names
            texts.append(f"{names} {number(times[best[0]].us)}")
        rows.append([f"{cell.panel.ranks} ranks", size_of(cell), *texts])
    sizes = sorted({cell.size for cell in cells})
    small, large = (leaders[4, "mpi4py", size] for size in (sizes[0], sizes[-1]))
    return Finding(
        f"Over MPICH's messages on 4 ranks, the fastest all-reduce algorithm is {small} at "
        f"{bytes_text(sizes[0])}, and {large} at {bytes_text(sizes[-1])}.",
        table(
            ["", "size", "messages of MPICH: fastest, us", "messages of gloo: fastest, us"], rows
        ),
        "`naive`, `recursive_doubling` and `ring` were compared. Names together share the lead: "
        f"the first does not surely beat the others. {published.strength(used)}",
        f"{ONE_MACHINE} {SHARED_CORES} {BESIDE_TORCH}",
        [ALGORITHMS],
        _without_rounds_or_bytes(experiment, ROUNDS, MESSAGES, "MPICH's messages"),
    )


def _without_rounds_or_bytes(published: Published, study: str, suffix: str, place: str) -> Cause:
    """Return what few rounds and few bytes are worth, by two rings that differ in both."""
    times, *evidence = _by_rounds(published, "allreduce", suffix)
    small, large = times
    whole, parts = "ring_unchunked", "ring"
    counts = {name: _rounds_and_vectors("allreduce", name) for name in (whole, parts)}
    at_small, at_large = (
        in_words(times_as_long(times[size][name], times[size][other]))
        for size, name, other in ((small, parts, whole), (large, whole, parts))
    )
    return Cause(
        "the number of rounds, and of bytes",
        f"On 4 ranks over {place}, `{whole}` has {counts[whole][0]} rounds, and a rank sends "
        f"{counts[whole][1]:g} vectors; `{parts}` has {counts[parts][0]} rounds and "
        f"{counts[parts][1]:g} vectors. At {bytes_text(small)} `{parts}`, with more rounds, takes "
        f"{at_small} times as long. At {bytes_text(large)} `{whole}`, with more bytes, takes "
        f"{at_large} times as long.",
        "other differences",
        [study],
        *evidence,
    )


def _by_rounds(
    published: Published, collective: str, suffix: str
) -> tuple[dict[int, dict[str, Contestant]], str, str]:
    """Return times on 4 ranks at the smallest and the largest size, their table, and its strength.

    The algorithms are in the order of their rounds.
    """
    (panel,) = (panel for panel in published.panels(collective) if panel.ranks == 4)
    cells = published.study.of(panel)
    ends = {cell.size: schedules_over(cell, suffix) for cell in (cells[0], cells[-1])}
    counts = {name: _rounds_and_vectors(collective, name) for name in ends[cells[0].size]}
    rows = [
        [
            f"`{name}`", *map("{:g}".format, counts[name]),
            *(number(times[name].us) for times in ends.values()),
        ]
        for name in sorted(counts, key=lambda name: counts[name])
    ]  # fmt: skip
    heads = ["4 ranks", "rounds", "vectors sent by a rank"]
    return (
        ends,
        table([*heads, *(f"{bytes_text(size)}, us" for size in ends)], rows),
        published.strength(
            (cell, side) for cell in cells for side in ends.get(cell.size, {}).values()
        ),
    )


def _rounds_and_vectors(collective: str, algorithm: str, ranks: int = 4) -> tuple[int, float]:
    """Return the rounds of an algorithm, and the most that a rank sends, in vectors."""
    pattern = pattern_of(find(collective, algorithm), ranks)
    return chain_length(pattern, Switch(ranks)), pattern.sent


def _bold_times(times: Mapping[str, Contestant], best: Sequence[str]) -> list[str]:
    """Return times in us, those of the fastest in bold."""
    texts = {name: number(contestant.us) for name, contestant in times.items()}
    return [f"**{text}**" if name in best else text for name, text in texts.items()]


# -- one call or two ------------------------------------------------------------------------


def find_forms(published: Published, experiment: Published) -> Finding:
    """Return how long an allreduce as two calls takes."""
    every = {
        (forms.panel.ranks, forms.backend): forms for forms in forms_of(published.study)
        if forms.environment in (MPICH, TORCH) and forms.panel.op == "sum"
        and (forms.environment, forms.backend) != (TORCH, "mpi4py")
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
        f"Ratios are within launches. {published.strength(used)}",
        f"{ONE_MACHINE} {SHARED_CORES} gloo's reduce_scatter is an allreduce inside. "
        f"{BESIDE_TORCH}",
        [ALGORITHMS],
        _without_page_faults(experiment),
    )


def _without_page_faults(published: Published) -> Cause:
    """Return what remains of the cost of two calls if the allocator keeps its memory."""
    kept = f"{MPICH}-kept"
    single_call, *others = FORMS
    rows = []
    used: list[Side] = []
    ratios: dict[str, list[str]] = {MPICH: [], kept: []}
    for cell in published.cells():
        texts = []
        for environment in ratios:
            sides = {form: cell.contestants[Name(environment, "mpi4py", form)] for form in FORMS}
            used += [(cell, side) for side in sides.values()]
            shares = [times_as_long(sides[form], sides[single_call]) for form in others]
            texts += [number(sides[single_call].us), *shares]
            if cell.size >= 1 << 20:
                ratios[environment].append(shares[0])
        rows.append([size_of(cell), *texts])
    heads = ["one call, us", *(f"{FORMS[form]} / one call" for form in others)]
    variables = "`MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=2147483648`"
    return Cause(
        "the allocator",
        "By default glibc returns large blocks to the kernel, and every "
        f"call gets its temporary memory anew, page by page. {variables} make glibc keep them. "
        f"Then {FORMS[others[0]]} takes {span(ratios[kept])} times one call from 1M on, and "
        f"{span(ratios[MPICH])} by default.",
        "what explains the rest",
        [PAGE_FAULTS],
        table(["2 ranks", *heads, *(f"memory kept: {head}" for head in heads)], rows),
        published.strength(used),
    )


# -- broadcast ------------------------------------------------------------------------------


def find_shapes(published: Published, experiment: Published) -> Finding:
    """Return which broadcast over messages is the fastest."""
    rows = []
    winners: dict[tuple[int, str, int], str] = {}
    used: list[Side] = []
    for panel in published.panels("broadcast"):
        for environment, backend in ((MPICH, "mpi4py"), (TORCH, "torch")):
            for cell in published.study.of(panel):
                times = shape_times(cell, environment, backend)
                best = unbeaten(times)
                used += [(cell, contestant) for contestant in times.values()]
                titles = [SHAPES[shape].partition(":")[0] for shape in SHAPES if shape in best]
                winners[panel.ranks, backend, cell.size] = join_names(titles)
                texts = _bold_times(times, best)
                place = f"{panel.ranks} ranks, {library_of(backend)}"
                rows.append([place, bytes_text(cell.size), *texts])
    sizes = sorted({size for _, _, size in winners})
    small, large = (winners[4, "mpi4py", size] for size in (sizes[0], sizes[-1]))
    return Finding(
        f"In broadcasts on 4 ranks over MPI's messages, {small} lead at {bytes_text(sizes[0])}, "
        f"{large} at {bytes_text(sizes[-1])}.",
        table(["time in us", "size", *SHAPES.values()], rows),
        "Bold: the fastest, and those that it does not surely beat. " + published.strength(used),
        f"{ONE_MACHINE} {SHARED_CORES} {BESIDE_TORCH}",
        [ALGORITHMS],
        _without_segments(experiment),
        picture="shapes",
    )


def shape_times(cell: Cell, environment: str, backend: str) -> dict[str, Contestant]:
    """Return the measured broadcasts of `SHAPES` in a cell."""
    names = {shape: Name(environment, backend, f"{shape}{MESSAGES}") for shape in SHAPES}
    return {
        shape: cell.contestants[name] for shape, name in names.items() if name in cell.contestants
    }


def _without_segments(published: Published) -> Cause:
    """Return what a pipeline takes without its segments."""
    times, *evidence = _by_rounds(published, "broadcast", MESSAGES)
    whole, segments = _SEGMENTS
    at_small, at_large = (
        f"{in_words(times_as_long(sides[segments], sides[whole]))} times as long as in one at "
        f"{bytes_text(size)}"
        for size, sides in times.items()
    )
    return Cause(
        "the segments of the pipeline",
        f"In 8 segments the chain takes {at_small}, and {at_large}.",
        "why scatter and ring, and the tree, lead where they do",
        [ROUNDS],
        *evidence,
    )


# -- average --------------------------------------------------------------------------------


def find_average(published: Published) -> Finding:
    """Return how long an average takes, beside a sum."""
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
            "mpicoll": (MPICH, "mpi4py", "auto"), "native of MPICH": (MPICH, "mpi4py", "native"),
            "native of gloo": (TORCH, "torch", "native"),
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
        f"Ratios are within launches. {published.strength(used)}",
        f"{ONE_MACHINE} {SHARED_CORES} {BESIDE_TORCH}",
        [AVERAGE],
        _without_division(published),
    )


def _without_division(published: Published) -> Cause:
    """Return the time of an average without its division, which is a sum."""
    sums, averages = (
        [cell for panel in published.panels("allreduce", op) if panel.op == op
         for cell in published.study.of(panel)]
        for op in ("sum", "avg")
    )  # fmt: skip
    rows = []
    used: list[Side] = []
    same = 0
    auto = Name(MPICH, "mpi4py", "auto")
    for total_cell, average_cell in zip(sums, averages, strict=True):
        total, average = (cell.contestants[auto] for cell in (total_cell, average_cell))
        used += [(total_cell, total), (average_cell, average)]
        same += choice_of(total) == choice_of(average)
        rows.append([
            f"{total_cell.panel.ranks} ranks, {size_of(total_cell)}",
            f"`{choice_of(total)}` {number(total.us)}",
            f"`{choice_of(average)}` {number(average.us)}", times_as_long(average, total),
        ])  # fmt: skip
    return Cause(
        "the division",
        "An average is a sum and then a division of the result, so a sum is an "
        f"average without it. `auto` chose the same algorithm for both in {same} of {len(rows)} "
        "cases.",
        "why the division takes longer on some sizes",
        [AVERAGE],
        table(["", "sum, us", "average, us", "average / sum"], rows),
        published.strength(used),
    )
