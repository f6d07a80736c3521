"""Emulated hosts: a cluster on one machine, whose network is real but as slow as is asked for.

``python -m mpicoll.hosts --hosts 4 --per-host 2 --rate 1gbit -- -m mpicoll.bench allreduce``

Each host is a network namespace with a name and an address of its own, joined to the others by
a bridge. Its link is shaped in both directions by a token bucket (``tc tbf``), so that the
network, not the processor, is the limit, and figures are stable on a busy machine. MPICH's hydra
starts ranks there through a launcher that enters the namespaces. It takes root, Linux and
iproute2; nothing outside the namespaces is touched, and nothing stays.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count as numbers
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import click

from mpicoll.errors import LaunchError
from mpicoll.machine.cores import CORES

PROVIDERS: dict[str, dict[str, str]] = {
    "ofi": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"},
    "ucx": {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"},
}
"""What makes MPICH talk TCP between hosts, through either of its network layers."""

_ETC = Path("/etc/netns")
_NETWORK = "10.77.0"
_MOST = 200
_BURST = 64 * 1024
_LATENCY = "500ms"
_LAUNCHER = """#!/bin/sh
# Called like ssh: options, a host, a command.
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "{prefix}-$host" unshare --uts sh -c "hostname $host; $*"
"""


_numbers = numbers()


class Hosts:
    """Hosts ``host0``, ``host1``, ... until the ``with`` block is left.

    Args:
        count: how many.
        rate: of each link and direction, as tc writes it (``1gbit``); unlimited if None.
        mtu: bytes of a frame; 9000 are the jumbo frames of clusters, 1500 those of offices.

    Raises:
        LaunchError: this machine cannot emulate them, and why.
    """

    def __init__(self, count: int, rate: str | None = "1gbit", mtu: int = 9000) -> None:
        if not 1 <= count <= _MOST:
            raise LaunchError(f"1 to {_MOST} hosts can be emulated, not {count}")
        self.count, self.rate, self.mtu = count, rate, mtu
        self.prefix = f"mpicoll-{os.getpid()}-{next(_numbers)}"
        self.names = [f"host{index}" for index in range(count)]
        self.folder: Path | None = None

    def __enter__(self) -> Self:
        _check()
        self.folder = Path(tempfile.mkdtemp(prefix=self.prefix))
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._remove()

    # -- the network --------------------------------------------------------------------

    def _space(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _build(self) -> None:
        bridge = self._space("bridge")
        _do("ip", "netns", "add", bridge)
        _do("ip", "-n", bridge, "link", "add", "bridge", "type", "bridge")
        _do("ip", "-n", bridge, "link", "set", "bridge", "up")
        known = "".join(f"{self.address(i)} {name}\n" for i, name in enumerate(self.names))
        for index, name in enumerate(self.names):
            self._add(index, name, bridge, f"127.0.0.1 localhost\n{known}")
        assert self.folder is not None
        launcher = self.folder / "launch"
        launcher.write_text(_LAUNCHER.format(prefix=self.prefix))
        launcher.chmod(0o755)

    def _add(self, index: int, name: str, bridge: str, known: str) -> None:
        """Make one host, its link to the bridge, and the names that it knows."""
        space, port = self._space(name), f"port{index}"
        _do("ip", "netns", "add", space)
        _do("ip", "link", "add", "eth0", "netns", space, "type", "veth",
            "peer", "name", port, "netns", bridge)  # fmt: skip
        _do("ip", "-n", space, "link", "set", "lo", "up")
        _do("ip", "-n", space, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
        mtu = str(self.mtu)
        _do("ip", "-n", space, "link", "set", "eth0", "mtu", mtu, "up")
        _do("ip", "-n", bridge, "link", "set", port, "master", "bridge", "mtu", mtu, "up")
        for where, device in ((space, "eth0"), (bridge, port)):
            if self.rate is not None:
                _do(
                    "ip", "netns", "exec", where, "tc", "qdisc", "add", "dev", device, "root",
                    "tbf", "rate", self.rate, "burst", str(_BURST), "latency", _LATENCY,
                )  # fmt: skip
        # `ip netns exec` lays these over /etc.
        (_ETC / space).mkdir(parents=True)
        (_ETC / space / "hosts").write_text(known)

    def address(self, index: int) -> str:
        """Return the address of a host."""
        return f"{_NETWORK}.{index + 1}"

    def _remove(self) -> None:
        for name in (*self.names, "bridge"):
            space = self._space(name)
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)
            shutil.rmtree(_ETC / space, ignore_errors=True)
        with suppress(OSError):
            _ETC.rmdir()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- ranks there ----------------------------------------------------------------------

    def command(self, python: Sequence[str], per_host: int = 1) -> list[str]:
        """Return what runs Python with these arguments on all ranks, host by host."""
        assert self.folder is not None, "the hosts are there inside the with block"
        first = self.names[0]
        hydra = [
            _mpirun(), "-launcher", "ssh", "-launcher-exec", str(self.folder / "launch"),
            "-hosts", ",".join(self.names), "-ppn", str(per_host),
            "-n", str(per_host * self.count), sys.executable, *python,
        ]  # fmt: skip
        named = ["unshare", "--uts", "sh", "-c", f'hostname {first}; exec "$@"', "sh"]
        return ["ip", "netns", "exec", self._space(first), *named, *hydra]

    def environment(self, provider: str = "ofi") -> dict[str, str]:
        """Return the variables that make MPICH, gloo and torchcoll use the emulated network."""
        cores = str(len(os.sched_getaffinity(0)) / self.count)
        return {
            **PROVIDERS[provider], "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
            CORES: os.environ.get(CORES, cores),
        }  # fmt: skip

    def run(
        self, python: Sequence[str], per_host: int = 1, *, provider: str = "ofi",
        timeout: float | None = None, environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run Python on all ranks and return what it printed; kill all of it after `timeout` s."""
        variables = {**os.environ, **self.environment(provider), **(environment or {})}
        with subprocess.Popen(
            self.command(python, per_host), env=variables, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                self._kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def _kill(self) -> None:
        """End every process on the hosts."""
        for name in self.names:
            found = subprocess.run(
                ["ip", "netns", "pids", self._space(name)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            for number in found.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)


def missing() -> str | None:
    """Return why this machine cannot emulate hosts, None where it can."""
    lacking = [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]
    if lacking:
        return f"no {', '.join(lacking)}: install Debian's iproute2 and util-linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        told = subprocess.run([_mpirun(), "--version"], capture_output=True, text=True, check=False)
    except LaunchError as error:
        return str(error)
    return None if "HYDRA" in told.stdout else "ranks start there through MPICH's mpirun (hydra)"


def _check() -> None:
    why = missing()
    if why is not None:
        raise LaunchError(f"no emulated hosts: {why}")


def _mpirun() -> str:
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise LaunchError("no mpirun: pip install 'mpicoll[mpich]' brings MPICH's")
    return found


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LaunchError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-H", "--hosts", type=click.IntRange(1, _MOST), default=4, show_default=True)
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
@click.argument("python", nargs=-1, required=True, metavar="-- PYTHON_ARGUMENTS...")  # fmt: skip
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
