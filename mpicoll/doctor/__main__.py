"""Print the abilities of this machine, and why it lacks others, on one page for a bug report.

``python -m mpicoll.doctor`` asks one process; ``mpirun -n 4 python -m mpicoll.doctor``
also says whether launcher and MPI match.
"""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from mpicoll.cli.command import RanksCommand
from mpicoll.cli.options import Real, option
from mpicoll.cli.tables import console
from mpicoll.doctor import leftovers
from mpicoll.doctor.mpi_probes import MPI_PROBES
from mpicoll.doctor.probes import PROBES, ask
from mpicoll.doctor.running import tell
from mpicoll.exports.jobs import export, export_option
from mpicoll.machine import configuration
from mpicoll.machine.launchers import find_launch, is_first_process
from mpicoll.machine.variables import relevant_variables


@click.command("doctor", cls=RanksCommand, help=__doc__)
@option(
    "--job", type=click.Path(file_okay=False), metavar="[DIR]", is_flag=False, flag_value="",
    help="Tell instead why a running job is slow, or which call of it is stuck, from the directory "
    "of its flight recorder; without DIR, of the only job that runs. The job is not stopped.",
)  # fmt: skip
@option(
    "--seconds", type=Real(0, 86400), default=5.0, shown=True,
    help="How long --job watches the job.",
)  # fmt: skip
@option(
    "--clean", is_flag=True,
    help="Remove your own files that ended runs have left in /dev/shm, and nothing else.",
)  # fmt: skip
@export_option
def main(
    *, clean: bool, job: str | None, seconds: float, exports: tuple[tuple[str, Path], ...]
) -> None:
    """Print the page, or clean, on the first rank; the others only take part."""
    if exports and job is None:
        raise click.UsageError("--export needs --job")
    if job is not None:
        if is_first_process():
            directory = Path(job) if job else None
            export(tell(console(120), directory, seconds), exports)
    elif not clean:
        _print_page()
    elif is_first_process():
        removed, remaining = leftovers.remove_own(), leftovers.find()
        print(f"removed {leftovers.summary(removed)}" if removed else "nothing to remove")
        if remaining:
            print(f"left {leftovers.summary(remaining)}")


def _print_page() -> None:
    out = console(120, quiet=not is_first_process())

    def show(name: str, text: str) -> None:
        row = Table.grid(padding=(0, 2))
        row.add_column(style="bold", min_width=16, no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(name, Text(text))
        out.print(row)

    sources = configuration.sources()
    out.print("mpicoll doctor", style="bold")
    for name, probe in PROBES.items():
        show(name, ask(probe))
    show("configuration", configuration.describe())
    for name, value in relevant_variables().items():
        show(name, f"{value} (from {sources[name]})" if name in sources else value)
    # MPI comes last: under another MPI's launcher it may end the process.
    if find_launch():
        show("asking MPI", "if this line is the last, the launcher and mpi4py's MPI do not match")
    for name, probe in MPI_PROBES.items():
        show(name, ask(probe))


if __name__ == "__main__":
    main()
