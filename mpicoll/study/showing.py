"""The plan of a study as a table."""

from __future__ import annotations

from rich.table import Table

from mpicoll.cli.tables import print_table
from mpicoll.study.apart import short_name
from mpicoll.study.planning import Plan
from mpicoll.text.numbers import counted, span
from mpicoll.text.printable import printable

_WIDTH = 130


def print_plan(found: Plan) -> None:
    """Print every configuration, how many launches it has, and how long all take."""
    table = Table("configuration", "environment", "ranks", "the library runs", "launches", "s each")
    study = found.study
    for each in found.configurations:
        forced = ", ".join(f"{name} {how.algorithm}" for name, how in each.forced.items())
        what = "pairs of ranks" if each.pairs else forced or "its choice"
        count = f"{study.least} to {study.most}"
        if each.pairs or study.least == study.most:
            count = str(1 if each.pairs else study.most)
        table.add_row(
            each.name, short_name(each.environment.library), str(each.ranks), what, count,
            f"{found.seconds_of(each):.1f}",
        )  # fmt: skip
    print_table(table, _WIDTH)
    least, usual, most = (
        span(found.estimate(each)) for each in (study.least, study.launches, study.most)
    )
    spread = f", {least} if the verdicts are soon clear, {most} if they are not"
    limit = f"; no launch begins after {span(60 * study.minutes)}" if study.minutes else ""
    print(
        f"# {counted(len(found.configurations), 'configuration')}; where nothing else runs about "
        f"{usual}{spread if study.least < study.most else ''}{limit}"
    )
    for remark in found.remarks:
        print(printable(f"# warning: {remark}"))
