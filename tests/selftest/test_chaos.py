"""Random faults in random calls: what is counted, and a share of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from launcher import python
from launcher import ranks as run_on_ranks

import mpicoll
from mpicoll.errors import ArgumentError, LaunchError, RankLost
from mpicoll.measurement.worlds import ALL_BACKENDS
from mpicoll.memory.segments import SWITCH
from tests.selftest import chaos, launches, processes
from tests.selftest.faults import CUT, FAULTS, KILL, LAYOUTS, STOP, Fault, launch_of
from tests.selftest.launches import Faults
from tests.selftest.processes import Ranks, letting_live
from tests.selftest.ranks import STEPS, Ending, Player
from tests.selftest.side_by_side import side_by_side


def test_a_launch_follows_from_its_seed_and_number() -> None:
    every = [launch_of(5, number, FAULTS, faults=20, hosts=True) for number in range(200)]
    assert every == [launch_of(5, number, FAULTS, faults=20, hosts=True) for number in range(200)]
    faults = [(launch, fault) for launch in every for fault in launch.faults]
    assert {fault.kind for _, fault in faults} == set(FAULTS)
    assert {launch.ranks for launch in every} == set(range(2, 9))
    assert {launch.per_host for launch in every} == set(range(5))
    assert any(len(fault.victims) > 1 for _, fault in faults if fault.kind != CUT)
    for launch, fault in faults:
        assert set(fault.victims) < set(fault.members) <= set(range(launch.ranks))
        assert fault.kind != CUT or launch.per_host
        assert fault.survivors


def test_who_may_be_named() -> None:
    cut = Fault(0, CUT, 1, 0.0, (0, 1, 2, 3), (2, 3))
    assert [lost for lost in range(4) if cut.allows(0, lost)] == [2, 3]
    assert [lost for lost in range(4) if cut.allows(2, lost)] == [0, 1]
    killed = Fault(0, KILL, 1, 0.0, (0, 1, 2, 3), (2,), second=0)
    assert [lost for lost in range(4) if killed.allows(1, lost)] == [2]
    assert not killed.allows(1, None)
    assert killed.survivors == (1, 3)


@pytest.mark.parametrize(
    ("counts", "left", "said"),
    [
        ({chaos.RIGHT: 50, chaos.LOST: 99, chaos.WRONG_NAME: 1}, [], []),
        ({chaos.LOST: 98, chaos.WRONG_NAME: 2}, [], ["98.00% of errors name the right rank"]),
        ({chaos.HUNG: 1}, [], ["1 ranks: hung"]),
        ({chaos.WRONG: 2}, ["x is left"], ["2 ranks: wrong result", "x is left"]),
    ],
)
def test_targets(counts: dict[str, int], left: list[str], said: list[str]) -> None:
    assert list(chaos.missed(Counter(counts), left)) == said


@pytest.mark.parametrize("kind", [KILL, STOP])
def test_a_victim_that_another_one_keeps_from_its_turn_is_one_nevertheless(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The others would wait for its end."""
    launch, fault = launch_of(1, 0, [kind]), Fault(0, kind, 3, 0.0, (0, 1, 2), (1, 2))
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process, number: sent.append(number))

    class LosesRank1(Player):
        def play(self) -> bool:
            raise RankLost("rank 1 has ended", rank=1)

    player = LosesRank1(cast(Any, None), launch, fault, 2, cast(Any, None))
    assert player.ending().how == chaos.LOST
    assert sent == [signal.SIGKILL if kind == KILL else signal.SIGSTOP]


def numbered(number: int) -> Iterator[tuple[int, int]]:
    for _ in range(3):
        yield number, os.getpid()


def refused(number: int) -> Iterator[tuple[int, int]]:
    yield from numbered(number)
    raise ArgumentError("no mpirun")


def ended(number: int) -> Iterator[tuple[int, int]]:
    yield from numbered(number)
    os._exit(3)


def test_launches_run_at_once_in_processes_of_their_own() -> None:
    found = list(side_by_side([numbered(1), numbered(2)]))
    assert Counter(number for number, _ in found) == {1: 3, 2: 3}
    assert len({process for _, process in found} | {os.getpid()}) == 3
    assert list(side_by_side([numbered(5)])) == [(5, os.getpid())] * 3


