"""Run a study of this machine, and print its findings in words.

-o DIR alone runs the default study of this machine, in under 15 minutes. A file study.toml
describes another study. The same command continues a study that was killed. The study writes
DIR/study.html and DIR/findings.md. --records FILES -o DIR makes both from existing records. FILES
alone prints the findings.

Exit status: 0 success, 1 a configuration measured nothing, 2 bad usage or files.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path

import click

from mpicoll.cli.command import LauncherCommand
from mpicoll.cli.options import FILE, OUTPUT_FILE, OUTPUT_FOLDER, Real, Whole, option
from mpicoll.study import running
from mpicoll.study.cells import ENOUGH
from mpicoll.study.default import default_study
from mpicoll.study.description import MOST_LAUNCHES, Description, load
from mpicoll.study.environments import find
from mpicoll.study.installing import PACKAGES, install
from mpicoll.study.outcome import check_folder, write_outcome
from mpicoll.study.planning import Plan, plan
from mpicoll.study.showing import print_plan
from mpicoll.text.files import make_folder
from mpicoll.text.numbers import span
from mpicoll.text.printable import printable


@click.command(cls=LauncherCommand, help=__doc__)
@click.argument("files", nargs=-1, type=FILE, metavar="[study.toml | FILES]")
@option("-o", "--output", "folder", type=OUTPUT_FOLDER, metavar="DIR",
        help="The folder of the study.")  # fmt: skip
@option("--records", "from_records", is_flag=True, help="Start no launch: FILES are records.")
@option("--dry-run", "dry", is_flag=True, help="Print the plan and its estimated time.")
@option("--launches", type=Whole(1, MOST_LAUNCHES), metavar="N",
        help="Launches of each configuration (default: the description's).")  # fmt: skip
@option("--minutes", type=Real(0, 100_000, above=True), metavar="M",
        help="Minutes after which no launch begins (default: the description's).")  # fmt: skip
@option("--install", "library", type=click.Choice(sorted(PACKAGES)),
        help="Make an environment with this MPI from PyPI, for later studies.")  # fmt: skip
@option("--csv", "table", type=OUTPUT_FILE, metavar="FILE",
        help="Write the times of allreduce in one call and in two, from records.")  # fmt: skip
def main(
    files: Sequence[Path], folder: Path | None, from_records: bool, dry: bool, launches: int | None,
    minutes: float | None, library: str | None, table: Path | None,
) -> int:  # fmt: skip
    """Run the study that the command line describes; return the exit status."""
    if library is not None:
        print(printable(str(install(library))))
        return 0
    if from_records or (folder is None and not dry):
        if not files:
            raise click.UsageError(
                "give FILES to --records" if from_records else "give -o DIR, or records"
            )
        if not from_records and files[0].suffix == ".toml":
            load(files[0])
            raise click.UsageError(
                f"{files[0]} describes a study, which needs a folder for its launches: add "
                "-o DIR, or --dry-run to print its plan only"
            )
        if folder is not None:
            make_folder(folder)
        write_outcome(files, folder, table=table)
        return 0
    if len(files) > 1:
        raise click.UsageError("one file describes a study; --records takes several")
    study = _study(files, folder)
    study.launches = launches or study.launches
    study.minutes = minutes or study.minutes
    study_plan = _make_plan(study)
    if dry or folder is None:
        print_plan(study_plan)
        return 0
    return _run(study_plan, folder)


def _study(files: Sequence[Path], folder: Path | None) -> Description:
    """Return the study of a file, else the unfinished study of the folder, else the default."""
    if files:
        return load(files[0])
    folder_study = running.load_study(folder) if folder is not None else None
    return folder_study or default_study()


def _make_plan(study: Description) -> Plan:
    environments, remarks = find(study)
    study_plan = plan(study, environments)
    study_plan.remarks[:0] = remarks
    return study_plan


def _run(study_plan: Plan, folder: Path) -> int:
    with running.lock_folder(folder):
        check_folder(folder)
        running.store(study_plan.study, folder)
        for remark in study_plan.remarks:
            print(printable(f"warning: {remark}"), file=sys.stderr)
        runner = running.Runner(study_plan, folder)
        runner.run()
        if any(record.message is None for record in runner.records.values()):
            remarks = [*runner.not_launched(), *runner.cut_short(), *study_plan.remarks]
            files = sorted((folder / "launches").glob("*.jsonl"))
            write_outcome(files, folder, remarks, advice=advise(runner))
        if shortage := runner.shortage():
            print(printable(f"Error: {shortage}"), file=sys.stderr)
            return 1
    return 0


def advise(runner: running.Runner) -> str:
    """Return how this study decides more."""
    study_plan, study = runner.plan, runner.plan.study
    has_enough = study.launches >= ENOUGH
    if study.minutes and runner.cut_short():
        needed = study_plan.estimate(max(study.launches, ENOUGH)) / 60 + 1
        launches = "" if has_enough else f"--launches {ENOUGH} "
        return f"the same command with {launches}--minutes {ceil(max(2 * study.minutes, needed))}"
    count = 2 * study.launches if has_enough else ENOUGH
    more = "an idle machine, or " if has_enough else ""
    minutes = study_plan.estimate(count) / 60
    limit = f" --minutes {ceil(minutes) + 1}" if study.minutes and study.minutes < minutes else ""
    return f"{more}--launches {count}{limit}, about {span(60 * minutes)}"


if __name__ == "__main__":
    main()
