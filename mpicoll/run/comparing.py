"""Run a program in turn as it is and with mpicoll, and say whether it became faster.

The first rank repeats the command of its launcher, with the same options and environment, once for
each run. The other ranks end at once, so they take no processor from the runs.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, NamedTuple

import msgspec

from mpicoll.cli import ending
from mpicoll.cli.progress import ProgressBar
from mpicoll.errors import ArgumentError
from mpicoll.machine.children import run_launcher
from mpicoll.machine.launchers import (
    PACKAGES,
    TORCHRUN,
    find_launch,
    is_first_process,
    ranks_of_host,
)
from mpicoll.machine.launches import launcher_process
from mpicoll.run import recording
from mpicoll.run.outcome import Kind, Outcome, RankTimes, Run

_LIMIT_FACTOR, _LIMIT_SECONDS = 10.0, 60.0
"""A run is ended if it takes so many times as long as the longest before, and so many seconds."""
_SITE = """\
import os, sys
FOLDER, SEARCHED, RANKS, SOURCE = {folder!r}, {searched!r}, {ranks!r}, {source!r}
sys.path.remove(FOLDER)
module = sys.modules.pop("sitecustomize")
try:
    if not RANKS or any(name in os.environ for name in RANKS):
        if SEARCHED is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = SEARCHED
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location("_mpicoll_recording", SOURCE)
        recording = module_from_spec(spec)
        spec.loader.exec_module(recording)
        recording.start(FOLDER)
    try:
        import sitecustomize
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
finally:
    sys.modules.setdefault("sitecustomize", module)
