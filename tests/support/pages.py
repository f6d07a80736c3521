"""The examples of the documentation: their blocks, and a folder in which their commands run.

- A block ``console`` has commands after ``$``, and what they print. ``...`` stands for any text.
  Numbers, verdicts and stars may differ, as they are measured.
- A block ``python`` or ``toml`` whose first line is ``# NAME`` is the file NAME. Any other block
  ``python`` runs by itself, after those of its page.
- A comment ``<!-- not run: REASON -->`` before a block says why the tests do not run it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

from launcher import LIMIT, QUIRKS, ROOT, check_mark

DOCS = ROOT / "mpicoll" / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path != DOCS / "README.md")
LAUNCHERS = ("mpirun", "torchrun", "mpicoll.hosts", "mpicoll.study -o", "tune export")
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>.*?) -->\n)?^```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^```$",
    re.M | re.S,
)
_OUTPUT_OPTION = re.compile(
    r"(?:-J|-o|--output|--export \w+|MPICOLL_(?:TRACE|FLIGHT_DIR)=|>) ?(\S+)"
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,.]*(?:e[+-]?\d+)?(?![\w]*=)")
_SIGNED = re.compile(r"(?<!\S)[+-]N\b")
"""What a program has gained or lost."""
_COMPARED = re.compile(
    r"(?:ran N(?: \(N to N\))? times as fast|took N(?: \(N to N\))? times as long"
    r"|showed no sure difference, at N(?: \(N to N\))? times the speed)"
)
"""A ratio of `--compare`, by how sure it is; `_SLOWER`: the calls that lost, if there are any."""
_SLOWER = re.compile(r"\nSlower: [^\n]*")
_CALL = re.compile(r"^\w+ at(?= \S+\.py:N\b)", re.M)
"""A call of `--compare`; the order of the calls is that of their times."""
_VERDICTS = {"+", "-", "=", "?", "~", "★", "Nx"}
"""What a table has or leaves out by how sure a ratio is."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str
    reason: str
    """Why the block is not run; empty where it runs."""

    @property
    def file_name(self) -> str:
        """The name of the file that the block is, or an empty text."""
        match = re.match(r"# (\S+\.(?:py|toml))\n", self.text)
        return match[1] if match and self.language in ("python", "toml") else ""

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield the commands of a block ``console``, and what they print."""
        for part in re.split(r"^\$ ", self.text, flags=re.M)[1:]:
            command, _, output = part.replace("\\\n", "").partition("\n")
            yield command, output


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page."""
    return [
        Block(page, match["language"], match["text"], match["reason"] or "")
        for match in _BLOCK.finditer(page.read_text())
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
WRITERS = {
    name: command
    for block in reversed(BLOCKS) if block.language == "console" and not block.reason
    for command, _ in block.commands()
    for name in _OUTPUT_OPTION.findall(command)
}  # fmt: skip
"""The first command that writes each file, by the name of the file."""


def inputs(command: str) -> list[str]:
    """Return the files that a command reads and another command writes."""
    outputs = _OUTPUT_OPTION.findall(command)
    return [word for word in shlex.split(command) if word in WRITERS and word not in outputs]


def launches(command: str) -> bool:
    """Whether a command starts ranks, or reads a file whose command does."""
    starts_ranks = any(launcher in command for launcher in LAUNCHERS)
    return starts_ranks or any(launches(WRITERS[name]) for name in inputs(command))


class Folder:
    """A folder with the files of all pages, in which each command runs once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._outputs: dict[str, tuple[str, int]] = {}
        for block in BLOCKS:
            if block.file_name:
                (path / block.file_name).write_text(block.text)

    def run(self, command: str) -> tuple[str, int]:
        """Run a command, after those that write its files; return its output and exit status."""
        if command not in self._outputs:
            for name in inputs(command):
                self.run(WRITERS[name])
            self._outputs[command] = self._run(command)
        return self._outputs[command]

    def _run(self, command: str) -> tuple[str, int]:
        if launches(command):
            check_mark()
        scripts = str(Path(sys.executable).parent)
        environment = {
            **os.environ, **QUIRKS, "PATH": f"{scripts}:{os.environ['PATH']}",
            "HOME": str(self.path), "XDG_CACHE_HOME": str(self.path / "cache"),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        process = subprocess.Popen(
            ("bash", "-c", command), cwd=self.path, env=environment, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = f"{process.communicate()[0]}\nkilled after {LIMIT} s"
        return output, process.returncode


def may_fail(expected: str) -> bool:
    """Whether a page shows an error of a command."""
    return "Error: " in expected or "mpicoll.errors." in expected


def is_like(expected: str, output: str) -> bool:
    """Whether a command printed what a page shows, but for measured numbers and verdicts."""
    return OutputChecker().check_output(_words(expected), _words(output), ELLIPSIS)


def _words(text: str) -> str:
    text = re.sub("─+", "─", _NUMBER.sub("N", text))
    text = _SLOWER.sub("", _COMPARED.sub("is compared", text))
    text = _SIGNED.sub("N", _CALL.sub("CALL at", text))
    words = " ".join(word for word in text.split() if word not in _VERDICTS)
    return re.sub(r" ?\.\.\. ?", "...", words) + "\n"