@pytest.mark.parametrize(("part", "error"), [(refused, ArgumentError), (ended, RuntimeError)])
def test_one_that_fails_ends_the_others(
    part: Callable[[int], Iterator[tuple[int, int]]], error: type[Exception]
) -> None:
    with pytest.raises(error):
        list(side_by_side([numbered(1), part(2), (time.sleep(100) for _ in range(9))]))


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Those of a launch of two, of which none is started."""
    launch = launch_of(1, 0, ["slow"], max_ranks=2)
    found = Ranks(launch._replace(ranks=0), {}, 4.0, tmp_path, mpicoll.world, None)
    found.launch = launch
    yield found
    found.processes.clear()
    assert found.end() == []


def test_what_a_rank_misses_while_the_machine_stands_still_is_told_apart(ranks: Ranks) -> None:
    ranks.over[1] = "killed by SIGSEGV"
    endings = [
        Ending(0, rank, how, 9.0, "")
        for rank, how in enumerate((chaos.HUNG, chaos.OTHER_ERROR, chaos.WRONG, chaos.RIGHT))
    ]
    told = [Faults(ranks).mark_paused(each).how for each in endings]
    assert told == [chaos.PAUSED, chaos.OTHER_ERROR, chaos.WRONG, chaos.RIGHT]


@pytest.mark.parametrize(("kind", "how"), [("slow", chaos.RIGHT), (KILL, chaos.HUNG)])
def test_a_rank_that_is_late_between_two_calls_has_not_hung(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, kind: str, how: str
) -> None:
    said = iter([[], [(0, {"ending": Ending(0, 0, chaos.RIGHT, 1.0, "")})]])
    monkeypatch.setattr(ranks, "until", lambda limit, done: next(said))
    monkeypatch.setattr(ranks, "stacks", lambda rank: "somewhere")
    found: dict[int, Ending] = {}
    faults = Faults(ranks)
    faults._hear(Fault(0, kind, 1, 0.0, (0, 1), (1,)), {0}, found)
    assert found[0].how == how
    assert (
        faults.mark_paused(found[0]).how == how
    )  # it had the time, though the machine stood still


@pytest.mark.parametrize(("starved", "how"), [(6.0, chaos.LOST), (1.0, chaos.HUNG)])
def test_a_call_that_waits_for_a_core_has_not_hung(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, starved: float, how: str
) -> None:
    """A deadline of 4 s and two ranks: one that is late, and one that it waited for."""
    late = Ending(0, 0, chaos.LOST, 20.0, "", 0.5)
    other = Ending(0, 1, chaos.RIGHT, 1.0, "", starved)
    said = [(0, {"ending": late}), (1, {"ending": other})]
    monkeypatch.setattr(ranks, "until", lambda limit, done: said)
    monkeypatch.setattr(ranks, "tell", lambda left: None)
    fault = Fault(0, "slow", 1, 0.0, (0, 1), (1,))
    assert [each.how for each in Faults(ranks).through(fault)] == [how, chaos.RIGHT]


def test_the_seconds_for_which_a_process_has_no_core_are_counted() -> None:
    """Three that compute, where there is room for one."""
    code = """if True:
        import os, time
        from tests.selftest.ranks import starvation
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        os.fork()
        os.fork()
        began, before, used = time.monotonic(), starvation(), time.process_time()
        while time.process_time() - used < 0.2:
            pass
        seconds, starved = time.monotonic() - began, starvation() - before
        assert 0.05 < starved <= seconds - 0.15, (seconds, starved)
    """
    assert python("-c", code).returncode == 0


def arriving(ranks: Ranks, lines: list[bytes]) -> list[socket.socket]:
    """Return the connections by which some ranks have come and said lines."""
    ranks.listener.listen(2)
    wires = [socket.socket(socket.AF_UNIX) for _ in lines]
    for wire, line in zip(wires, lines, strict=True):
        wire.connect(str(ranks.path))
        wire.sendall(line)
    return wires


def line(rank: int) -> bytes:
    return json.dumps({"rank": rank, "process": 2**22 + 1 + rank}).encode() + b"\n"


def test_a_launch_whose_rank_comes_and_says_nothing_fails(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_START", 1.5)
    wires = arriving(ranks, [b"", line(1)])
    assert ranks.come().startswith("1 of 2 ranks have come: 1 more say nothing")
    wires[0].close()


def test_ranks_that_cannot_start_are_no_fault(ranks: Ranks) -> None:
    ranks.log.write_text("Traceback (most recent call last):\nLaunchError: mpi4py finds no MPI\n")
    arriving(ranks, [b""])[0].close()
    with pytest.raises(LaunchError, match="end before they form a group: LaunchError: mpi4py find"):
        ranks.come()


def test_a_launcher_that_refuses_is_no_fault(ranks: Ranks) -> None:
    ranks.log.write_text("There are not enough slots available\n")
    with subprocess.Popen(["false"]) as ranks.launcher:
        pass
    with pytest.raises(LaunchError, match="end before they form a group: There are not enough"):
        ranks.come()


def test_what_a_rank_says_as_it_comes_is_not_lost(ranks: Ranks) -> None:
    ending = json.dumps({"ending": Ending(0, 0, chaos.RIGHT, 1.0, "")}).encode() + b"\n"
    _wires = arriving(ranks, [line(0) + ending, line(1)])
    assert ranks.come() == ""
    assert [rank for rank, said in ranks.until(0.1, lambda: False) if "ending" in said] == [0]


def test_a_fault_waits_until_all_ranks_have_the_group(ranks: Ranks) -> None:
    """A rank that is killed as it leaves the call that makes it may take its messages with it."""
    wires = arriving(ranks, [line(0), line(1)])
    assert ranks.come() == ""
    found: dict[int, Ending] = {}
    begin = threading.Thread(
        target=Faults(ranks)._begin, args=(Fault(0, KILL, 1, 0.0, (0, 1), (1,)), found)
    )
    begin.start()
    for step in STEPS:
        wires[0].sendall(json.dumps({"step": step}).encode() + b"\n")
        wires[0].settimeout(0.3)
        with pytest.raises(TimeoutError):
            wires[0].recv(1)
        wires[1].sendall(json.dumps({"step": step}).encode() + b"\n")
        wires[0].settimeout(20)
        assert wires[0].recv(1) == wires[1].recv(1) == b"\n"
    begin.join()
    assert not found


def test_no_rank_is_awaited_that_has_ended(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "PEER_DEADLINE", 1e6)
    wires = arriving(ranks, [line(0), line(1)])
    assert ranks.come() == ""
    found: dict[int, Ending] = {}
    wires[1].close()
    for step in STEPS:
        wires[0].sendall(json.dumps({"step": step}).encode() + b"\n")
        Faults(ranks)._await(step, Fault(0, "slow", 1, 0.0, (0, 1), (1,)), found)
    assert [(rank, each.how) for rank, each in found.items()] == [(1, chaos.OTHER_ERROR)]


STORE = {"thread pt_tcpstore_uv": 1, "descriptor of a pipe": 4}


@pytest.mark.parametrize(
    ("last", "grown"),
    [
        ([{}, {}, {}], {}),
        ([STORE, {}, STORE], {}),
        ([STORE, STORE], {}),
        ([{"thread pt_tcpstore_uv": 2}] * 2, {"thread pt_tcpstore_uv": 2}),
        ([STORE, {"descriptor of a socket": 3}], {"descriptor of a socket": 3}),
        ([{}, {"thread a": 3}, {"thread a": 2}], {"thread a": 2}),
    ],
)
def test_what_ranks_hold_is_compared_without_the_store_that_one_has(
    ranks: Ranks, last: list[dict[str, int]], grown: dict[str, int]
) -> None:
    warm = Counter({"descriptor of a file": 3})
    ranks.held = {rank: [(1, warm), (2, warm + Counter(each))] for rank, each in enumerate(last)}
    assert +ranks.grown() == grown


@pytest.mark.parametrize(
    ("version", "more"),
    [("mpirun (Open MPI) 5.0.8", ("--enable-recovery",)), ("HYDRA build details: 5.0.2", ())],
)
def test_open_mpis_launcher_is_told_to_let_ranks_live(
    tmp_path: Path, version: str, more: tuple[str, ...]
) -> None:
    launcher = tmp_path / "mpirun"
    launcher.write_text(f"#!/bin/sh\necho '{version}'")
    launcher.chmod(0o755)
    assert letting_live(str(launcher)) == (str(launcher), *more)


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ("kill,meteor", "no fault 'meteor'"),
        ("cut", "cut is left out, as it takes emulated hosts: no ip"),
    ],
)
def test_faults_that_cannot_be_tried_are_refused(
    faults: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SystemExit, match="2"):
        chaos.main(["--faults", faults], obj=ALL_BACKENDS)
    assert said in capsys.readouterr().err


TERMINATED = """
import os, signal, time
from tests.selftest import chaos, launches
from mpicoll.measurement.worlds import ALL_BACKENDS

