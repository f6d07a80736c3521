"""Every number that a command takes is bounded, and refused in one line where it is none."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mpicoll.cli.command import Command
from mpicoll.cli.options import Parsed, Real, Whole
from mpicoll.measurement.worlds import ALL_BACKENDS, TORCH_BACKEND, Worlds

ROOT = Path(__file__).parents[2]
TEXT = {
    "--algorithm", "--algorithms", "--backend", "--backends", "--collective", "--collectives",
    "--datatype", "--environment", "--interface", "--job", "--op", "--output", "--transports",
}  # fmt: skip
"""Options that take names."""
ABOVE_ZERO = {"--dims", "--rate", "--size", "--sweep"}
"""Options with a form of their own that 0 has no meaning for."""
NO_NUMBERS = ["nan", "-1", "inf", "-inf", "1e308", "1" + "0" * 5000, "²", "", "1e"]
"""Every type of option refuses these; every option, the first two."""


def commands() -> dict[str, click.Command]:
    """Return the commands of both packages, by the module that defines them."""
    by_module: dict[str, click.Command] = {}
    for path in sorted(ROOT.glob("mpicoll/**/*.py")) + sorted(ROOT.glob("torchcoll/**/*.py")):
        if "@click.command(" not in path.read_text() or path.name == "__init__.py":
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for member in vars(importlib.import_module(name)).values():
            if isinstance(member, click.Command):
                by_module[name] = member
    return by_module


COMMANDS = commands()
OPTIONS = [
    pytest.param(command, parameter, id=f"{name}-{parameter.opts[-1]}")
    for name, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter, click.Option)
]


def bounded() -> Iterator[Any]:
    """Yield each command with an option that takes numbers, and with values that it must refuse."""
    kinds: set[object] = set()
    for name, command in COMMANDS.items():
        for option in command.params:
            if isinstance(option.type, Whole | Real | Parsed):
                kind = getattr(option.type, "parse", type(option.type))
                values = NO_NUMBERS[:2] if kind in kinds else NO_NUMBERS
                kinds.add(kind)
                for value in [*values, *(["0"] if _is_above_zero(option) else [])]:
                    yield pytest.param(
                        command, option.opts[0], value, id=f"{name}-{option.opts[-1]}-{value[:9]}"
                    )


def _is_above_zero(option: click.Parameter) -> bool:
    if isinstance(option.type, Whole | Real):
        minimum = option.type.min
        return minimum is not None and (minimum > 0 or option.type.min_open)
    return option.opts[-1] in ABOVE_ZERO


def test_the_commands_are_found() -> None:
    assert len(COMMANDS) > 12 and len([*bounded()]) > 200


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_of_the_class(name: str) -> None:
    assert isinstance(COMMANDS[name], Command)


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_an_option_is_bounded_or_takes_no_number(
    command: click.Command, option: click.Option
) -> None:
    kinds = (Whole, Real, Parsed, click.Choice, click.Path)
    parts = option.type.types if isinstance(option.type, click.Tuple) else [option.type]
    assert (
        option.is_flag or all(isinstance(part, kinds) for part in parts) or TEXT & {*option.opts}
    ), f"give {option.opts} of {command.name} a type of mpicoll.cli.options"  # fmt: skip


@pytest.fixture
def refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Return a function that runs a command and returns why it refuses."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def run(command: click.Command, *arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            command.main(list(arguments), prog_name="command", obj=ALL_BACKENDS)
        assert ended.value.code == 2
        lines = capsys.readouterr().err.strip().splitlines()
        (message,) = [line for line in lines if line.startswith("Error: ")]
        assert message == lines[-1] and len(message) < 300
        return message

    return run


@pytest.mark.parametrize(("command", "option", "value"), [*bounded()])
def test_a_bad_number_is_refused(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch,
    command: click.Command, option: str, value: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(command, "callback", lambda *_, **__: pytest.fail("it was taken"))
    message = refused(command, option, value)
    assert f"'{option}'" in message and value[:8] in message


def named(name: str) -> click.Command:
    """Return a command by the folder, or the folder and file, that defines it."""
    (match,) = (
        command for module, command in COMMANDS.items() if module.startswith(f"mpicoll.{name}")
    )
    return match


NESTED = "two_level(local=" * 200 + "ring" + ")" * 200


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("bench.command", "-e 1024G -i 1", "make 1099511627713 sizes"),
        ("bench.command", "-b 1 -e 1024G -f 1.0000001", "not a number from 1.01"),
        ("bench.command", "-b 1 -e 1024G -i 128M", "make 8192 sizes"),
        ("bench.command", "--sizes " + ",".join(map(str, range(5000))), "5000 sizes"),
        ("bench.command", "--sizes 1073741825G", "too large: at most 2^60 bytes"),
        ("bench.command", f"--algorithms chain(segments=1:{10**17})", "stands for 1000000"),
        ("bench.command", f"--algorithms chain(segments=1:1{4500 * '0'})", "may have 1000"),
        ("bench.command", f"--algorithms chain(segments=1:{10**900})", "no range"),
        ("bench.command", f"--algorithms {NESTED}", "is no name of an algorithm"),
        ("tune.command", f"--algorithms {NESTED}", "is no name of an algorithm"),
        ("tune.command", "--algorithms " + "a(b=" * 9 + "c" + ")" * 9, "nested too deeply"),
        ("costs", f"broadcast --ranks 8 --algorithms chain(segments=1:{10**17})", "stands for 1"),
        ("costs", "broadcast --ranks 8 --bytes " + "8," * 5000, "5000 sizes"),
        ("explain.proofs", "--size 1000000000", "no list of sizes up to 4096"),
        ("explain.proofs", "--size 1:1000000000", "no list of sizes up to 4096"),
        ("explain.proofs", "--size 1:1024,1:1024,1:1024,1:1024,1", "has 4097 sizes"),
        ("explain.__main__", "allreduce ring --ranks 1000000", "from 1 to 4,096"),
    ],
)
def test_a_huge_sweep_is_refused(
    refused: Callable[..., str], name: str, arguments: str, reason: str
) -> None:
    assert reason in refused(named(name), *arguments.split())


@pytest.mark.parametrize(("makers", "is_shown"), [(ALL_BACKENDS, True), (TORCH_BACKEND, False)])
@pytest.mark.parametrize("name", ["bench", "p2p", "tune"])
def test_help_has_the_options_of_mpi_only_with_mpi(
    name: str, makers: Worlds, is_shown: bool
) -> None:
    command = COMMANDS[f"mpicoll.{name}.command"]
    text = CliRunner().invoke(command, ["--help"], obj=makers, standalone_mode=False).output
    assert {"--backends" in text, "--threads" in text} == {is_shown}
