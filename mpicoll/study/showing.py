"""The plan of a study as a table."""

from __future__ import annotations

from rich.table import Table

from mpicoll.cli.tables import print_table
from mpicoll.study.planning import Plan
from mpicoll.study.run_environments import short_name
from mpicoll.text.numbers import count_text, span
from mpicoll.text.printable import printable

_WIDTH = 130


def print_plan(plan: Plan) -> None:
    """Print every configuration with its number of launches, and the estimated time."""
    table = Table("configuration", "environment", "ranks", "the library runs", "launches", "s each")
    study = plan.study
    for configuration in plan.configurations:
        forced = ", ".join(f"{name} {how.algorithm}" for name, how in configuration.forced.items())
        choice = "pairs of ranks" if configuration.pairs else forced or "its choice"
        count = f"{study.min_launches} to {study.max_launches}"
        if configuration.pairs or study.min_launches == study.max_launches:
            count = str(1 if configuration.pairs else study.max_launches)
        table.add_row(
            configuration.name, short_name(configuration.environment.library),
            str(configuration.ranks), choice, count, f"{plan.seconds_of(configuration):.1f}",
        )  # fmt: skip
    print_table(table, _WIDTH)
    lower, usual, upper = (
        span(plan.estimate(launches))
        for launches in (study.min_launches, study.launches, study.max_launches)
    )
    spread = f", {lower} if the verdicts are soon clear, {upper} if they are not"
    has_spread = len({lower, usual, upper}) > 1
    limit = f"; no launch begins after {span(60 * study.minutes)}" if study.minutes else ""
    print(
        f"# {count_text(len(plan.configurations), 'configuration')}; where nothing else runs about "
        f"{usual}{spread if has_spread else ''}{limit}"
    )
    for remark in plan.remarks:
        print(printable(f"# warning: {remark}"))
