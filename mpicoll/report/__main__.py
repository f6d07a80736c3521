"""Make a page, or figures for a paper, from records.

FILES are records of any number of runs, which mpicoll.bench, mpicoll.p2p and their torchcoll
counterparts wrote with -J. A picture never mixes runs with different conditions. -o report.html
writes one page that needs no network. A folder, as figures/, gets SVG and PNG.

Exit status: 0 success, 2 bad usage or files.
"""

from __future__ import annotations

from pathlib import Path

import click

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, option
from mpicoll.errors import ArgumentError
from mpicoll.report.data import Report, report
from mpicoll.report.loading import load
from mpicoll.text.files import writable, write_whole
from mpicoll.text.printable import printable


@click.command(cls=Command, help=__doc__)
@click.argument("files", nargs=-1, required=True, type=FILE)
@option("-o", "--output", required=True, help="report.html, or a folder.")
def main(files: tuple[Path, ...], output: str) -> None:
    """Write the page or the figures, and print the name."""
    target, is_page = target_of(output)
    if is_page:
        writable(target)
    whole_report = report(load(files))
    print(printable(_page(whole_report, target) if is_page else _figures(whole_report, target)))


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
        f"-o {output}: give the name of a page, as report.html, or of a folder, as figures/"
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
