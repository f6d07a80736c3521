"""The command ``python -m mpicoll.report``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mpicoll.errors import ArgumentError
from mpicoll.report.data import Report, report
from mpicoll.report.loading import load
from mpicoll.text.files import write_whole

_HELP = """Make a page, or figures for a paper, from records.

FILES are what mpicoll.bench, mpicoll.p2p and their torchcoll twins wrote with -J, of as many runs
as you like: what was measured under different conditions is kept apart. -o report.html gives
one page that needs no network; a folder, as figures/, gets SVG and PNG.

Exit status: 0, or 2 for bad usage or files.
"""


def main() -> None:
    """Run the command."""
    existing = click.Path(dir_okay=False, path_type=Path)
    command = click.Command("report", callback=run, help=_HELP)
    command.params += [
        click.Argument(["files"], type=existing, nargs=-1, required=True),
        click.Option(["-o", "--output"], required=True, help="report.html, or a folder."),
    ]
    command.context_settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    command.main(prog_name="python -m mpicoll.report")


def run(files: tuple[Path, ...], output: str) -> None:
    """Write the page or the figures, and say which."""
    try:
        target, is_page = target_of(output)
        found = report(load(files))
        written = _page(found, target) if is_page else _figures(found, target)
    except ArgumentError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    print(written)


def target_of(output: str) -> tuple[Path, bool]:
    """Return where to write, and whether that is a page.

    Raises:
        ArgumentError: the name is neither that of a page nor that of a folder.
    """
    path = Path(output)
    if path.suffix.lower() in (".html", ".htm") and not output.endswith("/") and not path.is_dir():
        return path, True
    if path.is_dir() or ((output.endswith("/") or not path.suffix) and not path.exists()):
        return path, False
    raise ArgumentError(
        f"-o {output}: give the name of a page, as report.html, or of a folder, as figures/"
    )


def _page(found: Report, target: Path) -> str:
    from mpicoll.report.page import page

    content = page(found)
    write_whole(target, lambda fresh: fresh.write_text(content, encoding="utf-8"))
    return f"{target}: {len(found.panels)} panels, {target.stat().st_size / 1e6:.1f} MB"


def _figures(found: Report, target: Path) -> str:
    from mpicoll.report.figures import figures

    return f"{target}: {len(figures(found, target))} files"


if __name__ == "__main__":
    main()
