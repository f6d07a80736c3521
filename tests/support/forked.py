"""Ranks of torch as processes of their own, forked by a server that has imported torch.

Importing it takes more processor time than what most ranks of a test do. A process runs a script as
``python SCRIPT ARGUMENTS`` does, to the end of the interpreter.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from launcher import LIMIT, QUIRKS, ROOT, check_ending, check_mark


class Forked:
    """A process that runs; `output` is what it has printed once it has ended, errors too."""

    def __init__(self, pid: int, path: Path) -> None:
        self.pid, self.path = pid, path
        self.output, self.returncode = "", 0

    def wait(self, timeout: float = LIMIT) -> str:
        """Wait for its end, kill it after `timeout` seconds, and return what it has printed."""
        self.returncode = _Server.started().ask({"wait": self.pid}, timeout)
        self.output = self.path.read_text(errors="replace")
        self.path.unlink()
        check_ending(self.returncode, self.output)
        return self.output


def forked(
    script: Path | str, *arguments: str, environment: dict[str, str] | None = None
) -> Forked:
    """Start a script."""
    check_mark()
    number, path = tempfile.mkstemp(suffix=".out")
    os.close(number)
    variables = {**os.environ, **QUIRKS, **(environment or {})}
    command = {"argv": [str(script), *arguments], "output": path, "environment": variables}
    return Forked(_Server.started().ask(command), Path(path))


class _Server:
    """The process that forks, of this one and its tests alone."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], cwd=ROOT, env={**os.environ, **QUIRKS}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        atexit.register(self.end)

    @staticmethod
    @cache
    def started() -> _Server:
        return _Server()

    def ask(self, request: dict[str, Any], timeout: float = LIMIT) -> int:
        """Return the answer; a process that is waited for in vain is killed."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            os.kill(request["wait"], signal.SIGKILL)
        return int(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()


def serve() -> dict[str, Any] | None:
    """Fork a process for each script that a line of standard input asks for, or wait for one.

    Returns:
        in such a process its script; in this one None, at the end of standard input.
    """
    import torch.distributed  # noqa: F401

    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                return request
        print(answer, flush=True)
    return None


def become(argv: Sequence[str], output: str, environment: dict[str, str]) -> None:
    """Run a script in this process, as if it had been started so."""
    nothing, printed = os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY)
    for number, target in ((nothing, 0), (printed, 1), (printed, 2)):
        os.dup2(number, target)
    os.close(nothing)
    os.close(printed)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = argv
    sys.path[0] = str(Path(argv[0]).parent)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    asked = serve()
    if asked:
        become(**asked)
