"""Programs that are written for torch.distributed, run with our backend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bad_variables import FEW
from launcher import ROOT, SUPPORT, python

from mpicoll.flight.reader import read_all
from mpicoll.trace.reading import load

pytest.importorskip("torch")


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node")


@pytest.mark.launches
def test_an_unmodified_program_runs_over_ours(installed: dict[str, str], tmp_path: Path) -> None:
    """Its backend is gloo, its ranks are processes that it starts itself."""
    program = str(SUPPORT / "spawning.py"), str(tmp_path / "store")
    trace = tmp_path / "trace"
    done = python(
        "-m", "torchcoll.run", "--trace", str(trace), *program, environment=installed
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert {kind.algorithm for kind in load(trace).kinds} == {"slots@symmetric"}
    assert load(trace).remarks == []
    assert sorted(re.findall(r"rank .*", done.stdout)) == [
        "rank 0: gloo torchcoll.backend.group", "rank 1: gloo torchcoll.backend.group",
    ]  # fmt: skip


RECEIVERS = {
    "recv": "dist.recv(x, 0)",
    "irecv": "dist.irecv(x, 0).wait()",
}


@pytest.mark.launches
@pytest.mark.parametrize("receiver", RECEIVERS)
def test_a_program_that_only_sends_messages_is_recorded(receiver: str, tmp_path: Path) -> None:
    """How long a rank waits for one, and where."""
    flight, program = tmp_path / "flight", tmp_path / "program.py"
    program.write_text(
        "import time, torch, torch.distributed as dist\n"
        'dist.init_process_group("gloo")\n'
        "x = torch.ones(3)\n"
        "if dist.get_rank() == 0:\n"
        "    time.sleep(0.5); dist.send(x, 1)\n"
        f"else:\n    {RECEIVERS[receiver]}\n"
    )
    done = python(
        *TORCHRUN, "2", "-m", "torchcoll.run", str(program),
        environment={
            "PYTHONPATH": str(ROOT), "MPICOLL_FLIGHT": "keep", "MPICOLL_FLIGHT_DIR": str(flight),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    dumps = sorted(read_all(flight)[0], key=lambda dump: dump.rank)
    for dump, waits in zip(dumps, (False, True), strict=True):
        length = max((sample.messages for sample in dump.samples), default=0)
        assert (length > 400_000_000) == waits
        places = {dump.locations[sample.location] for sample in dump.samples if sample.location}
        assert {(place.file, place.line) for place in places} <= {(str(program), 5 + 2 * waits)}


@pytest.mark.launches
def test_groups_join_processes_with_worlds_of_their_own() -> None:
    """Before there is a default group, and beside one of a single process."""
    command = *TORCHRUN, "2", "-m", "torchcoll.run", "-v", str(SUPPORT / "across_worlds.py")
    done = python(*command, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout
    ours = "torchcoll over gloo"
    assert sorted(re.findall(r"rank \d: torchcoll.*", done.stdout)) == [
        f"rank {rank}: {ours}, 2 ranks in shared memory; {ours}" for rank in range(2)
    ]
    notice = "torchcoll.run: torchcoll takes the place of gloo in every process group"
    assert done.stdout.count(notice) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "name a program"), (("nothing.py",), "no file 'nothing.py'"), (("-x",), "neither")],
)
def test_a_program_that_is_not_there_is_refused(arguments: tuple[str, ...], said: str) -> None:
    done = python("-m", "torchcoll.run", *arguments)
    assert done.returncode == 2
    assert said in done.stdout and "Traceback" not in done.stdout


@pytest.mark.launches
def test_a_bad_configuration_is_one_error_of_all_ranks() -> None:
    command = *TORCHRUN, "2", "-m", "torchcoll.run", __file__
    environment = {"PYTHONPATH": str(ROOT), "MPICOLL_CONFIG": "nowhere.toml"}
    done = python(*command, environment=environment)
    assert done.returncode != 0
    assert re.findall("^Error: .*", done.stdout, re.MULTILINE) == [
        "Error: cannot read nowhere.toml: No such file or directory"
    ]


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TORCHCOLL_ALGORITHM", "allreduce=rnig", "did you mean 'ring'"),
        *((name, value, text) for name, value, text in FEW),
    ],
)
def test_a_bad_variable_is_refused_before_the_program_starts(
    variable: str, value: str, said: str
) -> None:
    done = python("-m", "torchcoll.run", __file__, environment={variable: value})
    assert done.returncode == 2
    assert said in done.stdout and "Traceback" not in done.stdout
    assert done.stdout.count("Error: ") == 1
