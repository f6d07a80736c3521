"""Open the documentation in a browser, or print where it is.

The pages need no network. Released wheels have them, and a source tree once `.ci/docs` has built
them.
"""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from mpicoll.cli.command import Command
from mpicoll.errors import Unavailable

PAGES = Path(__file__).parent / "html"


@click.command("docs", cls=Command, help=__doc__)
@click.option("--path", "shows_path", is_flag=True, help="Only print where the first page is.")
def main(shows_path: bool) -> None:
    """Print the path of the first page, and open the page."""
    start = PAGES / "index.html"
    if not start.exists():
        root = PAGES.parents[2]
        if (root / ".ci" / "docs").exists():
            advice = f"build them by `.ci/docs` in {root}"
        else:  # of a wheel that pip has made of a source tree
            advice = "install a released wheel, which has them"
        raise Unavailable(
            f"there are no built pages in {PAGES}; {advice}, or read the Markdown in {PAGES.parent}"
        )
    print(start)
    if not shows_path:
        webbrowser.open(start.as_uri())


if __name__ == "__main__":
    main()
