"""The command ``mpicoll.tune export``: a table for a library, from the records of a study."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from shutil import which
from typing import NamedTuple

import click
from click.core import ParameterSource

from mpicoll.cli.command import LauncherCommand
from mpicoll.cli.options import (
    FILE,
    OUTPUT_FILE,
    RANKS,
    SIZES,
    Whole,
    collective_names,
    list_option,
    option,
)
from mpicoll.errors import ArgumentError
from mpicoll.records.lines import Record
from mpicoll.records.reading import load
from mpicoll.study.description import MOST_LAUNCHES
from mpicoll.text.files import writable, write_whole
from mpicoll.text.numbers import count_text
from mpicoll.text.printable import printable
from mpicoll.tune.exports import mpich, openmpi, settings
from mpicoll.tune.exports.choices import (
    MIN_LAUNCHES,
    Choice,
    Takes,
    UndecidedCase,
    choices,
    find_undecided,
    measurements,
)
from mpicoll.tune.exports.measuring import (
    LAUNCHES,
    TableRequest,
    folder_of,
    measure,
    more_launches,
    study_of,
)
from mpicoll.tune.exports.measuring import SIZES as SIZES_OF_TABLE


class _Target(NamedTuple):
    """A library that reads a table.

    Attributes:
        library: the prefix of its description in records.
        takes: decides whether the table can name an algorithm.
        written: returns the text of the table.
        more_tables: returns the texts of further tables, by the suffix of their files.
        says_own: the table can leave a range of sizes to the library's own choice.
        called: the name in messages, if the description does not contain it.
        vendor: the name that mpi4py uses; "": this command cannot run a study of it.
    """

    library: str
    takes: Takes
    written: Callable[[Sequence[Choice], Path, Path | None], str]
    more_tables: Callable[[Sequence[Choice], Path | None], dict[str, str]] = lambda *_: {}
    says_own: bool = True
    called: str = ""
    vendor: str = ""


def _layers(decisions: Sequence[Choice], library: Path | None) -> dict[str, str]:
    """Return the changed trees of MPICH's device."""
    return mpich.layers(decisions, mpich.built_in_layers(library or _library()))


def _mpich(decisions: Sequence[Choice], path: Path, library: Path | None) -> str:
    """Return the tree of `library`, or of the MPICH of `mpirun`, with the choices."""
    return mpich.tree(decisions, mpich.built_in(library or _library()))


def _library(name: str = "mpirun") -> Path:
    """Return the largest libmpi.so beside a launcher: a smaller one only refers to another file."""
    launcher = which(name)
    folder = Path(launcher).absolute().parent.parent / "lib" if launcher else Path()
    files = [*folder.glob("libmpi.so*")]
    if not files:
        raise ArgumentError("there is no libmpi.so beside mpirun: give MPICH's by --library")
    return max(files, key=lambda file: file.stat().st_size)


def _han(decisions: Sequence[Choice], library: Path | None) -> dict[str, str]:
    """Return the rules of Open MPI's coll_han, empty without choices for several nodes."""
    text = openmpi.han_rules(decisions)
    return {openmpi.HAN_RULES: text} if text else {}


def _openmpi(decisions: Sequence[Choice], path: Path, library: Path | None) -> str:
    """Return JSON for a file with this suffix, else the older format."""
    return (openmpi.json_rules if path.suffix == ".json" else openmpi.rules)(decisions)


_TARGETS = {
    "mpich": _Target(mpich.LIBRARY, mpich.takes, _mpich, _layers, vendor="MPICH"),
    "openmpi": _Target(openmpi.LIBRARY, openmpi.takes, _openmpi, _han, vendor="Open MPI"),
    "intel": _Target(
        settings.INTEL, settings.intel_takes, lambda decisions, *_: settings.intel(decisions),
        says_own=False, vendor="Intel MPI",
    ),
    "ucc": _Target(
        "", settings.ucc_takes, lambda decisions, *_: settings.ucc(decisions), called="UCC"
    ),
    "nccl": _Target(
        "", settings.nccl_takes, lambda decisions, *_: settings.nccl(decisions), called="NCCL"
    ),
}  # fmt: skip


@click.command("export", cls=LauncherCommand)
@click.argument("files", metavar="[RECORDS...]", nargs=-1, type=FILE)
@click.option("--to", "target", type=click.Choice([*_TARGETS]), required=True)
@click.option("-o", "--output", type=OUTPUT_FILE, required=True, help="The table.")
@option("--ranks", type=RANKS, metavar="N", help="Ranks of a launch (default: one for each core).")
@option("--launches", type=Whole(MIN_LAUNCHES, MOST_LAUNCHES), metavar="N", default=LAUNCHES,
        shown=True, help="Launches of each algorithm.")  # fmt: skip