"""
"""Python imports this file before a program. It restores what the program would see without it,
and runs the file of that name which Python would have imported."""


class Command(NamedTuple):
    """The command that started this process.

    Attributes:
        head: the launcher with its options, and Python, up to the drop-in.
        ranks: the number of processes that it starts.
        variables: its environment.
        names: the variables of launchers with the rank of a process.
    """

    head: list[str]
    ranks: int
    variables: dict[str, str]
    names: list[str]

    def words(self, kind: Kind, module: str, program: Sequence[str]) -> list[str]:
        """Return the command of a run."""
        return [*self.head, *(("-m", module) if kind is Kind.MPICOLL else ()), *program]


def compare(rounds: int, module: str, arguments: Sequence[str], program: Sequence[str]) -> int:
    """Run a program so many times of each kind, print the outcome, and return the exit status.

    Args:
        module: the drop-in, as ``mpicoll.run``.
        arguments: of the drop-in, all.
        program: the last of the arguments, from the program on.

    Raises:
        ArgumentError: the command of the launcher cannot be repeated.
    """
    command = find_command(module, arguments)
    if not is_first_process():
        _await_first(command.names)
        return 0
    ending.unwind_at_termination()
    outcome = Outcome(module, command.ranks)
    sys.stdout.flush()
    with Input() as source, ProgressBar(2 * rounds) as bar:
        for number in range(rounds):
            for kind in random.sample(list(Kind), 2):
                bar.step(f"{Path(program[program[0] == '-m']).name} {kind}")
                run = _run(command, command.words(kind, module, program), source, outcome)
                outcome.add(number, kind, run)
                if run.status != 0:
                    bar.hide()
                    ending.say(f"Error: {outcome.failure(kind, run, 2 * rounds)}")
                    return ending.HUNG if run.status is None else run.status
    outcome.print()
    return 0


def _await_first(names: Sequence[str]) -> None:
    """Wait for the end of the first rank, if it is on this host.

    Hydra's proxy uses a whole core from the end of one of its ranks to that of the last.

    Args:
        names: the variables of launchers with the rank of a process.
    """
    parent, firsts = os.getppid(), {f"{name}=0".encode() for name in names}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state = (path / "stat").read_text().rpartition(")")[2].split()
            if int(state[1]) == parent and firsts & {*(path / "environ").read_bytes().split(b"\0")}:
                poll = select.poll()
                poll.register(os.pidfd_open(int(path.name)), select.POLLIN)
                poll.poll()
                return


def find_command(module: str, arguments: Sequence[str]) -> Command:
    """Return the command that started this process.

    Raises:
        ArgumentError: it runs on another host, starts several programs, or is unknown.
    """
    launch, launcher = find_launch(), launcher_process()
    if launch is None:
        head = _head(sys.orig_argv, module, arguments)
        return Command([sys.executable, *head[1:]], 1, dict(os.environ), [])
    if launcher is None or launch.launcher == "srun":
        raise ArgumentError(
            f"--compare repeats the command of mpirun or torchrun, and finds none on this host "
            f"({launch.launcher} has started this process): start it by mpirun or torchrun, so "
            "that rank 0 runs on the same host"
        )
    head = _head(launcher.words, module, arguments)
    if ":" in head:
        raise ArgumentError("--compare runs one program: the launcher has several, after ':'")
    if launch.launcher == TORCHRUN:
        if ranks_of_host() != launch.size:
            raise ArgumentError(
                f"--compare runs under torchrun on one host: of {launch.size} ranks "
                f"{ranks_of_host()} are here. On several hosts, start it by mpirun"
            )
        # A port that torchrun was given is taken by the torchrun that runs this process.
        place = next(i for i, word in enumerate(head) if _is_torchrun(word))
        head.insert(place + 1, "--standalone")
    names = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "RANK"]
    return Command(head, launch.size, launcher.variables, names)


def _is_torchrun(word: str) -> bool:
    return Path(word).name in ("torchrun", "torch.distributed.run")


def _head(words: Sequence[str], module: str, arguments: Sequence[str]) -> list[str]:
    """Return the words of a command before the drop-in and its arguments."""
    head, tail = list(words[: -len(arguments)]), list(words[-len(arguments) :])
    if tail == list(arguments) and head[-2:] == ["-m", module]:
        return head[:-2]
    if tail == list(arguments) and head[-1:] == ["run"] and Path(head[-2]).name in PACKAGES:
        return [*head[: -3 if Path(head[-3]).name.startswith("python") else -2], sys.executable]
    raise ArgumentError(
        f"--compare repeats the launcher's command, whose end must be python -m {module} "
        f"{' '.join(arguments)}: it is {' '.join(words)}"
    )


class Input:
    """Standard input, which the first run reads, and all others read again.

    A context manager. `take` returns what the next run reads from.
    """

    def __enter__(self) -> Input:
        self.copy: IO[bytes] = TemporaryFile()
        self.is_first = True
        return self

    def __exit__(self, *_error: object) -> None:
        self.copy.close()

    @contextmanager
    def take(self) -> Iterator[IO[bytes]]:
        """Yield a file that a run reads."""
        if not self.is_first:
            self.copy.seek(0)
            with open(f"/proc/self/fd/{self.copy.fileno()}", "rb") as again:
                yield again
            return
        self.is_first = False
        reading, writing = os.pipe()
        threading.Thread(target=self._pass_on, args=(writing,), daemon=True).start()
        with os.fdopen(reading, "rb") as first:
            yield first

    def _pass_on(self, writing: int) -> None:
        """Copy standard input to the first run, as it comes, and to the file for the others."""
        with suppress(OSError, ValueError):  # the run has ended, or all have
            while data := os.read(0, 1 << 16):
                self.copy.write(data)
                self.copy.flush()
                os.write(writing, data)
        os.close(writing)


def _run(command: Command, words: Sequence[str], source: Input, outcome: Outcome) -> Run:
    """Make a run; the first one prints, and one that fails."""
    longest = outcome.longest
    limit = None if longest is None else _LIMIT_FACTOR * longest + _LIMIT_SECONDS
    is_shown = longest is None
    with (
        TemporaryDirectory(prefix="mpicoll-compare-") as folder,
        TemporaryFile() as out, TemporaryFile() as errors, source.take() as taken,
    ):  # fmt: skip
        variables = command.variables | _recorded(command, folder)
        begin = time.monotonic()
        status: int | None
        try:
            status = run_launcher(
                words, limit, variables, None if is_shown else out, None if is_shown else errors,
                taken,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            status = None
        except OSError as error:
            raise ArgumentError(f"{words[0]} does not start: {error.strerror}") from None
        seconds = time.monotonic() - begin
        if status != 0 and not is_shown:
            for file, descriptor in ((out, 1), (errors, 2)):
                file.seek(0)
                with open(descriptor, "wb", closefd=False) as stream:
                    shutil.copyfileobj(file, stream)
        return Run(seconds, status, list(_times(Path(folder))))


def _recorded(command: Command, folder: str) -> dict[str, str]:
    """Write the file that records the ranks; return the variables that have Python run it."""
    searched = command.variables.get("PYTHONPATH")
    text = _SITE.format(
        folder=folder, searched=searched, ranks=command.names, source=recording.__file__
    )
    (Path(folder) / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": ":".join(filter(None, (folder, searched)))}


def _times(folder: Path) -> Iterator[RankTimes]:
    """Yield what the ranks of this host have recorded."""
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError):
            times = msgspec.json.decode(path.read_bytes(), type=RankTimes)
            if times.boot == recording.boot():
                yield times
