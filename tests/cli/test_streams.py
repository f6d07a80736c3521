"""Standard streams that are closed, full, or without a reader."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launcher import LIMIT, ROOT

PRINTING = {
    "rich": "from rich.console import Console; Console().print('text ' * 99)",
    "click": "click.echo('text ' * 9999)",
    "print": "print('text ' * 9999)",
    "flushed": "print('text', flush=True)",
}
COMMAND = """
{opening}
import sys, click
from mpicoll.cli.command import Command
@click.command(cls=Command)
def main():
    print("a remark", file=sys.stderr, flush=True)
    {body}
main()
"""


def run(
    body: str, prepare: Callable[[], Any] = lambda: None, opening: str = "", **streams: Any
) -> Any:
    """Run a command of this body; `prepare` runs in the process before it, `opening` in Python."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.run(
        [sys.executable, "-c", COMMAND.format(body=body, opening=opening)], cwd=ROOT, text=True,
        timeout=LIMIT, check=False, preexec_fn=prepare, **pipes,
    )  # fmt: skip


def without_reader() -> None:
    read, write = os.pipe()
    os.dup2(write, 1)
    os.close(read)


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", [without_reader, lambda: os.close(1)], ids=["head", "closed"])
@pytest.mark.parametrize("printing", PRINTING)
def test_a_closed_output_ends_it_quietly(printing: str, how: Callable[[], None]) -> None:
    process = run(PRINTING[printing], how)
    assert (process.returncode, process.stderr) == (141, "a remark\n")


@pytest.mark.parametrize("printing", PRINTING)
def test_a_file_in_the_place_of_a_closed_output_stays(printing: str, tmp_path: Path) -> None:
    """As a library opens one while it is imported."""
    path = tmp_path / "file"
    opening = f"import os; assert os.open({str(path)!r}, os.O_RDWR | os.O_CREAT) == 1"
    process = run(PRINTING[printing], lambda: os.close(1), opening)
    assert (process.returncode, process.stderr) == (141, "a remark\n")
    assert path.read_bytes() == b""


@pytest.mark.parametrize("printing", PRINTING)
def test_a_full_output_is_an_error(printing: str) -> None:
    with open("/dev/full", "w") as full:
        process = run(PRINTING[printing], stdout=full)
    assert process.returncode == 2
    assert (
        process.stderr == "a remark\nError: cannot write standard output: No space left on device\n"
    )


WRITING = """
from pathlib import Path
import click
from mpicoll.cli.command import Command
from mpicoll.cli.options import OUTPUT_FILE, OUTPUT_FOLDER
@click.command(cls=Command)
@click.option("-o", "output", type=OUTPUT_FILE)
@click.option("--in", "folder", type=OUTPUT_FOLDER)
@click.option("--export", "pair", type=(str, OUTPUT_FILE), multiple=True)
def main(output, folder, pair):
    {printing}
    for path in (output, folder and folder / "a", *(path for _, path in pair)):
        if path is not None:
            path.write_text("whole")
    print("done")
main()
"""
FLAGS = ["-o a", "--in .", "--export kind a"]


@pytest.mark.parametrize("how", ["head", "closed", "full"])
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("printing", PRINTING)
def test_a_file_is_written_whoever_reads_the_output(
    printing: str, flags: str, how: str, tmp_path: Path
) -> None:
    prepare = {"head": without_reader, "closed": lambda: os.close(1), "full": lambda: None}[how]
    code = WRITING.format(printing=PRINTING[printing])
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-c", code, *flags.split()], cwd=tmp_path, timeout=LIMIT, text=True,
            preexec_fn=prepare, stdout=full, stderr=subprocess.PIPE, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    text = "Error: cannot write standard output: No space left on device\n"
    expected = (2, text) if how == "full" else (141, "")
    assert (process.returncode, process.stderr) == expected
    assert (tmp_path / "a").read_text() == "whole"


@pytest.mark.parametrize("how", ["closed", "full"])
def test_nobody_needs_the_remarks(how: str) -> None:
    with open("/dev/full", "w") as full:
        prepare = {"closed": lambda: os.close(2), "full": lambda: os.dup2(full.fileno(), 2)}[how]
        process = run("print('text')", prepare, pass_fds=[full.fileno()])
    assert (process.returncode, process.stdout, process.stderr) == (0, "text\n", "")


def test_no_file_is_opened_in_the_place_of_a_closed_stream() -> None:
    """Libraries print on descriptor 2, whatever file that is."""

    def close() -> None:
        for descriptor in (0, 1, 2):
            os.close(descriptor)

    read, write = os.pipe()
    body = f"import os; os.write({write}, b'%d' % os.open('/', os.O_RDONLY))"
    run(body, close, pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as reader:
        assert int(reader.read()) > 2


def test_every_letter_can_be_printed() -> None:
    process = run("print('★')", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (process.returncode, process.stdout) == (0, "\\u2605\n")