@list_option("--collectives", metavar="A,B", help="Default: all that the table can name.")
@option("--sizes", type=SIZES, metavar="4,1K,1M", help="Total bytes (default 64 to 1M).")
@click.option("--environment", help="Of the study, if several have this library.")
@click.option("--library", type=FILE, help="MPICH's libmpi.so (default: that of mpirun).")
@click.pass_context
def main(
    context: click.Context, files: Sequence[Path], target: str, output: Path, ranks: int | None,
    launches: int, collectives: str | None, sizes: Sequence[int] | None, environment: str | None,
    library: Path | None,
) -> None:  # fmt: skip
    """Write a table with the fastest of a library's own algorithms, measured here or from records.

    \b
    python -m mpicoll.tune export --to openmpi -o openmpi.rules
    python -m mpicoll.tune export --to mpich -o mpich.json
    python -m mpicoll.tune export --to mpich DIR/launches/*.jsonl -o mpich.json

    Without RECORDS the command runs a study of the library's algorithms in FILE.study: a few
    minutes, for mpich, openmpi and intel. The same command continues it. RECORDS come from a study
    whose launches forced the library's algorithms. The command prints the variables that make the
    library read the table.

    Exit status: 0: the table is written; 2: it is not, because of bad usage, or because no
    algorithm is significantly faster than the library's own choice.
    """  # noqa: D301
    to = _TARGETS[target]
    writable(output)
    if files:
        _refuse_options(context)
        records = [record for path in files for record in load(path)]
    else:
        names = collective_names(collectives or "")
        wanted = TableRequest(ranks, launches, names, sizes or SIZES_OF_TABLE)
        records, launcher = _measure(target, wanted, folder_of(output))
        if target == "mpich":
            library = library or _library(launcher)
    times = measurements(records, to.library, to.takes, environment, to.called)
    table_choices, open_cases = choices(times, says_own=to.says_own), find_undecided(times)
    advice = _more(context, files, records, open_cases)
    if not table_choices:
        raise ArgumentError(f"{target}: {_NONE_FASTER}, so no table is written{advice}")
    _write(to, target, table_choices, output, library)
    if open_cases:
        click.echo(printable(f"# {count_text(len(open_cases), 'case')} undecided{advice}"))


_NONE_FASTER = "no algorithm is surely faster than its own choice"
_OF_STUDY = ("ranks", "launches", "collectives", "sizes")
"""The flags of the study that the command runs."""
_MOST_CASES = 5


def _refuse_options(context: click.Context) -> None:
    """Raise if records are given together with a flag of the study."""
    for name in _OF_STUDY:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is of the study that is made without RECORDS")


def _measure(target: str, wanted: TableRequest, folder: Path) -> tuple[list[Record], str]:
    to = _TARGETS[target]
    if not to.vendor:
        raise click.UsageError(f"--to {target} takes RECORDS: no study is made of it")
    return measure(to.vendor, to.takes, wanted, folder)


def _more(
    context: click.Context, files: Sequence[Path], records: Sequence[Record],
    cases: Sequence[UndecidedCase],
) -> str:  # fmt: skip
    """Return the cases that more launches may decide, and the command that makes these."""
    if not cases:
        return ""
    names = "; ".join(map(str, cases[:_MOST_CASES]))
    remainder = f"; and {len(cases) - _MOST_CASES} more" if len(cases) > _MOST_CASES else ""
    launches, minutes = more_launches(records, cases)
    return (
        f": {names}{remainder}. {launches} launches of each may tell: "
        f"{_command(context, files, launches, minutes)}"
    )


def _command(context: click.Context, files: Sequence[Path], launches: int, minutes: float) -> str:
    """Return the command that runs this number of launches of each algorithm."""
    if not files:
        return _repeat_command(context, launches)
    study = study_of(files)
    if study is None:
        return f"set launches = {launches} in the study.toml of these records, and run it again"
    folder, description = study
    words = ["python", "-m", "mpicoll.study", "-o", str(folder), "--launches", str(launches)]
    if description.minutes is not None:
        words += ["--minutes", str(ceil(max(minutes, description.minutes)) + 1)]
    return shlex.join(words)


def _repeat_command(context: click.Context, launches: int) -> str:
    """Return this command with another number of launches."""
    words = ["python", "-m", "mpicoll.tune", "export"]
    values = context.params | {"launches": launches}
    flags = {"to": values["target"], **{name: values[name] for name in ("output", *_OF_STUDY)}}
    for name, value in flags.items():
        if value is not None:
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            words += [f"--{name}", text]
    return shlex.join(words)


def _write(
    to: _Target, target: str, decisions: Sequence[Choice], output: Path, library: Path | None
) -> None:
    """Write the tables of a library; print their choices, and the variables to set."""
    texts = {"": to.written(decisions, output, library), **to.more_tables(decisions, library)}
    paths = {end: output.with_suffix(end) if end else output for end in texts}
    for path in paths.values():
        writable(path)
    for end, text in texts.items():
        write_whole(paths[end], partial(Path.write_text, data=text, encoding="utf-8"))
    for choice in decisions:
        click.echo(printable(_line(choice)))
    click.echo(printable(_advice(target, decisions, paths)))


def _line(choice: Choice) -> str:
    """Return the ranges of a choice in words."""
    parts = [
        f"{part.algorithm or 'its own choice'}{'' if part.upto is None else f' to {part.upto} B'}"
        for part in choice.ranges
    ]
    return f"{choice.collective}, {choice.ranks} ranks: {', '.join(parts)}"


def _advice(target: str, decisions: Sequence[Choice], paths: Mapping[str, Path]) -> str:
    """Return the shell command that makes the library read the tables."""
    path = paths[""]
    if target in ("intel", "ucc"):
        return f". {shlex.quote(str(path))}"
    if target == "nccl":
        return f"export NCCL_TUNER_CONFIG_FILE={shlex.quote(str(path.resolve()))}"
    is_mpich = target == "mpich"
    variables = mpich.variables(decisions, paths) if is_mpich else openmpi.variables(paths)
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
