"""The flags of the benchmark."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import click
import pytest

from mpicoll.bench.command import main, parse
from mpicoll.bench.session import Options
from mpicoll.errors import ArgumentError
from mpicoll.machine.variables import THREAD_LEVEL, THREAD_LEVELS
from mpicoll.measurement.worlds import ALL_BACKENDS
from mpicoll.p2p.command import main as pairs
from mpicoll.p2p.options import parse as parse_pairs
from mpicoll.tune.command import main as tune
from mpicoll.tune.command import parse as parse_tune


def flags(*arguments: str) -> Options:
    """Return the options that a command line means."""
    return parse(main.make_context("bench", list(arguments)).params, ALL_BACKENDS)


@pytest.mark.parametrize("name", ["bcast", "Broadcast", "BCAST", "broad_cast"])
@pytest.mark.parametrize("flag", ["--collectives", None])
def test_collectives_in_every_spelling(flag: str | None, name: str) -> None:
    assert flags(*filter(None, [flag, name])).wanted.collectives == ("broadcast",)


@pytest.mark.parametrize(
    "arguments",
    [["bcast,scatter"], ["bcast", "scatter"], ["--collectives", "bcast,scatter"],
     ["bcast", "--collectives", "scatter"], ["bcast, scatter"]],
)  # fmt: skip
def test_several_collectives_with_and_without_commas(arguments: list[str]) -> None:
    assert flags(*arguments).wanted.collectives == ("broadcast", "scatter")


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ("--sizes 4,1K", (4, 1024)),
        ("-b 1K -e 4K", (1024, 2048, 4096)),
        ("-b 4 -e 64 -f 4", (4, 16, 64)),
        ("-b 100 -e 300 -i 100", (100, 200, 300)),
        ("-b 8M", (8 << 20,)),
        ("-e 32", (32,)),
    ],
)
def test_size_flags(arguments: str, sizes: tuple[int, ...]) -> None:
    assert flags(*arguments.split()).wanted.sizes == sizes


@pytest.mark.parametrize(
    "arguments",
    [
        "--sizes 4 -b 4", "-i 4 -f 2", "--collectives allredcue", "bcast,allredcue",
        "--backends nccl5", "-o summ", "-d float31", "-d ", "-b ", "-e ", "-i ", "-J ", "--resume ",
        "-J a --resume b",
        "--transports carrier-pigeon",
    ],
)  # fmt: skip
def test_bad_flags_are_refused(arguments: str) -> None:
    with pytest.raises((ArgumentError, click.BadParameter)):
        flags(*arguments.split(" "))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a(x=8:2)", "'8:2' in 'a(x=8:2)' is empty"),
        ("a(x=2:b)", "'2:b' in 'a(x=2:b)' is no range"),
        ("a(x=2:)", "is no range"),
        ("a(x=1.5:2)", "is no range"),
        ("a(x=1:9:2)", "first:last:+step"),
        ("a(x=1:9:*1)", "does not grow"),
        ("a(x=0:9:*2)", "does not grow"),
        ("a(x=1:9:+0)", "does not grow"),
        ("a(x=1:257)", "stands for 257 algorithms: at most 256"),
        ("a(x=1:999999999999)", "stands for 999999999999 algorithms"),
        ("a(x=1:16,y=1:17)", "stands for 272 algorithms"),
    ],
)
def test_bad_sweeps_are_refused(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        flags("--algorithms", f"ring,{text}")


LISTS = {
    main: ("--collectives", "--backends", "--algorithms", "--transports", "--sizes", "-o", "-d",
           "-r", ""),
    pairs: ("--backends", "--transports", "--sizes"),
    tune: ("--backends", "--algorithms", "--sizes", ""),
}  # fmt: skip


@pytest.mark.parametrize("text", ["", ",", " , "])
@pytest.mark.parametrize(
    ("command", "flag"), [(command, flag) for command in LISTS for flag in LISTS[command]]
)
def test_an_empty_list_is_not_its_default(command: click.Command, flag: str, text: str) -> None:
    with pytest.raises(click.BadParameter, match="names nothing: leave it out") as caught:
        command.make_context("any", [flag, text] if flag else [text])
    assert flag in caught.value.format_message() and caught.value.exit_code == 2


@pytest.mark.parametrize("level", THREAD_LEVELS)
@pytest.mark.parametrize("command", [main, tune, pairs])
def test_threads_asks_mpi4py_for_a_level(
    command: click.Command, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(THREAD_LEVEL, "")
    command.make_context("command", ["--threads", level])
    assert os.environ[THREAD_LEVEL] == level


@pytest.mark.parametrize("arguments", ["--threads two", "--threads ''"])
def test_a_wrong_thread_level_is_refused_with_the_right_ones(arguments: str) -> None:
    with pytest.raises(click.BadParameter, match="'single', 'funneled', 'serialized', 'multiple'"):
        flags(*arguments.split())


@pytest.mark.parametrize(
    ("command", "checked"), [(main, parse), (tune, parse_tune), (pairs, parse_pairs)]
)
def test_threads_needs_mpi(
    command: click.Command, checked: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(THREAD_LEVEL, "")
    arguments = ["--threads", "single", "--backends", "torch"]
    with pytest.raises(ArgumentError, match="--threads is MPI's"):
        checked(command.make_context("command", arguments).params, ALL_BACKENDS)
