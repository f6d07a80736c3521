"""The records of the published study, how strong they are, and the words of its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import NamedTuple

from mpicoll.measurement.judgement import SIGNS
from mpicoll.records.lines import CaseRecord, Record
from mpicoll.records.reading import load, only
from mpicoll.study.cells import Cell, Contestant, Name, Panel, Ratio, compare_contestants
from mpicoll.study.reading import Study, name_of, panel_of, study_of
from mpicoll.study.sentences import Pair
from mpicoll.text.numbers import count_text, number
from mpicoll.text.sizes import bytes_text

LIBRARIES, ALGORITHMS, AVERAGE = "libraries", "algorithms", "average"
TWO_HOSTS, FOUR_HOSTS = "nodes-2x2", "nodes-4x2"
SHARED_MEMORY = "shared_memory"
RELEASE_GATHER, ROUNDS, PERSISTENT = "release_gather", "rounds", "persistent"
PAGE_FAULTS, HOSTS_BY_MESSAGES = "page_faults", "messages-2x2"
SETTINGS = "library_settings"
_HOSTS = {TWO_HOSTS: 2, FOUR_HOSTS: 4, HOSTS_BY_MESSAGES: 2}
STUDIES = (
    LIBRARIES, ALGORITHMS, SHARED_MEMORY, AVERAGE, TWO_HOSTS, FOUR_HOSTS,
    RELEASE_GATHER, ROUNDS, PERSISTENT, PAGE_FAULTS, HOSTS_BY_MESSAGES, SETTINGS,
)  # fmt: skip
"""The studies. Descriptions and records are in files of these names."""
MPICH, SINGLE, TORCH = "mpich", "mpich-single", "mpich-torch"
"""Environments of the studies."""
MESSAGES, SYMMETRIC = "@point-to-point", "@symmetric"
"""The ends of the names of algorithms that run over MPI's messages, or over shared memory."""
ONE_MACHINE = "One virtual machine with two shared cores; other machines have other ratios."
SHARED_CORES = "Four ranks share 2 cores, so their times include waits for a core."
BESIDE_TORCH = (
    "MPICH's times are from launches without torch. gloo's are from launches with both libraries "
    "in one process."
)
EMULATED = (
    "Hosts are emulated on the two cores, with links of 1 Gbit/s; real clusters have other "
    "ratios. To repeat it, root and MPICH are needed."
)
Side = tuple[Cell, Contestant]


class Cause(NamedTuple):
    """The cause of a finding, by an experiment that switches it off.

    Attributes:
        tested: the cause.
        result: what remains without it.
        untested: what else may be a cause.
        studies: whose commands repeat the experiment.
        table: the results of the experiment, in Markdown.
        strength: as for a finding.
    """

    tested: str
    result: str
    untested: str
    studies: Sequence[str]
    table: str
    strength: str

    @property
    def text(self) -> str:
        """The sentences of the page."""
        return f"Tested: {self.tested}. {self.result} Not tested: {self.untested}."


@dataclass(frozen=True)
class Finding:
    """A finding.

    Attributes:
        sentence: at most 25 words.
        table: in Markdown.
        strength: launches, samples, disturbances, binding, load and commits.
        studies: whose commands repeat it.
        cause: None if the finding compares nothing.
        choice: which of several contestants stands for a side, and why.
        picture: the name of its chart, "" without one.
    """

    sentence: str
    table: str
    strength: str
    limits: str
    studies: Sequence[str]
    cause: Cause | None = None
    choice: str = ""
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

    def cells(self) -> list[Cell]:
        """Return the cells by number of ranks, collective and size."""
        panels = sorted(self.study.panels(), key=lambda panel: panel.ranks)
        return [cell for panel in panels for cell in self.study.of(panel)]

    def rows(self, used: Iterable[Side]) -> list[CaseRecord]:
        """Return the records of contestants, one for each launch."""
        wanted = {(cell.panel, cell.size, contestant.name) for cell, contestant in used}
        return [
            record for record in only(CaseRecord, self.records)
            if record.time_us is not None and record.correct is not False
            and (panel_of(record), record.bytes_total, name_of(record)) in wanted
        ]  # fmt: skip

    def strength(self, used: Iterable[Side]) -> str:
        """Return how strong the records of contestants are."""
        rows = self.rows(used)
        parts = [
            _strength_of_rows(ranks, [row for row in rows if row.ranks == ranks])
            for ranks in sorted({row.ranks for row in rows})
        ]
        ids = {row.run.id for row in rows}
        return " ".join([*parts, *self._conditions(ids)])

    def _conditions(self, ids: set[str]) -> Iterator[str]:
        """Yield the binding, the load and the commits of runs."""
        runs = [run for run in self.study.runs if run.id in ids]
        is_bound = all(rank.bound for run in runs for rank in run.binding)
        loads = [run.load for run in runs if run.load is not None]
        yield f"Ranks were {'bound' if is_bound else 'not bound'} to cores."
        yield (
            f"The load before a launch was {number(min(loads), 2)} to {number(max(loads), 2)} on "
            f"{runs[0].cores_of_load} cores."
        )
        commits = sorted({run.git.commit[:8] for run in runs if run.git})
        yield f"Commit{'s' * (len(commits) > 1)} {', '.join(commits)}."