class Hosts:
    def __init__(self, count): ...
    def __enter__(self): ...
    def __exit__(self, *error): print("removed")

chaos.Hosts, chaos._possible = Hosts, lambda kinds: (kinds, True)
chaos.run = lambda *given: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(60)
chaos.main(["--at-once", "1", "--backend", "mpi4py"], obj=ALL_BACKENDS)
"""


def test_its_hosts_are_removed_where_sigterm_ends_it() -> None:
    done = python("-c", TERMINATED)
    assert (done.returncode, "removed" in done.stdout) == (143, True), done.stdout


@pytest.mark.parametrize("name", ["notes.txt", "link", "pipe", "folder"])
def test_a_file_of_somebody_else_is_refused_before_anything_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text("a letter")
    (tmp_path / "link").symlink_to("notes.txt")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(chaos, "run", lambda *_: pytest.fail("it runs"))
    with pytest.raises(SystemExit) as left:
        chaos.main(["-J", str(tmp_path / name)], obj=ALL_BACKENDS)
    assert left.value.code == 2
    assert (tmp_path / "notes.txt").read_text() == "a letter"


def tried(tmp_path: Path, minutes: str, *given: str) -> int:
    """Try faults for some minutes, and return how many; none may miss a target.

    A busy machine can let a deadline pass early, so that a rank names another one: a launch that
    misses by that alone is run once more.
    """
    records = tmp_path / "chaos.jsonl"
    command = ("-m", "tests.selftest.chaos", "--ranks", "4", "--each", "8", *given)
    done = python(*command, "--minutes", minutes, "-J", str(records),
                  timeout=60 * float(minutes) + 200)  # fmt: skip
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    others = [each for each in lines if any(e["how"] in chaos.MISSES for e in each["endings"])]
    ways = {e["how"] for each in others for e in each["endings"]}
    assert not ways & {chaos.WRONG, chaos.HUNG}, f"{done.stdout}\n{others}"
    assert others or done.returncode == 0, done.stdout
    for each in others:
        again = python(*command, "--first", str(each["number"]), "--launches", "1")
        assert again.returncode == 0, f"{done.stdout}\n{each}\n{again.stdout}"
    (count,) = re.findall(r"^(\d+) faults, seed \d+, 0 things left", done.stdout, re.MULTILINE)
    return int(count)


@pytest.mark.launches
@pytest.mark.parametrize("backend", ["torch", "mpi4py"])
def test_a_rank_that_ends_while_the_others_agree_who_is_left(tmp_path: Path, backend: str) -> None:
    pytest.importorskip("torch" if backend == "torch" else "mpi4py")
    launches = (launch_of(1, number, [KILL], max_ranks=4) for number in range(100))
    number = next(each.number for each in launches if each.faults[0].second is not None)
    given = ("--faults", KILL, "--each", "1", "--first", str(number), "--launches", "1",
             "--backend", backend)  # fmt: skip
    assert tried(tmp_path, "1", *given) == 1


MISSING_RANK = """
import os
from unittest.mock import patch

