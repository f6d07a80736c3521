"""Run Python on the ranks of emulated hosts, with a real but shaped network between them.

``python -m mpicoll.hosts --hosts 4 --per-host 2 --rate 1gbit -- -m mpicoll.bench allreduce``
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from mpicoll.errors import LaunchError
from mpicoll.hosts.emulation import MOST_HOSTS, PROVIDERS, Hosts


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-H", "--hosts", type=click.IntRange(1, MOST_HOSTS), default=4, show_default=True)
@click.option(
    "-p",
    "--per-host",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Ranks of each host.",
)
@click.option(
    "-r",
    "--rate",
    default="1gbit",
    show_default=True,
    help="Of each link and direction, as tc writes it; 'none' shapes nothing.",
)
@click.option("--mtu", type=click.IntRange(576, 65535), default=9000, show_default=True)
@click.option(
    "--provider",
    type=click.Choice(list(PROVIDERS)),
    default="ofi",
    show_default=True,
    help="MPICH's network layer.",
)
@click.argument("python", nargs=-1, required=True, metavar="-- PYTHON_ARGUMENTS...")
def main(
    hosts: int, per_host: int, rate: str, mtu: int, provider: str, python: Sequence[str]
) -> NoReturn:
    """Run Python on the ranks of emulated hosts, such as: -- -m mpicoll.bench allreduce."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with Hosts(hosts, None if rate == "none" else rate, mtu) as cluster:
            variables = {**os.environ, **cluster.environment(provider)}
            done = subprocess.run(cluster.command(python, per_host), env=variables, check=False)
    except LaunchError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
