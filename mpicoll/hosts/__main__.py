"""Run Python on the ranks of emulated hosts, with a real but shaped network between them.

``python -m mpicoll.hosts --hosts 4 --per-host 2 --rate 1gbit -- -m mpicoll.bench allreduce``
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import click

from mpicoll.cli.command import Command
from mpicoll.cli.options import option
from mpicoll.errors import LaunchError
from mpicoll.hosts.emulation import MOST_HOSTS, PROVIDERS, Hosts


@click.command("hosts", cls=Command)
@option("-H", "--hosts", type=click.IntRange(1, MOST_HOSTS), default=4, shown=True)
@option(
    "-p", "--per-host", type=click.IntRange(1), default=1, shown=True, help="Ranks of each host."
)
@option(
    "-r", "--rate", default="1gbit", shown=True,
    help="Of each link and direction, as tc writes it; 'none' shapes nothing.",
)  # fmt: skip
@option("--mtu", type=click.IntRange(576, 65535), default=9000, shown=True)
@option(
    "--provider", type=click.Choice(list(PROVIDERS)), default="ofi", shown=True,
    help="MPICH's network layer.",
)  # fmt: skip
@click.argument("python", nargs=-1, required=True, metavar="-- PYTHON_ARGUMENTS...")
def main(
    hosts: int, per_host: int, rate: str, mtu: int, provider: str, python: Sequence[str]
) -> int:
    """Run Python on the ranks of emulated hosts, such as: -- -m mpicoll.bench allreduce."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with Hosts(hosts, None if rate == "none" else rate, mtu) as cluster:
            variables = {**os.environ, **cluster.environment(provider)}
            command = cluster.command(python, per_host)
            return subprocess.run(command, env=variables, check=False).returncode
    except LaunchError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
