"""What the simulator derives, which schedules it refuses, and its command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from catalogue import CATALOGUE
from click.testing import CliRunner
from launcher import python

from mpicoll import simulator
from mpicoll.algorithms.registry import find
from mpicoll.errors import ArgumentError, Deadlock, Unsupported, WrongContents
from mpicoll.explain.proofs import main, rows
from mpicoll.notation.contract import collective
from mpicoll.notation.schedule import Temp, copy, fold, recv, reduce, send
from mpicoll.simulator import MOST_RANKS, contiguous, prove, simulate


def test_uneven_volume_is_counted_in_elements() -> None:
    trace = prove(find("gather", "naive"), 3, sizes={0: 4, 1: 3, 2: 1})
    assert trace.sent == 3 / 8


# -- derived figures --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "name", "ports"),
    [
        ("allreduce", "ring", 1),
        ("allreduce", "one_shot", 7),
        ("broadcast", "knomial(radix=4)", 3),
        ("alltoall", "bruck(radix=4)", 3),
        ("reduce", "in_order_binary", 2),
    ],
)
def test_ports(of: str, name: str, ports: int) -> None:
    assert prove(find(of, name), 8).ports == ports


def test_messages_are_logged_with_their_round() -> None:
    trace = prove(find("broadcast", "binomial"), 4)
    assert trace.messages == 3
    assert sorted(trace.log) == [(1, 0, 2, (0,)), (2, 0, 1, (0,)), (2, 2, 3, (0,))]


# -- wrong schedules --------------------------------------------------------------------


def run(of: str, *schedules, blocks: int = 1, sizes=None):
    return simulate(
        [list(schedule) for schedule in schedules], collective(of), len(schedules), 0, blocks, sizes
    )


def test_everyone_receiving_first_is_a_deadlock() -> None:
    with pytest.raises(Deadlock, match=r"rank 0 in round 0 waits for rank 1, which is in round 0"):
        run("allreduce", [(recv(1, 0),), (send(1, 0),)], [(recv(0, 0),), (send(0, 0),)])


def test_sending_first_would_need_a_buffer() -> None:
    with pytest.raises(Deadlock):
        run("barrier", [(send(1),), (recv(1),)], [(send(0),), (recv(0),)])


def test_a_message_that_nobody_receives_is_a_deadlock() -> None:
    with pytest.raises(Deadlock, match="waits for rank 1, which has finished"):
        run("broadcast", [(send(1, 0),), (send(1, 0),)], [(recv(0, 0),)])


SWAP = (send(1, 0), reduce(1, 0, side="right")), (send(0, 0), reduce(0, 0))


TURN = [[(send((rank + 1) % 3), recv((rank - 1) % 3))] for rank in range(3)]


@pytest.mark.parametrize(
    ("of", "schedules", "reason"),
    [
        ("allreduce", ([SWAP[0]], [(send(0, 0), recv(0, 0))]), "rank 1 ends with"),
        ("allreduce", ([SWAP[0]] * 2, [SWAP[1]] * 2), "twice"),
        ("allreduce", ([(send(1, 0, 0), SWAP[0][1])], [SWAP[1]]), "sends blocks 0, 0 where"),
        ("allreduce", ([(send(1, 5), SWAP[0][1])], [SWAP[1]]), "uses 5, not held"),
        ("allreduce", ([(send(0, 0),)], []), "no peer"),
        ("allreduce", ([(send(2, 0),)], []), "no peer"),
        ("allreduce", ([(recv(-1, 0),)], []), "no peer"),
        ("allreduce", ([(fold(Temp("a", 0), 0),)], []), "not held"),
        ("allreduce", ([(copy(0, Temp("a", 0)),)], []), "not held"),
        ("allreduce", ([(fold(0, 0),)], []), "twice"),
        ("broadcast", ([(send(1, 0), send(1, 0))], [(recv(0, 0), recv(0, 0))]), "receives 0 twice"),
        ("broadcast", ([], []), "rank 1 ends with nothing"),
        ("barrier", ([(send(1),)], [(recv(0),)]), r"rank 0 leaves without word from ranks \[1\]"),
        # What a rank hears in a round, it cannot pass on in the same one.
        ("barrier", TURN, r"rank 0 leaves without word from ranks \[1\]"),
    ],
)
def test_wrong_schedules_are_refused(of: str, schedules, reason: str) -> None:
    with pytest.raises(WrongContents, match=reason):
        run(of, *schedules)


def test_blocks_of_different_sizes_do_not_match() -> None:
    with pytest.raises(WrongContents, match="sends blocks 0 where"):
        run(
            "broadcast", [(send(1, 0),)], [(recv(0, 1),)], blocks=2, sizes={0: 1, 1: 2}
        )  # fmt: skip


def test_losing_rank_order_is_found_and_no_error() -> None:
    wrong_side = (send(0, 0), reduce(0, 0, side="right"))
    assert run("allreduce", [SWAP[0]], [SWAP[1]]).ordered
    assert not run("allreduce", [SWAP[0]], [wrong_side]).ordered


def test_unsynchronised_rounds_overlap() -> None:
    """A rank that waits for nobody runs ahead: the chain costs p-2+n rounds, not n(p-1)."""
    assert prove(find("broadcast", "chain(segments=20)"), 5).rounds == 23


def test_local_rounds_cost_nothing() -> None:
    local = (copy(Temp("a", 0), 0),)
    assert run("allreduce", [local, SWAP[0]], [SWAP[1]]).rounds == 1


@pytest.mark.parametrize(("size", "count"), [(3, 0), (3, 4)])
def test_nodes_are_between_one_and_all_ranks(size: int, count: int) -> None:
    with pytest.raises(ArgumentError):
        contiguous(size, count)


def test_proving_needs_no_backend_and_no_library_of_commands() -> None:
    code = (
        "import sys, mpicoll.simulator;"
        "print({'mpi4py', 'torch', 'cupy', 'scipy', 'msgspec', 'jinja2', 'rich', 'click'}"
        " & {*sys.modules})"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout == "set()\n"


# -- command line -----------------------------------------------------------------------

KEYS = [
    "collective", "algorithm", "serves", "size", "rounds", "sent", "reduced", "messages", "ports",
    "ordered",
]  # fmt: skip


def command(line: str):
    return CliRunner().invoke(main, line.split())


def test_json_lines_have_exactly_these_keys() -> None:
    result = command("--size 7 --format jsonl")
    records = [json.loads(line) for line in result.output.splitlines()]
    assert result.exit_code == 0
    assert [list(record) for record in records] == [KEYS] * len(CATALOGUE)


def test_json_lines_carry_the_figures() -> None:
    values = ["allreduce", "ring", "any number of ranks", 8, 14, 1.75, 0.875, 112, 1, False]
    assert json.loads(
        command("--size 8 --collective all_reduce --algorithm ring --format jsonl").output
    ) == dict(zip(KEYS, values, strict=True))


def test_the_table_names_every_algorithm_and_every_refusal() -> None:
    output = command("--size 7").output
    assert [str(algorithm) for algorithm in CATALOGUE if str(algorithm) not in output] == []
    assert "refused: allgather algorithm neighbor_exchange needs an even number" in output


def test_one_table_for_each_size() -> None:
    output = command("--size 4,6:7 --collective allgather").output
    assert [f"{size} ranks;" in output for size in (4, 5, 6, 7)] == [True, False, True, True]
    assert output.count("refused: allgather algorithm swing needs an even number") == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--size 4 --collective nothing", "unknown collective"),
        ("--size 4 --collective allreduce --algorithm rign", "did you mean 'ring'"),
        ("--size 4 --algorithm ring", "needs --collective"),
        ("--size 4 --root 4", "root 4"),
        ("--size 4 --nodes 5", "5 nodes"),
        ("--size 0", "no sizes of one rank and more"),
        ("--size 4,x", "no list of sizes"),
        ("--size 9:4", "no sizes"),
    ],
)
def test_wrong_options_say_what_would_do(words: str, reason: str) -> None:
    result = command(words)
    assert result.exit_code != 0
    assert reason in result.output


@pytest.mark.parametrize(
    ("of", "name", "size"),
    [
        ("allreduce", "ring", MOST_RANKS),
        ("alltoall", "pairwise", 4096),
        ("broadcast", "chain(segments=16384)", 64),
        ("reduce", "chain(segments=16384)", 64),
    ],
)
def test_what_is_too_long_is_refused(
    of: str, name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Up to the limit it is counted, which takes a while.
    monkeypatch.setattr(simulator, "_MOST_NAMED", 100_000)
    with pytest.raises(Unsupported, match="is too long to be simulated"):
        prove(find(of, name), size)


@pytest.mark.parametrize("size", [0, MOST_RANKS + 1, 10**9])
def test_numbers_of_ranks_have_bounds(size: int) -> None:
    with pytest.raises(ArgumentError, match=f"1 to {MOST_RANKS}"):
        prove(find("allreduce", "ring"), size)


def test_a_history_too_long_to_keep_is_refused() -> None:
    with pytest.raises(Unsupported, match="its history holds more than"):
        prove(find("broadcast", "chain(segments=2000)"), 8, history=True)


def test_history_begins_with_what_each_rank_holds_at_first() -> None:
    history = [
        [
            (end, {block: value.contributions for block, value in held.items()})
            for end, held in history
        ]
        for history in prove(find("reduce", "binomial"), 2, history=True).history
    ]
    first = (0, 0), (1, 0)
    assert history[0] == [(0, {0: first[:1]}), (1, {0: first})]
    assert history[1] == [(0, {0: first[1:]}), (1, {0: first[1:]})]


WRONG = """
from mpicoll.algorithms import algorithm
from mpicoll.notation.schedule import recv

