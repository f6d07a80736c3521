"""Write the published study: its page and its charts, from the records beside it.

FOLDERS are outputs of `mpicoll study`, by default none. Each replaces the records of the study of
its name first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from mpicoll.cli.command import Command
from mpicoll.docs.study_charts import write_charts
from mpicoll.docs.study_evidence import (
    LIBRARIES,
    STUDIES,
    Finding,
    Published,
    command,
    read_studies,
)
from mpicoll.docs.study_findings import all_findings
from mpicoll.docs.study_libraries import mean_of, strongest_pairs, table_of_fastest
from mpicoll.errors import ArgumentError
from mpicoll.notation.contract import COLLECTIVES, Collective, Place
from mpicoll.records.columns import save
from mpicoll.records.reading import load
from mpicoll.study.run_environments import short_name
from mpicoll.text.files import write_whole

FOLDER = Path(__file__).parent / "study"
PAGE = "index.md"
_ALTERNATIVES = {
    "fastest": "How many times as fast mpicoll is as the fastest library call, by collective",
    "shapes": "Time of naive, tree, pipeline and ring broadcasts over their size",
}
_RANKS = 3
_SIGNS = (
    "The tables show the fastest library call of each case, and the algorithm that `auto` chose in "
    "the same launches. SINGLE is `MPI_THREAD_SINGLE`. Brackets are 95 % intervals. `?` marks an "
    "undecided ratio, and `=` a tie, surely within 5 %. For a program of your own, see [Did my "
    "program become faster?](../howto/compare_a_program.md)"
)
_DECIDED = (
    "Times are medians over launches, in microseconds. A ratio is the median over the launches "
    "that have both sides. A ratio without a sign is decided: six launches or more, and the whole "
    "interval lies beyond 1 %."
)
_BEFORE_AND_AFTER = """\
## What each collective does

The table shows what 3 ranks hold before and after a call. `A`, `B` and `C` are the data of ranks 0,
1 and 2. `A1` is the part of `A` for rank 1, and `+` is the operator. The root is rank 0. `-` is
nothing.

"""
_RECORDS = """\
## Records

Each study has its records beside it as Parquet, one record for each case of each launch. Data
frames and all commands read the files: `python -m mpicoll.study libraries.parquet` prints every
finding. A description says what a study measured. `python -m mpicoll.docs.study_pages`
writes this page from the records, and takes new ones by their folders.

Only CPUs were measured. For GPUs there are [earlier measurements](../measurements/earlier.md).

"""
_RECOMPUTED = """\
## Recompute a figure

- A time is the median of `time_us.median` over the launches of an environment. `run.id` is the
  launch.
- A ratio within an environment is the median over its launches. The ratio of a launch is
  `speedup_vs_native.ratio` against the library's call of the same backend. It is
  `speedup_vs_other.ratio` against the call that `speedup_vs_other.against` names. Otherwise it is
  the quotient of both medians.
- A ratio between environments is the median of all quotients of a launch of one to a launch of the
  other.
