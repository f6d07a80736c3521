"""Say which call of a job is stuck, who has come, who has not, and where that one is instead.

DIR is the directory that the job's errors name: MPICOLL_FLIGHT_DIR, or one below
mpicoll-flight-UID in TMPDIR, or else in /tmp. Without DIR the command takes the only job there is,
or lists all jobs. The job may still run; it is not stopped.
"""

from __future__ import annotations

from pathlib import Path

import click

from mpicoll.cli.command import Command
from mpicoll.cli.options import FOLDER, OUTPUT_FILE, OUTPUT_FOLDER, Real, option
from mpicoll.cli.tables import console
from mpicoll.exports.jobs import export, export_option
from mpicoll.flight.job import look
from mpicoll.flight.listing import jobs, show_jobs
from mpicoll.flight.summary import show
from mpicoll.postmortem.page import page
from mpicoll.postmortem.torch_format import write
from mpicoll.text.files import write_whole
from mpicoll.text.printable import printable
from mpicoll.verdict import summary as verdict_summary
from mpicoll.verdict.judging import judge


@click.command("postmortem", cls=Command, help=__doc__)
@click.argument("directory", type=FOLDER, metavar="[DIR]", required=False)
@option(
    "-o", "--output", type=OUTPUT_FILE, help="Write a page of HTML with the timeline of all ranks."
)
@option(
    "--after", "threshold", type=Real(0, 86400), default=1.0, shown=True,
    help="Seconds after which a call that is under way counts as stuck while its rank runs.",
)  # fmt: skip
@option(
    "--stacks", is_flag=True, help="Print the whole stacks of all ranks, too."
)  # fmt: skip
@option(
    "--torch", type=OUTPUT_FOLDER, metavar="DIR",
    help="Write the calls for torch's own analyser, torchfrtrace, into this directory: as pickles, "
    "which are all that it reads.",
)  # fmt: skip
@export_option
def main(
    directory: Path | None, output: Path | None, threshold: float, stacks: bool,
    torch: Path | None, exports: tuple[tuple[str, Path], ...],
) -> None:  # fmt: skip
    """Print the state of the job, and write the page; or list the jobs."""
    if directory is None:
        listed = jobs()
        if len(listed) > 1 and (output or torch or exports):
            raise click.UsageError(f"name one DIR: {len(listed)} jobs have left files")
        if len(listed) > 1:
            show_jobs(console(200), listed, "python -m mpicoll.postmortem")
            return
        directory = listed[0].directory
    diagnosis, dumps, faults = look(directory, threshold=threshold, stacks=stacks)
    out = console(120)
    show(out, directory, diagnosis, faults, stacks=stacks)
    verdict = judge(dumps)
    out.print()
    verdict_summary.show(out, verdict)
    if output is not None:
        text = page(directory, diagnosis, dumps, faults, verdict)
        write_whole(output, lambda fresh: fresh.write_text(text, "utf-8"))
        print(printable(f"wrote {output}"))
    if torch is not None:
        write(torch, dumps)
        print(printable(f"wrote {torch}: torchfrtrace {torch} --prefix rank_"))
    export(dumps, exports)


if __name__ == "__main__":
    main()