@algorithm("broadcast", blocks=1)
def wrong(rank, size, root):
    \"""Do something wrong.\"""
    {body}
    yield from ()
"""
WRONGS = {
    "pass": "rank 1 ends with nothing as block 0",
    "yield recv((rank + 1) % size, 0)": "rank 0 in round 0 waits for rank 1",
    "raise KeyError('x')": "rank 0 of 4: KeyError: 'x'",
}


@pytest.mark.parametrize("body", WRONGS)
@pytest.mark.parametrize("style", ["table", "jsonl"])
def test_a_failed_proof_is_the_result_of_the_command(body: str, style: str, tmp_path: Path) -> None:
    """It is no error of the command line, and the other algorithms are proved all the same."""
    (tmp_path / "wrong.py").write_text(WRONG.format(body=body))
    flags = ["--size", "4", "--collective", "broadcast", "--format"]
    process = python("-m", "mpicoll.simulator", *flags, style, "--load", str(tmp_path / "wrong.py"))
    assert process.returncode == 1
    (line,) = (line for line in process.stdout.splitlines() if line.startswith("Error: "))
    assert line.startswith(f"Error: broadcast algorithm wrong on 4 ranks is wrong: {WRONGS[body]}")
    assert "binomial" in process.stdout
    assert "Usage" not in process.stdout and "Traceback" not in process.stdout


@pytest.mark.parametrize("body", WRONGS)
def test_an_explained_algorithm_that_is_wrong_is_named(body: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG.format(body=body))
    words = ["broadcast", "wrong", "--load"]
    process = python("-m", "mpicoll.explain", *words, str(tmp_path / "wrong.py"))
    assert process.returncode == 2
    text = f"Error: broadcast algorithm wrong on 4 ranks is wrong: {WRONGS[body]}"
    assert process.stdout.startswith(text) and process.stdout.count("\n") == 1


def test_the_command_keeps_no_messages() -> None:
    """Those of all algorithms on 1,024 ranks would fill gigabytes."""
    (row,) = rows([find("allreduce", "ring")], 4, 0, None)
    assert row.trace and row.trace.messages == 24 and not row.trace.log