- An interval of nine launches ends at the second smallest and the second largest ratio.
  [Ratios over launches](../explanation/ratios.md#ratios-over-launches) has the other cases.

In a checkout, this program recomputes the means of the first finding. It needs
`pip install pyarrow`:

```python
# recompute.py
from importlib.resources import files
from statistics import geometric_mean, median

import pyarrow.parquet as parquet

times, ratios = {}, {}
for row in parquet.read_table(files("mpicoll.docs") / "study" / "libraries.parquet").to_pylist():
    case = row["collective"], row["ranks"], row["bytes_total"]
    side = row["environment"], row["backend"]
    if row["algorithm"] == "native" and row["time_us.median"]:
        times.setdefault(case, {}).setdefault(side, []).append(row["time_us.median"])
    if row["algorithm"] == "auto":
        ratios.setdefault((case, side), []).append(row["speedup_vs_native.ratio"])
for ranks in (2, 4):
    of_cases = []
    for case, sides in times.items():
        if case[1] == ranks:
            fastest = min(sides, key=lambda side: median(sides[side]))
            of_cases.append(median(ratios[case, fastest]))
    print(f"{ranks} ranks: {geometric_mean(of_cases):.2f} times as fast")
```

```console
$ python recompute.py
2 ranks: MEAN_2 times as fast
4 ranks: MEAN_4 times as fast
```

The latencies and rates of pairs of ranks are in records of the kind `pair`:
`python -m mpicoll.report nodes-2x2.parquet -o pairs.html` draws them.
"""


@click.command(cls=Command, help=__doc__)
@click.argument("folders", nargs=-1, type=click.Path(file_okay=False, path_type=Path))
def main(folders: Sequence[Path]) -> None:
    """Take the records of the folders, and write the page and the charts."""
    for folder in folders:
        _take(folder)
    studies = read_studies(FOLDER)
    write_charts(studies, FOLDER)
    write_whole(FOLDER / PAGE, lambda fresh: Path(fresh).write_text(page(studies), "utf-8"))


def _take(folder: Path) -> None:
    """Write the records of a study's launches as Parquet."""
    if folder.name not in STUDIES:
        raise ArgumentError(f"{folder}: the published studies are {', '.join(STUDIES)}")
    files = sorted((folder / "launches").glob("*.jsonl"))
    records = [record for path in files for record in load(path)]
    write_whole(FOLDER / f"{folder.name}.parquet", lambda fresh: save(records, fresh, ".parquet"))


def page(studies: Mapping[str, Published]) -> str:
    """Return the page of the study in Markdown."""
    findings = all_findings(studies)
    return "\n\n".join(
        [
            "# The study", f"{findings[0].sentence} {_SIGNS}",
            "## The fastest on 2 ranks", table_of_fastest(studies[LIBRARIES], 2),
            "## The fastest on 4 ranks", table_of_fastest(studies[LIBRARIES], 4),
            _DECIDED, _machine(studies),
            *(_finding(number, finding) for number, finding in enumerate(findings, 1)),
            _BEFORE_AND_AFTER + "\n".join(_contents_lines()),
            _RECORDS + "\n".join(_files()), _recomputed(studies[LIBRARIES]),
        ]
    ) + "\n"  # fmt: skip


def _recomputed(published: Published) -> str:
    text = _RECOMPUTED
    for ranks in (2, 4):
        text = text.replace(f"MEAN_{ranks}", mean_of(strongest_pairs(published, ranks)))
    return text.rstrip()


def _machine(studies: Mapping[str, Published]) -> str:
    run = studies[LIBRARIES].study.runs[0]
    processor = run.machines[0].processor if run.machines else "unknown processor"
    libraries = dict.fromkeys(
        short_name(library)
        for published in studies.values()
        for library in published.study.libraries.values()
    )
    return (
        f"**Machine:** {processor}, {run.cores_of_load} cores, {run.started[:10]}. "
        f"**Libraries:** {'; '.join(libraries)}. A case is a collective at one size on one number "
        "of ranks. Each finding states its strength, its limits, and the command that repeats it. "
        "A cause is stated only if an experiment switched it off."
    )


def _finding(number: int, finding: Finding) -> str:
    lines = [f"## {number}. {finding.sentence}", ""]
    if finding.picture:
        lines += [_picture(finding), ""]
    lines += [finding.table, ""]
    if finding.choice:
        lines.append(f"- **Choice:** {finding.choice}")
    cause = finding.cause
    if cause:
        lines.append(f"- **Cause:** {cause.text}")
    lines += [f"- **Strength:** {finding.strength}", f"- **Limits:** {finding.limits}", ""]
    if cause:
        strength = f"**Strength:** {cause.strength}"
        lines += ["The experiment on the cause:", "", cause.table, "", strength, ""]
    names = dict.fromkeys((*finding.studies, *(cause.studies if cause else ())))
    commands = [f"$ {command(name)}" for name in names]
    return "\n".join([*lines, "<!-- not run: takes minutes -->", "```console", *commands, "```"])


def _picture(finding: Finding) -> str:
    name = finding.picture
    return f"```{{image}} {name}.svg\n:alt: {_ALTERNATIVES[name]}\n```"


def _contents_lines() -> Iterator[str]:
    """Yield the lines of the table of what ranks hold before and after each collective."""
    yield "| collective | before: rank 0, 1, 2 | after: rank 0, 1, 2 |"
    yield "| --- | --- | --- |"
    for name, entry in COLLECTIVES.items():
        if entry.unit == "none":
            yield f"| {name} | no data | all ranks have entered |"
            continue
        sides = [
            "; ".join(side(entry, rank) for rank in range(_RANKS)) for side in (_input, _output)
        ]
        yield f"| {name} | {' | '.join(sides)} |"


def _input(entry: Collective, rank: int) -> str:
    blocks = entry.input_blocks(_place(entry, rank))
    return " ".join(_block(entry, rank, block) for block in blocks) or "-"


def _output(entry: Collective, rank: int) -> str:
    contents = entry.output_contents(_place(entry, rank))
    return " ".join(
        "+".join(_block(entry, source, block) for source, block in contributions)
        for contributions in contents.values()
    ) or "-"  # fmt: skip


def _place(entry: Collective, rank: int) -> Place:
    return Place(rank, _RANKS, 0, 1 if entry.unit == "vector" else _RANKS)


def _block(entry: Collective, source: int, block: object) -> str:
    """Return the name of a block: the rank whose data it is, and the rank that it is for."""
    letter = "ABC"[source]
    if entry.unit == "vector" or "input" not in entry.stacks:
        return letter
    return f"{letter}{block[1] if isinstance(block, tuple) else block}"


def _files() -> Iterator[str]:
    for name in STUDIES:
        yield f"- {{download}}`{name}.parquet`, described by {{download}}`{name}.toml`"


if __name__ == "__main__":
    main()