def _strength_of_rows(ranks: int, rows: Sequence[CaseRecord]) -> str:
    launches = Counter(
        (panel_of(row), row.bytes_total, name_of(row)) for row in rows
    ).values()  # fmt: skip
    ends = dict.fromkeys((min(launches), max(launches)))
    single = sum(row.samples == 1 for row in rows)
    calm = sum(row.undisturbed for row in rows)
    samples = round(median(row.samples for row in rows))
    return (
        f"On {ranks} ranks a case has {' to '.join(map(str, ends))} launches. "
        f"The median launch has {count_text(samples, 'sample')}. "
        f"{_percent(single, len(rows))} of the records have a single sample, and "
        f"{_percent(calm, len(rows))} are undisturbed."
    )


def _percent(count: int, total: int) -> str:
    return f"{100 * count / total:.0f} %"


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


# -- words --------------------------------------------------------------------------------


def library_of(backend: str) -> str:
    """Return the library of a backend in most studies."""
    return "MPICH" if backend == "mpi4py" else "gloo"


def size_of(cell: Cell) -> str:
    """Return the size of a cell in words, "" for a barrier."""
    return bytes_text(cell.size) if cell.size else ""


def times_as_fast(contestant: Contestant, reference: Contestant) -> str:
    """Return how many times as fast a contestant is, with the sign of the ratio."""
    ratio = compare_contestants(contestant, reference)
    return signed(ratio.ratio, ratio)


def times_as_long(contestant: Contestant, reference: Contestant) -> str:
    """Return how many times as long as the reference a contestant takes, with the sign."""
    ratio = compare_contestants(contestant, reference)
    return signed(1 / ratio.ratio, ratio)


def signed(value: float, ratio: Ratio) -> str:
    """Return a ratio, or its inverse, with its sign; without one if it is decided.

    A disturbed ratio counts as undecided.
    """
    return f"{number(value)} {ratio.sign.replace(SIGNS['disturbed'], SIGNS['undecided'])}".strip()


def in_words(text: str) -> str:
    """Return a signed ratio for a sentence.

    >>> in_words("1.50 ?"), in_words("1.01 ="), in_words("2.00")
    ('1.50 (undecided)', '1.01 (a tie)', '2.00')
    """
    words = {"?": "undecided", "=": "a tie"}
    value, _, sign = text.partition(" ")
    return f"{value} ({words[sign]})" if sign else value


def span(texts: Iterable[str]) -> str:
    """Return the smallest and the largest of some signed ratios for a sentence.

    >>> span(["1.5 ?", "1.2", "1.01 ="])
    '1.01 (a tie) to 1.5 (undecided)'
    """
    ordered = sorted(texts, key=lambda text: float(text.partition(" ")[0]))
    return f"{in_words(ordered[0])} to {in_words(ordered[-1])}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def pick(cell: Cell, environment: str, backend: str, algorithm: str) -> Contestant | None:
    """Return a contestant of a cell, None if the cell lacks it."""
    return cell.contestants.get(Name(environment, backend, algorithm))


def sides_of(group: Iterable[Pair]) -> list[Side]:
    """Return both sides of pairs, with their cells."""
    return [
        *chain.from_iterable(
            ((pair.cell, pair.contestant), (pair.cell, pair.reference)) for pair in group
        )
    ]


def choice_of(chooser: Contestant) -> str:
    """Return the algorithm that a chooser took most often."""
    choices = list(chooser.ran.values())
    return max(dict.fromkeys(choices), key=choices.count).partition("@")[0]


def schedules_over(
    cell: Cell, suffix: str, environment: str = MPICH, backend: str = "mpi4py"
) -> dict[str, Contestant]:
    """Return the schedules of a cell over one transport, by their names without it."""
    return {
        name.algorithm.removesuffix(suffix): contestant
        for name, contestant in cell.contestants.items()
        if name.is_ours and name.algorithm.endswith(suffix)
        and (name.environment, name.backend) == (environment, backend)
    }  # fmt: skip
