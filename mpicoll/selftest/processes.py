"""Start the ranks of a launch of chaos as processes, read their messages, and end them."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, cast

from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, LaunchError
from mpicoll.flight.stack_text import last_stacks
from mpicoll.hosts.emulation import Hosts
from mpicoll.machine.children import end_with_parent
from mpicoll.machine.launches import mpirun
from mpicoll.machine.living import ask_for_stacks, has_ended, how_ended, is_stopped
from mpicoll.machine.waited import Waited
from mpicoll.selftest.faults import KILL, Launch
from mpicoll.selftest.ranks import THREAD, be_rank

_STORE = f"{THREAD} pt_tcpstore_uv"
"""The thread of a store of torch."""
_START = 120.0
"""Seconds within which all ranks must have started."""
PEER_DEADLINE = 20.0
"""Deadline of the group without faults, seconds."""
_END = 10.0
_STAYS = ["sh", "-c", '"$@"; while [ -S "$0" ]; do sleep 0.2; done']
"""Starts a rank of MPI and outlives it as long as a socket exists. MPI's launcher ends all ranks if
one of its children ends, and so does not notice the death of a rank."""
_LOOK, _PAUSE = 0.5, 1.0
"""Seconds between two looks at the clock, and the delay beyond them that counts as a pause of this
machine or container: ranks miss their deadlines then."""


class Ranks:
    """The ranks of a launch, as processes.

    Args:
        make: forms the group of torch's ranks.
        hosts: emulated hosts; None: all ranks run on this machine.

    Attributes:
        paused: the machine stood still while the ranks were observed.
    """

    def __init__(
        self, launch: Launch, plan: dict[str, Any], deadline: float, folder: Path,
        make: Callable[[], Collectives], hosts: Hosts | None,
    ) -> None:  # fmt: skip
        self.launch, self.deadline, self.folder = launch, deadline, folder
        self.hosts = hosts if launch.per_host else None
        self.temporary = folder / f"tmp{launch.number}"
        self.temporary.mkdir()
        self.log, self.flight = folder / f"{launch.number}.log", folder / f"flight{launch.number}"
        self.path = folder / f"{launch.number}.socket"
        path = str(self.path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(launch.ranks)
        self.children: list[int] = []
        self.launcher: subprocess.Popen[bytes] | None = None
        self.processes: dict[int, int] = {}
        self.wires: dict[int, socket.socket] = {}
        self.buffers: dict[int, bytes] = {}
        self.over: dict[int, str] = {}
        self.held: dict[int, list[tuple[int, Counter[str]]]] = {}
        self.selector = selectors.DefaultSelector()
        self.paused = False
        if launch.backend == "torch":
            for rank in range(launch.ranks):
                process = os.fork()
                if not process:
                    self._child(rank, path, make)
                self.children.append(process)
        else:
            self._launch({**plan, "path": path, "deadline": deadline})

    def _variables(self) -> dict[str, str]:
        variables = {
            "MPICOLL_DEADLINE": str(PEER_DEADLINE), "TMPDIR": str(self.temporary),
            "MPICOLL_FLIGHT_DIR": str(self.flight),
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        return variables | (self.hosts.environment() if self.hosts else {})

    def _child(self, rank: int, path: str, make: Callable[[], Collectives]) -> NoReturn:
        """Run a rank of torch in this forked process."""
        end_with_parent(signal.SIGKILL)
        os.environ.update(self._variables())
        method = f"file://{self.folder}/{self.launch.number}.store"
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(self.launch.ranks))
        os.environ["TORCHCOLL_INIT_METHOD"] = method
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            if self.hosts is not None:
                self.hosts.enter(rank // self.launch.per_host)
            be_rank(self.launch, path, rank, self.deadline, make)
        except BaseException:
            traceback.print_exc()
        os._exit(1)

    def _launch(self, plan: dict[str, Any]) -> None:
        """Start MPI's launcher."""
        python = ["-m", "mpicoll.selftest.ranks", json.dumps(plan)]
        starter = [*_STAYS, str(self.path)]
        if self.hosts is not None:
            per_host = self.launch.per_host
            hosts = self.launch.ranks // per_host
            command = self.hosts.command(python, per_host, hosts, starter)
        else:
            launcher = mpirun()
            if launcher is None:
                raise ArgumentError(
                    "there is no mpirun: install one with pip install 'mpicoll[mpich]'"
                )
            size = str(self.launch.ranks)
            command = [*letting_live(launcher), "-n", size, *starter, sys.executable, *python]
        with open(self.log, "ab") as log:
            self.launcher = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=end_with_parent,
                env={**os.environ, **self._variables()},
            )  # fmt: skip

    # -- what ranks say ---------------------------------------------------------------------

    def until(
        self, limit: float, is_over: Callable[[], bool]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the ranks' messages until a condition holds, or the time limit is over.

        The message of a rank that has ended is an empty dictionary.
        """
        waited = Waited()  # its clock stops while the machine stands still
        while not is_over() and waited.seconds < limit:
            last_look = waited.looked
            for key, _ in self.selector.select(min(limit - waited.seconds, _LOOK)):
                yield from self._read(key.data)
            waited.look()
            self.paused |= waited.looked - last_look > _LOOK + _PAUSE

    def _read(self, rank: int) -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            data = self.wires[rank].recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(self.wires[rank])
            self.over[rank] = how_ended(self.processes[rank])
            yield rank, {}
        *lines, self.buffers[rank] = (self.buffers[rank] + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "held" in message:
                self.held.setdefault(rank, []).append((message["after"], Counter(message["held"])))
            yield rank, message

    def come(self) -> str:
        """Wait until all ranks have connected; return the error, "" for none.

        Raises:
            LaunchError: the launcher or the first rank ended before any rank had connected, for
                example because a library is missing.
        """
        waited = Waited()
        with selectors.DefaultSelector() as arrivals:
            arrivals.register(self.listener, selectors.EVENT_READ)
            while len(self.processes) < self.launch.ranks:
                launcher = self.launcher
                if not self.processes and launcher is not None and launcher.poll() is not None:
                    raise self._cannot_start()
                if waited.look() > _START:
                    return self._describe_absence(f"{len(arrivals.get_map()) - 1} more say nothing")
                for key, _ in arrivals.select(_LOOK):
                    if key.fileobj is self.listener:
                        arrivals.register(self.listener.accept()[0], selectors.EVENT_READ)
                        continue
                    arrivals.unregister(key.fileobj)
                    try:
                        self._accept(cast(socket.socket, key.fileobj))
                    except (OSError, ValueError) as error:
                        return self._describe_absence(repr(error))
        return ""

    def _describe_absence(self, why: str) -> str:
        come = f"{len(self.processes)} of {self.launch.ranks} ranks have come"
        return f"{come}: {why}: {self.last_words()}"

    def _cannot_start(self) -> LaunchError:
        words = self.last_words().strip() or "they say nothing"
        return LaunchError(f"the ranks end before they form a group: {words.splitlines()[-1]}")

    def _accept(self, wire: socket.socket) -> None:
        """Register a rank that has connected, by its first message."""
        wire.settimeout(_LOOK)
        line = wire.makefile("rb", buffering=0).readline()
        if not line and not self.processes:
            raise self._cannot_start()
        message = json.loads(line)
        wire.settimeout(None)
        rank = message["rank"]
        self.processes[rank], self.wires[rank], self.buffers[rank] = message["process"], wire, b""
        self.selector.register(wire, selectors.EVENT_READ, rank)

    def tell(self, ranks: Iterable[int]) -> None:
        """Tell ranks to continue."""
        for rank in ranks:
            with suppress(OSError):
                self.wires[rank].sendall(b"\n")

    def hear_the_end(self, ranks: Sequence[int]) -> None:
        """Return when the ranks have finished, or have ended."""
        going = {*ranks}
        for rank, message in self.until(PEER_DEADLINE, lambda: not going):
            if "done" in message or not message:
                going.discard(rank)

    def resume(self, stopped: Sequence[int]) -> None:
        """Resume ranks as soon as they are stopped."""
        until = time.monotonic() + PEER_DEADLINE
        for rank in stopped:
            process = self.processes[rank]
            while not is_stopped(process) and not has_ended(process) and time.monotonic() < until:
                time.sleep(0.005)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    def stacks(self, rank: int) -> str:
        """Return the stacks of a silent rank."""
        ask_for_stacks(self.processes[rank])
        time.sleep(1)
        every = [
            file.read_text(errors="replace") for file in self._stack_files(self.processes[rank])
        ]
        tracebacks = [frames for text in every for frames in last_stacks(text)]
        return "\n".join(" < ".join(map(str, frames)) for frames in reversed(tracebacks))

    def _stack_files(self, process: int | str = "*") -> list[Path]:
        """Return the files with the stacks of a rank's process, or of all."""
        return sorted(self.flight.glob(f"*.{process}.stacks"))

    def last_words(self) -> str:
        """Return the end of the ranks' output."""
        time.sleep(0.5)  # the launcher also prints
        output = ""
        with suppress(OSError):
            output = self.log.read_text(errors="replace")[-1000:]
        for path in self._stack_files():
            fatal = path.read_text(errors="replace").partition("Fatal Python error")[2]
            output += fatal.partition("Current thread")[2][:1500] or fatal[:1500]
        return output

    # -- the end ----------------------------------------------------------------------------

    def end(self) -> list[str]:
        """End all ranks, and return their remaining processes and files."""
        for process in {*self.children, *self.processes.values()}:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.path.unlink()
        if self.launcher is not None:
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                self.launcher.wait(_END)
            with suppress(ProcessLookupError):
                os.killpg(self.launcher.pid, signal.SIGKILL)
            self.launcher.wait()
        for process in self.children:
            os.waitpid(process, 0)
        for wire in (*self.wires.values(), self.listener):
            wire.close()
        self.selector.close()
        until = time.monotonic() + _END
        while (alive := [p for p in self.processes.values() if not has_ended(p)]) and (
            time.monotonic() < until
        ):
            time.sleep(0.02)
        remains = [f"process {number}" for number in alive]
        remains += [f"file {file.name}" for file in self.temporary.iterdir()]
        for folder in (self.temporary, self.flight):
            shutil.rmtree(folder, ignore_errors=True)
        return remains

    def grown(self) -> Counter[str]:
        """Return the growth of descriptors and threads of a median rank since it was warm.

        After a rank has been killed, the others keep torch's default group until they end. One of
        them, which may change with the next kill, has the store of the survivors.
        """
        kills = (fault.number for fault in self.launch.faults if fault.kind == KILL)
        warm = next(kills, 0) + 1
        warm_samples = [
            [kinds for kill_count, kinds in samples if kill_count >= warm]
            for samples in self.held.values()
        ]
        more = [Counter(samples[-1]) for samples in warm_samples if samples]
        for last, samples in zip(more, filter(None, warm_samples), strict=True):
            last.subtract(samples[0])
        alike = sorted((growth for growth in more if growth[_STORE] != 1), key=Counter.total)
        return alike[(len(alike) - 1) // 2] if alike else Counter()


@cache
def letting_live(launcher: str) -> Sequence[str]:
    """Return the command of a launcher that keeps ranks alive when another one ends."""
    output = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    return (launcher, "--enable-recovery") if "Open MPI" in output.stdout else (launcher,)
