"""Make a page, figures for a paper, or a table from records, or check the records.

FILES are records of any number of runs, which mpicoll.bench, mpicoll.p2p and their torchcoll
counterparts wrote with -J. A picture never mixes runs with different conditions. -o report.html
writes one page that needs no network. A folder, as figures/, gets SVG and PNG. -o records.parquet,
or .arrow, writes one table, a row for each case, which all commands read. Without -o the command
checks every line of the files, and names those that are not records.

Exit status: 0 success, 1 some lines are not records, 2 bad usage or files.
"""

from __future__ import annotations

from pathlib import Path

import click

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, option
from mpicoll.errors import ArgumentError
from mpicoll.records.columns import FORMATS
from mpicoll.report.checking import check, print_schema, write_table
from mpicoll.report.data import Report, report
from mpicoll.report.loading import load
from mpicoll.text.files import writable, write_whole
from mpicoll.text.printable import printable


@click.command(cls=Command, help=__doc__)
@click.argument("files", nargs=-1, type=FILE)
@option("-o", "--output", help="report.html, records.parquet, records.arrow, or a folder.")
@option("--schema", is_flag=True, help="Print the JSON Schema of a line of records.")
def main(files: tuple[Path, ...], output: str | None, schema: bool) -> int:
    """Write the page, the figures or the table, or check the files."""
    if schema == bool(files) or (schema and output is not None):
        raise click.UsageError("give files of records, or --schema")
    if schema:
        return print_schema()
    if output is None:
        return check(files)
    if Path(output).suffix.lower() in FORMATS and not Path(output).is_dir():
        return write_table(files, Path(output))
    target, is_page = target_of(output)
    if is_page:
        writable(target)
    whole_report = report(load(files))
    print(printable(_page(whole_report, target) if is_page else _figures(whole_report, target)))
    return 0


def target_of(output: str) -> tuple[Path, bool]:
    """Return the path to write, and whether it is that of a page.

    Raises:
        ArgumentError: the name is neither that of a page nor that of a folder.
    """
    path = Path(output)
    if not output:
        raise ArgumentError("-o '' names nothing: is a variable not set?")
    if path.suffix.lower() in (".html", ".htm") and not output.endswith("/") and not path.is_dir():
        return path, True
    if path.is_dir() or ((output.endswith("/") or not path.suffix) and not path.exists()):
        return path, False
    raise ArgumentError(
        f"-o {output}: give the name of a page, as report.html, of a table, as records.parquet, "
        "or of a folder, as figures/"
    )


def _page(whole_report: Report, target: Path) -> str:
    from mpicoll.report.page import page

    content = page(whole_report)
    write_whole(target, lambda fresh: fresh.write_text(content, encoding="utf-8"))
    return f"{target}: {len(whole_report.panels)} panels, {target.stat().st_size / 1e6:.1f} MB"


def _figures(whole_report: Report, target: Path) -> str:
    from mpicoll.report.figures import figures

    return f"{target}: {len(figures(whole_report, target))} files"


if __name__ == "__main__":
    main()