import numpy as np

import mpicoll
from tests.selftest.faults import LAYOUTS, launch_of
from tests.selftest.ranks import Player, make_drop_in

launch, x, options = launch_of(1, 0, ["kill"], backend="mpi4py"), np.arange(100), {"op": "sum"}

def ending(run, *arguments):
    try:
        run(*arguments)
    except mpicoll.RankLost:
        return "raises RankLost"

with mpicoll.world() as world:
    for layout in LAYOUTS:
        with patch.dict(os.environ, layout), world.split(0) as group:
            drop_in = make_drop_in(group, launch, 0.5)
            player = Player(group, launch, launch.faults[0], world.rank, None, drop_in)
            group.barrier()
            group.deadline = 0.5
            if world.rank:
                lines = [("plan", ending(player._run, "allreduce", x, options, 2))]
                if drop_in is not None:
                    lines.append(("drop-in", ending(player._run, "allreduce", x, options, 3)))
                for what, how in lines:
                    os.write(1, f"the {what} {how} with {layout}\\n".encode())  # a line at once
            else:
                ending(lambda: group.plan("allreduce", x, **options))
            world.barrier()
            if drop_in is not None:
                drop_in.close()
    os._exit(0)  # rank 0 has not received all messages, for which MPI_Finalize may wait
"""


@pytest.mark.launches
def test_a_call_ends_although_a_rank_is_missing() -> None:
    """MPI's own blocking calls would wait without end, or end the process."""
    pytest.importorskip("mpi4py")
    done = run_on_ranks(3, "-c", MISSING_RANK)
    lines = Counter(re.findall("^the (.*) raises RankLost with (.*)$", done.stdout, re.MULTILINE))
    assert lines == {
        (what, str(layout)): 2
        for layout in LAYOUTS
        for what in ("plan", *(["drop-in"] if SWITCH not in layout else []))
    }, done.stdout


@pytest.mark.exhaustive
@pytest.mark.launches
@pytest.mark.parametrize("backend", ["torch", "mpi4py"])
def test_random_faults_over_either_backend(tmp_path: Path, backend: str) -> None:
    pytest.importorskip("torch" if backend == "torch" else "mpi4py")
    assert tried(tmp_path, "0.2", "--backend", backend) >= 1
