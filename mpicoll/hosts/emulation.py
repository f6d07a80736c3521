"""Emulated hosts: network namespaces on one machine, joined by a bridge over shaped links.

A token bucket (``tc tbf``) shapes each link in both directions, so that the network, not the
processor, is the limit, and timings are stable on a busy machine. MPICH's hydra starts ranks there
through a launcher that enters the namespaces. It takes root, Linux and iproute2; nothing outside
the namespaces is changed, and they are removed at the end.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from itertools import count as numbers
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mpicoll.errors import LaunchError
from mpicoll.machine.launches import mpirun
from mpicoll.machine.nodes import CORES

PROVIDERS: dict[str, dict[str, str]] = {
    "ofi": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"},
    "ucx": {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"},
}
"""The variables that make MPICH use TCP between hosts, over either of its network layers."""

_ETC = Path("/etc/netns")
_NETWORK = "10.77.0"
MOST_HOSTS = 200
_BURST = 64 * 1024
_LATENCY = "500ms"
_NETWORK_SPACE, _NAME_SPACE, _MOUNT_SPACE = 0x40000000, 0x04000000, 0x00020000
"""CLONE_NEWNET, CLONE_NEWUTS and CLONE_NEWNS of Linux's sched.h."""
_PRIVATE, _BIND = 0x44000, 0x1000
"""MS_PRIVATE | MS_REC and MS_BIND of Linux's mount.h."""
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
        rate: of each link and direction, as tc writes it (``1gbit``); None does not limit it.
        mtu: bytes of a frame; 9000 for the jumbo frames of clusters, 1500 for those of offices.

    Raises:
        LaunchError: this machine cannot emulate hosts; the message says why.
    """

    def __init__(self, count: int, rate: str | None = "1gbit", mtu: int = 9000) -> None:
        if not 1 <= count <= MOST_HOSTS:
            raise LaunchError(f"1 to {MOST_HOSTS} hosts can be emulated, not {count}")
        self.count, self.rate, self.mtu = count, rate, mtu
        self.prefix = f"mpicoll-{os.getpid()}-{next(_numbers)}"
        self.names = [f"host{index}" for index in range(count)]
        self.folder: Path | None = None

    def __enter__(self) -> Self:
        if why := missing():
            raise LaunchError(f"no emulated hosts: {why}")
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

    def _namespace(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _build(self) -> None:
        bridge = self._namespace("bridge")
        _run("ip", "netns", "add", bridge)
        _run("ip", "-n", bridge, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", bridge, "link", "set", "bridge", "up")
        hosts_text = "".join(f"{self.address(i)} {name}\n" for i, name in enumerate(self.names))
        for index, name in enumerate(self.names):
            self._add(index, name, bridge, f"127.0.0.1 localhost\n{hosts_text}")
        assert self.folder is not None
        launcher = self.folder / "launch"
        launcher.write_text(_LAUNCHER.format(prefix=self.prefix))
        launcher.chmod(0o755)

    def _add(self, index: int, name: str, bridge: str, hosts_text: str) -> None:
        """Make one host: its link to the bridge, and its /etc/hosts."""
        namespace, port = self._namespace(name), f"port{index}"
        _run("ip", "netns", "add", namespace)
        _run("ip", "link", "add", "eth0", "netns", namespace, "type", "veth",
            "peer", "name", port, "netns", bridge)  # fmt: skip
        _run("ip", "-n", namespace, "link", "set", "lo", "up")
        _run("ip", "-n", namespace, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
        mtu = str(self.mtu)
        _run("ip", "-n", namespace, "link", "set", "eth0", "mtu", mtu, "up")
        _run("ip", "-n", bridge, "link", "set", port, "master", "bridge", "mtu", mtu, "up")
        if self.rate is not None:
            self.limit(index, self.rate)
        # `ip netns exec` lays these over /etc.
        (_ETC / namespace).mkdir(parents=True)
        (_ETC / namespace / "hosts").write_text(hosts_text)

    def address(self, index: int) -> str:
        """Return the address of a host."""
        return f"{_NETWORK}.{index + 1}"

    def link(self, index: int, *, up: bool) -> None:
        """Cut the link of a host, or mend it; packets sent meanwhile are lost."""
        state = "up" if up else "down"
        _run("ip", "-n", self._namespace("bridge"), "link", "set", f"port{index}", state)

    def limit(self, index: int, rate: str) -> None:
        """Limit the link of a host, in both directions, to a rate as tc writes it."""
        for place, device in ((self.names[index], "eth0"), ("bridge", f"port{index}")):
            self._shape(place, device, rate)

    def limit_pair(self, index: int, peer: int, rate: str) -> None:
        """Limit what two hosts send to each other; it takes a link that only these two share."""
        ends = {index: f"to{peer}", peer: f"to{index}"}
        places = {host: self._namespace(self.names[host]) for host in ends}
        _run("ip", "link", "add", ends[index], "netns", places[index], "type", "veth",
            "peer", "name", ends[peer], "netns", places[peer])  # fmt: skip
        for host, target in ((index, peer), (peer, index)):
            device = ends[host]
            _run("ip", "-n", places[host], "link", "set", device, "mtu", str(self.mtu), "up")
            self._shape(self.names[host], device, rate)
            _run("ip", "-n", places[host], "route", "add", f"{self.address(target)}/32",
                "dev", device, "src", self.address(host))  # fmt: skip

    def join(self, index: int, peer: int) -> None:
        """Remove the link that only two hosts share: they use that of all again."""
        _run("ip", "-n", self._namespace(self.names[index]), "link", "delete", f"to{peer}")

    def _shape(self, place: str, device: str, rate: str) -> None:
        _run(
            "ip", "netns", "exec", self._namespace(place), "tc", "qdisc", "replace", "dev", device,
            "root", "tbf", "rate", rate, "burst", str(_BURST), "latency", _LATENCY,
        )  # fmt: skip

    def enter(self, index: int) -> None:
        """Move this process, which has one thread, to a host.

        Raises:
            OSError: the system does not let it.
        """
        namespace = self._namespace(self.names[index])
        with open(f"/run/netns/{namespace}") as network:
            _system("setns", network.fileno(), _NETWORK_SPACE)
        _system("unshare", _NAME_SPACE | _MOUNT_SPACE)
        socket.sethostname(self.names[index])
        _system("mount", b"none", b"/", None, _PRIVATE, None)
        hosts_file = os.fsencode(_ETC / namespace / "hosts")
        _system("mount", hosts_file, b"/etc/hosts", None, _BIND, None)

    def _remove(self) -> None:
        for name in (*self.names, "bridge"):
            namespace = self._namespace(name)
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)
            shutil.rmtree(_ETC / namespace, ignore_errors=True)
        with suppress(OSError):
            _ETC.rmdir()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- processes there ------------------------------------------------------------------

    def command(
        self, python: Sequence[str], per_host: int = 1, hosts: int | None = None,
        starter: Sequence[str] = (),
    ) -> list[str]:  # fmt: skip
        """Return the command that runs Python with these arguments on all ranks, host by host.

        Args:
            hosts: how many of the hosts take part, all by default.
            starter: the command that starts each rank, given its own.
        """
        names = self.names[:hosts]
        return self.entering(0, [
            _mpirun(), "-launcher", "ssh", "-launcher-exec", self._launcher,
            "-hosts", ",".join(names), "-ppn", str(per_host),
            "-n", str(per_host * len(names)), *starter, sys.executable, *python,
        ])  # fmt: skip

    def entering(self, index: int, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command on a host."""
        name = self.names[index]
        return ["ip", "netns", "exec", self._namespace(name), "unshare", "--uts",
                "sh", "-c", f'hostname {name}; exec "$@"', "sh", *command]  # fmt: skip

    @property
    def _launcher(self) -> str:
        assert self.folder is not None, "hosts exist only inside the with block"
        return str(self.folder / "launch")

    def environment(self, provider: str = "ofi") -> dict[str, str]:
        """Return the variables that make MPICH, gloo and torchcoll use the emulated network."""
        cores = str(len(os.sched_getaffinity(0)) / self.count)
        return {
            **PROVIDERS[provider], "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
            CORES: os.environ.get(CORES, cores),
        }  # fmt: skip

    def launch_environment(self, per_host: int) -> dict[str, str]:
        """Return the variables by which MPICH and Open MPI place ranks on all hosts.

        Each host gets `per_host` ranks.
        """
        assert self.folder is not None, "hosts exist only inside the with block"
        hydra, prrte = self.folder / "hydra", self.folder / "prrte"
        hydra.write_text("".join(f"{name}:{per_host}\n" for name in self.names))
        prrte.write_text("".join(f"{name} slots={per_host}\n" for name in self.names))
        return {
            "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": self._launcher,
            "HYDRA_HOST_FILE": str(hydra), "PRTE_MCA_plm": "ssh",
            "PRTE_MCA_plm_ssh_agent": self._launcher, "PRTE_MCA_prte_default_hostfile": str(prrte),
        }  # fmt: skip


def missing() -> str | None:
    """Return why this machine cannot emulate hosts, None where it can."""
    lacking = [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]
    if lacking:
        return f"no {', '.join(lacking)}: install Debian's iproute2 and util-linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        output = subprocess.run(
            [_mpirun(), "--version"], capture_output=True, text=True, check=False
        )
    except LaunchError as error:
        return str(error)
    return None if "HYDRA" in output.stdout else "ranks start there through MPICH's mpirun (hydra)"


def _mpirun() -> str:
    path = mpirun()
    if path is None:
        raise LaunchError("no mpirun: pip install 'mpicoll[mpich]' brings MPICH's")
    return path


def _system(name: str, *arguments: Any) -> None:
    """Make a call of the C library that Python has not.

    Raises:
        OSError: it fails.
    """
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _run(*command: str) -> None:
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise LaunchError(f"{' '.join(command)}: {process.stderr.strip() or process.returncode}")
