"""The command ``mpicoll.tune export``: a table for a library, from the records of a study."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shutil import which
from typing import NamedTuple

import click

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE
from mpicoll.errors import ArgumentError
from mpicoll.records.reading import load
from mpicoll.text.files import writable, write_whole
from mpicoll.text.printable import printable
from mpicoll.tune.exports import mpich, openmpi, settings
from mpicoll.tune.exports.choices import Choice, Takes, choices


class _Target(NamedTuple):
    """A library: how its description begins, which algorithms its table can name, the table.

    Attributes:
        beside: further tables, by what their names end in.
        says_own: the table can leave a range of sizes to the library's own choice.
        called: the library in messages, where its description does not name it.
    """

    library: str
    takes: Takes
    written: Callable[[Sequence[Choice], Path, Path | None], str]
    beside: Callable[[Sequence[Choice], Path | None], dict[str, str]] = lambda *_: {}
    says_own: bool = True
    called: str = ""


def _layers(found: Sequence[Choice], library: Path | None) -> dict[str, str]:
    """Return the trees of MPICH's device that have to change."""
    return mpich.layers(found, mpich.built_in_layers(library or _library()))


def _mpich(found: Sequence[Choice], path: Path, library: Path | None) -> str:
    """Return the tree of `library`, else of the MPICH of `mpirun`, with the choices."""
    return mpich.tree(found, mpich.built_in(library or _library()))


def _library() -> Path:
    """Return the libmpi.so of mpirun; it may be a few bytes that name another one."""
    launcher = which("mpirun")
    folder = Path(launcher).absolute().parent.parent / "lib" if launcher else Path()
    files = [*folder.glob("libmpi.so*")]
    if not files:
        raise ArgumentError("no libmpi.so is beside mpirun: give MPICH's by --library")
    return max(files, key=lambda each: each.stat().st_size)


def _han(found: Sequence[Choice], library: Path | None) -> dict[str, str]:
    """Return the rules of Open MPI's coll_han, where some are for several nodes."""
    text = openmpi.han_rules(found)
    return {openmpi.HAN_RULES: text} if text else {}


def _openmpi(found: Sequence[Choice], path: Path, library: Path | None) -> str:
    """Return JSON for a file that ends so, else the older format."""
    return (openmpi.json_rules if path.suffix == ".json" else openmpi.rules)(found)


_TARGETS = {
    "mpich": _Target(mpich.LIBRARY, mpich.takes, _mpich, _layers),
    "openmpi": _Target(openmpi.LIBRARY, openmpi.takes, _openmpi, _han),
    "intel": _Target(
        settings.INTEL, settings.intel_takes, lambda found, *_: settings.intel(found),
        says_own=False,
    ),
    "ucc": _Target("", settings.ucc_takes, lambda found, *_: settings.ucc(found), called="UCC"),
    "nccl": _Target("", settings.nccl_takes, lambda found, *_: settings.nccl(found), called="NCCL"),
}  # fmt: skip


@click.command("export", cls=Command)
@click.argument("files", metavar="RECORDS...", nargs=-1, required=True, type=FILE)
@click.option("--to", "target", type=click.Choice([*_TARGETS]), required=True)
@click.option("-o", "--output", type=FILE, required=True, help="The table.")
@click.option("--environment", help="Of the study, where several have this library.")
@click.option("--library", type=FILE, help="MPICH's libmpi.so (default: that of mpirun).")
def main(
    files: Sequence[Path], target: str, output: Path, environment: str | None, library: Path | None
) -> None:
    """Write which of its own algorithms a library should run, from the records of a study.

    \b
    python -m mpicoll.tune export --to mpich DIR/launches/*.jsonl -o mpich.json
    python -m mpicoll.tune export --to openmpi DIR/launches/*.jsonl -o openmpi.rules

    RECORDS are those of launches that forced the library's algorithms. Printed is what to set so
    that the library reads the table. Exit status: 0, or 2 for bad usage or records without an
    answer.
    """  # noqa: D301
    try:
        writable(output)
        records = [each for path in files for each in load(path)]
        to = _TARGETS[target]
        found = choices(
            records, to.library, to.takes, environment, says_own=to.says_own, called=to.called
        )
        if not found:
            click.echo(f"{target}: no algorithm is surely faster than its own choice")
            return
        texts = {"": to.written(found, output, library), **to.beside(found, library)}
        paths = {end: output.with_suffix(end) if end else output for end in texts}
        for path in paths.values():
            writable(path)
    except ArgumentError as error:
        raise click.UsageError(str(error)) from error
    for end, text in texts.items():
        write_whole(paths[end], partial(Path.write_text, data=text, encoding="utf-8"))
    for each in found:
        click.echo(printable(_line(each)))
    click.echo(printable(_advice(target, found, paths)))


def _line(choice: Choice) -> str:
    """Return the ranges of a choice in words."""
    parts = [
        f"{each.algorithm or 'its own choice'}{'' if each.upto is None else f' to {each.upto} B'}"
        for each in choice.ranges
    ]
    return f"{choice.collective}, {choice.ranks} ranks: {', '.join(parts)}"


def _advice(target: str, found: Sequence[Choice], paths: Mapping[str, Path]) -> str:
    """Return how the library is told of the tables."""
    path = paths[""]
    if target in ("intel", "ucc"):
        return f". {shlex.quote(str(path))}"
    if target == "nccl":
        return f"export NCCL_TUNER_CONFIG_FILE={shlex.quote(str(path.resolve()))}"
    is_mpich = target == "mpich"
    given = mpich.variables(found, paths) if is_mpich else openmpi.variables(paths)
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in given.items())
