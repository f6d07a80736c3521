"""The findings on backends and on emulated hosts."""

from __future__ import annotations

from collections import Counter
from statistics import median

from mpicoll.docs.study_algorithms import SHAPES
from mpicoll.docs.study_evidence import (
    ALGORITHMS,
    BESIDE_TORCH,
    EMULATED,
    FOUR_HOSTS,
    HOSTS_BY_MESSAGES,
    MESSAGES,
    MPICH,
    ONE_MACHINE,
    SHARED_CORES,
    TORCH,
    TWO_HOSTS,
    Cause,
    Finding,
    Published,
    Side,
    in_words,
    library_of,
    schedules_over,
    sides_of,
    signed,
    size_of,
    table,
    times_as_fast,
    times_as_long,
)
from mpicoll.measurement.ping_pong import LATENCY, ONE_WAY
from mpicoll.records.lines import PairRecord
from mpicoll.records.reading import only
from mpicoll.study.cells import Name, compare_contestants
from mpicoll.study.findings import choose_pair
from mpicoll.study.sentences import join_names, pairs
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text

# -- backends -------------------------------------------------------------------------------


def find_backends(published: Published, hosts: Published) -> Finding:
    """Return how long algorithms take over gloo's messages, beside MPICH's."""
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
                            (TORCH, "torch"), (TORCH, "mpi4py"), (MPICH, "mpi4py"),
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
    return Finding(
        f"A ring allreduce on 2 ranks takes {in_words(ring[small])} times as long over gloo's "
        f"messages as over MPICH's at {bytes_text(small)}, {in_words(ring[large])} times at "
        f"{bytes_text(large)}.",
        table(["time on torch over time on mpi4py", *map(bytes_text, sorted(ring))], rows),
        "Both backends ran in one process, and the ratios are within launches. Beside torch MPICH "
        f"takes {number(min(slowdowns))} to {number(max(slowdowns))} times as long as alone. "
        + published.strength(used),
        f"{ONE_MACHINE} {SHARED_CORES} gloo has no shared memory; NCCL needs GPUs.",
        [ALGORITHMS],
        _between_hosts(published, hosts),
    )


def _between_hosts(one_node: Published, hosts: Published) -> Cause:
    """Return how long gloo's calls take if MPICH's messages cross a network, too."""
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
                    place.contestants[Name(TORCH, backend, "native")]
                    for backend in ("torch", "mpi4py")
                )
                texts.append(times_as_long(gloo, mpi))
            used += [(cell, gloo), (cell, mpi)]
            shares[panel.collective, cell.size] = texts
            rows.append([f"{panel.collective} {size_of(cell)}", *texts])
    on_node, between = shares["allreduce", 64]
    return Cause(
        "shared memory",
        "Between 2 emulated hosts of 2 ranks, MPICH's "
        "messages cross a network as gloo's do. There gloo's allreduce of 64 B takes "
        f"{in_words(between)} times as long as MPICH's, and {in_words(on_node)} times on one node.",
        "other causes",
        [TWO_HOSTS],
        table(["time of gloo's call over MPICH's, 4 ranks", "one node", "2 hosts of 2"], rows),
        hosts.strength(used),
    )


# -- nodes ----------------------------------------------------------------------------------


def find_hosts(two_hosts: Published, four_hosts: Published, experiment: Published) -> Finding:
    """Return how many times as fast mpicoll is on emulated hosts."""
    rows: list[list[str]] = []
    slower: list[str] = []
    counts: dict[str, list[str]] = {"MPICH": [], "gloo": []}
    strengths = []
    kinds = Counter[str]()
    for published in (two_hosts, four_hosts):
        study, used = published.study, []
        for environment, backend in ((MPICH, "mpi4py"), (TORCH, "torch")):
            names = (Name(environment, backend, algorithm) for algorithm in ("auto", "native"))
            choose = choose_pair(*names)
            by_panel = {panel: pairs(study, panel, choose) for panel in study.panels()}
            every = [pair for group in by_panel.values() for pair in group]
            used += sides_of(every)
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
        f"Slower: {join_names(slower) if slower else 'none'}. Ties: {kinds['tie']}. Undecided: "
        f"{kinds['undecided'] + kinds['disturbed']}. 2x2 is 2 hosts of 2 ranks, 4x2 is 4 hosts of "
        f"2. {' '.join(strengths)}",
        f"{EMULATED} {BESIDE_TORCH}",
        [TWO_HOSTS, FOUR_HOSTS],
        _by_messages(experiment),
    )


def _by_messages(published: Published) -> Cause:
    """Return what remains of the lead without shared memory, and with MPICH's persistent calls."""
    heads = {
        "auto": "`auto`", "messages": "two levels, by MPICH's messages only",
        "native_persistent": "MPICH's persistent call",
    }  # fmt: skip
    rows = []
    used: list[Side] = []
    counts = Counter[str]()
    for cell in published.cells():
        (messages,) = schedules_over(cell, MESSAGES).values()
        native, auto, persistent = (
            cell.contestants[Name(MPICH, "mpi4py", name)]
            for name in ("native", "auto", "native_persistent")
        )
        sides = dict(zip(heads, (auto, messages, persistent), strict=True))
        counts.update(
            name for name, side in sides.items()
            if compare_contestants(side, native).decision == "faster"
        )  # fmt: skip
        used += [(cell, side) for side in (native, *sides.values())]
        texts = [times_as_fast(side, native) for side in sides.values()]
        rows.append([f"{cell.panel.collective} {size_of(cell)}", number(native.us), *texts])
    return Cause(
        "shared memory within a host, and MPICH's blocking calls",
        "On 2 hosts of 2 ranks, `auto` beats MPICH's "
        f"blocking call in {counts['auto']} of {len(rows)} cases. With MPICH's messages in place "
        f"of shared memory, an algorithm of two levels does so in {counts['messages']}. MPICH's "
        f"persistent calls beat its blocking calls in {counts['native_persistent']}.",
        "algorithms without levels, and 4 hosts",
        [HOSTS_BY_MESSAGES],
        table(
            ["times as fast as MPICH's blocking call", "blocking call, us", *heads.values()], rows
        ),
        published.strength(used),
    )


def find_network(published: Published) -> Finding:
    """Return latency and rate of messages within and between emulated hosts."""
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
        f"Medians over ordered pairs of ranks, one launch, {samples:.0f} samples of a pair. No "
        "interval follows from one launch.",
        EMULATED,
        [TWO_HOSTS],
    )
