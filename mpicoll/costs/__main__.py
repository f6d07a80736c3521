"""Rank the algorithms of a collective by price: ``python -m mpicoll.costs allreduce --ranks 4096``.

Exit status 2: bad usage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mpicoll.algorithms.registry import Algorithm
from mpicoll.cli.command import Command
from mpicoll.cli.options import RANK, RANKS, SECONDS, SIZES, Parsed, Real, Whole
from mpicoll.cli.progress import ProgressBar
from mpicoll.cli.tables import print_table
from mpicoll.costs import flags
from mpicoll.costs.flags import Options
from mpicoll.costs.models import DEFAULT, AlphaBeta
from mpicoll.costs.ranking import Family, Ranking, Scenario, candidates, rank
from mpicoll.costs.rendering import RankingOutput, lines, notes, tables
from mpicoll.errors import ArgumentError
from mpicoll.notation.contract import collective as named
from mpicoll.text.names import split_names
from mpicoll.text.sizes import rounded_size_text

_PIPED_WIDTH = 160
_time = Real(0, 1_000_000_000)


@click.command(cls=Command, context_settings={"show_default": True})
@click.argument("collective")
@click.option("--ranks", type=RANKS, required=True, help="Number of ranks.")
@click.option(
    "--bytes", "sizes", type=SIZES, default="1M",
    help="Sizes to show, as 4K,1G; S as nccl-tests counts it.",
)  # fmt: skip
@click.option(
    "--sweep", type=Parsed("sweep", flags.parse_sweep), default="8:1G",
    help="Where to look for crossovers, low:high.",
)  # fmt: skip
@click.option("--root", type=RANK, default=0, help="Root of the rooted ones.")
@click.option(
    "--algorithms",
    help="Only these, such as 'ring,chain(segments=1:64:*2)', with ranges as in the benchmark.",
)  # fmt: skip
@click.option(
    "--topology", type=click.Choice(flags.TOPOLOGIES), default="switch",
    help="Which ranks share which links.",
)  # fmt: skip
@click.option(
    "--ranks-per-node", type=RANKS, default=4, help="nodes: ranks that share a node's link."
)
@click.option("--ranks-per-leaf", type=RANKS, default=32, help="fat-tree: ranks on a leaf switch.")
@click.option(
    "--oversubscription", type=Real(1, 1_000_000), default=1,
    help="fat-tree: links down over links up.",
)  # fmt: skip
@click.option(
    "--dims", type=Parsed("shape", flags.parse_shape), help="torus: its shape, as 16x16x16."
)
@click.option("--routers", type=RANKS, default=4, help="dragonfly: routers of a group.")
@click.option("--ranks-per-router", type=RANKS, default=4, help="dragonfly: ranks on a router.")
@click.option(
    "--hop-us", type=_time, default=0, help="Microseconds for each link inside the network."
)
@click.option(
    "--within-us", type=_time, show_default="that of --from, or as between nodes",
    help="nodes: microseconds of a message within a node.",
)  # fmt: skip
@click.option(
    "--within-ns", type=_time, show_default="that of --from, or as between nodes",
    help="nodes: nanoseconds of each of its bytes.",
)  # fmt: skip
@click.option(
    "--model", type=click.Choice(flags.MODELS), default="hockney", help="What a message takes."
)
@click.option(
    "--alpha-us", type=_time, show_default=f"{1e6 * DEFAULT.alpha:g}",
    help="hockney: microseconds of a message; loggp: L + 2o.",
)  # fmt: skip
@click.option(
    "--beta-ns", type=_time, show_default=f"{1e9 * DEFAULT.beta:g}", help="Nanoseconds of a byte."
)
@click.option("--bandwidth", type=Real(1e-6, 1_000_000), help="GB/s, in place of --beta-ns.")
@click.option(
    "--gamma-ns", type=_time, show_default=f"{1e9 * DEFAULT.gamma:g}",
    help="Nanoseconds to fold a byte.",
)  # fmt: skip
@click.option(
    "--overhead-us", type=_time, default=0.3, help="loggp: o, of the processor at either end."
)
@click.option("--gap-us", type=_time, default=0.3, help="loggp: g, between the starts of messages.")
@click.option(
    "--ports", type=Whole(0), default=1,
    help="Messages that a rank drives at once; 0: start-ups overlap, and bytes share one link.",
)  # fmt: skip
@click.option(
    "--from", "source", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take alpha, beta and gamma from records of mpicoll.p2p or mpicoll.bench.",
)  # fmt: skip
@click.option("--backend", default="mpi4py", help="Whose records.")
@click.option(
    "--patience", "time_limit", type=SECONDS, show_default="30 with --algorithms, else 1",
    help="Seconds of the processor to generate and to simulate an algorithm.",
)  # fmt: skip
@click.option(
    "--format", "style", type=click.Choice(["table", "jsonl"]), default="table",
    help="For people or for programs.",
)  # fmt: skip
@click.pass_context
def main(ctx: click.Context, /, **values: Any) -> None:
    """Rank the algorithms of COLLECTIVE by price.

    Prints the ranking, the bound that no algorithm beats, and which algorithm is the cheapest
    from which size to which.
    """
    spelled = {
        name for name in values if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    options = Options(**values)
    output = priced(options, spelled)
    if options.style == "jsonl":
        for line in lines(output):
            click.echo(line)
    else:
        _print(output)


def priced(options: Options, spelled: set[str]) -> RankingOutput:
    """Return the ranking that the flags ask for.

    Args:
        spelled: names of the flags on the command line.

    Raises:
        ArgumentError: a flag has no meaning, or flags contradict each other.
    """
    contract = named(options.collective)
    flags.check(options, spelled, contract)
    sizes, sweep = ((0,), None) if contract.unit == "none" else (options.sizes, options.sweep)
    fit = flags.read_fit(options)
    model = flags.model(options, fit)
    topology = flags.topology(options, fit, AlphaBeta(model.latency, model.beta))
    for note in flags.notes(fit, options):
        click.echo(note, err=True)
    scenario = Scenario(contract.name, model, topology, options.root, flags.time_limit(options))
    chosen = [*candidates(contract.name, split_names(options.algorithms or ""))]
    ranking = _rank_with_progress(scenario, chosen, (*(sweep or ()), *sizes))
    if not ranking.curves:
        raise ArgumentError(f"no algorithm has a price; {'; '.join(notes(ranking))}")
    return RankingOutput(ranking, sizes, sweep)


def _rank_with_progress(
    scenario: Scenario, chosen: Sequence[Family], sizes: Sequence[float]
) -> Ranking:
    """Rank all algorithms and show which one is priced, as a ranking may take minutes."""
    with ProgressBar(len(chosen)) as bar:

        def report(algorithm: Algorithm, nbytes: float) -> None:
            bar.describe(f"{algorithm}, {rounded_size_text(nbytes)}")

        def families() -> Iterator[Family]:
            for family in chosen:
                bar.step(family[0][0].name if family and family[0] else "")
                yield family

        return rank(scenario, families(), sizes, report)


def _print(output: RankingOutput) -> None:
    scenario = output.ranking.scenario
    click.echo(f"{scenario.topology}; {scenario.model}")
    for table in tables(output):
        print_table(table, _PIPED_WIDTH)
    for note in notes(output.ranking):
        click.echo(note)


if __name__ == "__main__":
    main()
