"""Run Python on the ranks of emulated hosts, with a real but shaped network between them.

``python -m mpicoll.hosts --hosts 4 --per-host 2 --rate 1gbit -- -m mpicoll.bench allreduce``
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from reprlib import repr as short

import click

from mpicoll.cli.command import LauncherCommand
from mpicoll.cli.ending import unwind_at_termination
from mpicoll.cli.options import Parsed, Whole, option
from mpicoll.errors import ArgumentError, LaunchError
from mpicoll.hosts.emulation import MOST_HOSTS, PROVIDERS, Hosts


def tc_rate(text: str) -> str:
    """Return a rate as tc writes it, or ``none``.

    Raises:
        ArgumentError: it is none.
    """
    written = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)[kmgt]?i?(?:bit|bps)", text.lower(), re.ASCII)
    if text != "none" and not (written and float(written[1])):
        raise ArgumentError(f"{short(text)} is no rate: give one as 1gbit, 100mbit or none")
    return text


@click.command("hosts", cls=LauncherCommand)
@option("-H", "--hosts", type=Whole(1, MOST_HOSTS), default=4, shown=True, help="How many.")
@option("-p", "--per-host", type=Whole(1, 1024), default=1, shown=True, help="Ranks of each host.")
@option(
    "-r", "--rate", type=Parsed("rate", tc_rate), default="1gbit", shown=True,
    help="Of each link and direction, as tc writes it; 'none' shapes nothing.",
)  # fmt: skip
@option("--mtu", type=Whole(576, 65535), default=9000, shown=True, help="Bytes of a frame.")
@option(
    "--provider", type=click.Choice(list(PROVIDERS)), default="ofi", shown=True,
    help="MPICH's network layer.",
)  # fmt: skip
@option(
    "--once", is_flag=True,
    help="Run Python once, on the first host; an mpirun that it starts has ranks on all hosts.",
)  # fmt: skip
@click.argument("python", nargs=-1, required=True, metavar="-- PYTHON_ARGUMENTS...")
def main(
    hosts: int, per_host: int, rate: str, mtu: int, provider: str, once: bool,
    python: Sequence[str],
) -> int:  # fmt: skip
    """Run Python on the ranks of emulated hosts, such as: -- -m mpicoll.bench allreduce."""
    unwind_at_termination()  # removes the hosts
    try:
        with Hosts(hosts, None if rate == "none" else rate, mtu) as cluster:
            variables = {**os.environ, **cluster.environment(provider)}
            if once:
                command = cluster.entering(0, [sys.executable, *python])
                variables |= cluster.launch_environment(per_host)
            else:
                command = cluster.command(python, per_host)
            return subprocess.run(command, env=variables, check=False).returncode
    except LaunchError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
