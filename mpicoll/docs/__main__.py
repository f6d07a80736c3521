"""Open the documentation in a browser, or print where it is.

The pages need no network. A source tree has them after `.ci/docs` has built them.
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
        raise Unavailable(
            f"this source tree has no built pages; build them by `.ci/docs` in {PAGES.parents[2]}, "
            f"or read the Markdown in {PAGES.parent}"
        )
    print(start)
    if not shows_path:
        webbrowser.open(start.as_uri())


if __name__ == "__main__":
    main()
