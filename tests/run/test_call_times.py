"""The recorder of calls by the line that makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from launcher import python

from mpicoll.run import _call_times
from mpicoll.run._call_times import Recorded

RECORDING = Path(__file__).parents[2] / "mpicoll" / "run" / "recording.py"
PROGRAM = """
import json, sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("_mpicoll_recording", {recording!r})
recording = module_from_spec(spec)
spec.loader.exec_module(recording)
assert not any(name.split(".")[0] == "mpicoll" for name in sys.modules)
recording.start({folder!r})
{body}
"""


@pytest.fixture
def record(tmp_path: Path) -> Any:
    """Return a function that runs lines on one rank, and returns what it records."""

    def run(body: str, status: int = 0) -> dict[str, Any]:
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.format(recording=str(RECORDING), folder=str(tmp_path), body=body))
        process = python(str(path))
        assert process.returncode == status, process.stdout
        (report,) = tmp_path.glob("*.json")
        times: dict[str, Any] = json.loads(report.read_text())
        times["places"] = {
            (line, call): (calls, by_library)
            for file, line, call, calls, _, by_library in times["places"]
            if file == str(path)
        }
        return times

    return run


FIRST_LINE = PROGRAM[: PROGRAM.index("{body}")].count("\n") + 1
"""The line of a program where its body begins."""
IMPORT = "from mpi4py import MPI; comm = MPI.COMM_SELF\n"


@pytest.mark.parametrize(
    ("body", "call", "calls"),
    [
        ("for _ in range(7): comm.Barrier()", "Barrier", 7),
        ("for _ in range(7): MPI.Comm.Barrier(comm)", "Barrier", 7),
        ("comm.allreduce(sendobj=1, op=MPI.MAX)", "allreduce", 1),
        ("assert comm.Dup().bcast({}) == {}", "bcast", 1),
        ("comm.Create_cart([1]).Neighbor_alltoall(bytearray(2), bytearray(2))",
         "Neighbor_alltoall", 1),
        ("comm.Ibarrier().Wait()", "Ibarrier", 1),
        ("comm.Ibarrier().Wait()", "Wait", 1),
        ("MPI.Request.Waitall([comm.Ibarrier()])", "Waitall", 1),
        ("comm.sendrecv(1, dest=0, source=0)", "sendrecv", 1),
    ],
)  # fmt: skip
def test_a_call_of_mpi_is_counted_at_its_line(
    record: Any, body: str, call: str, calls: int
) -> None:
    times = record(IMPORT + body)
    assert times["places"][FIRST_LINE + 1, call] == (calls, calls)
    assert 0 < times["first"] <= times["first_end"] <= times["last"]


def test_calls_of_collectives_are_counted_and_messages_are_not(record: Any) -> None:
    times = record(IMPORT + "comm.Barrier(); comm.gather(1); comm.sendrecv(1, dest=0)")
    assert (times["collectives"], times["by_library"]) == (2, 2)


def test_a_call_that_raises_is_counted_and_raises(record: Any) -> None:
    body = "try: comm.bcast(1, root=5)\nexcept MPI.Exception: print('raised')\nelse: sys.exit(1)"
    assert record(IMPORT + body)["places"] == {(FIRST_LINE + 1, "bcast"): (1, 1)}


def test_a_program_that_never_communicates_has_no_times(record: Any) -> None:
    times = record("")
    assert (times["first"], times["last"], times["places"]) == (0, 0, {})


def test_a_program_that_fails_leaves_its_times(record: Any) -> None:
    assert record(IMPORT + "comm.Barrier()\n1 / 0", status=1)["collectives"] == 1


def test_recorded_methods_look_like_those_that_they_replace(record: Any) -> None:
    record(
        IMPORT + "method = MPI.Comm.Bcast\n"
        "assert method.__name__ == 'Bcast' and 'Broadcast' in method.__doc__\n"
        "assert type(comm) is MPI.Intracomm and callable(comm.Bcast)\n"
        "import pickle; assert pickle.loads(pickle.dumps(comm)) == comm"
    )


def test_mpicolls_communicators_tell_what_they_serve(record: Any) -> None:
    """MPI runs the first calls of a communicator, and those of one rank."""
    body = "import mpicoll; ours = mpicoll.Comm(comm)\nfor _ in range(9): ours.allgather(1)"
    times = record(IMPORT + body)
    assert times["places"] == {(FIRST_LINE + 2, "allgather"): (9, 9)}


def rows(name: str) -> tuple[int, int]:
    """Return the calls of a method, and those of them that its library ran."""
    found = [row for row in _call_times.read()[5] if row[2] == name]
    return sum(row[3] for row in found), sum(row[5] for row in found)


@pytest.mark.parametrize(
    ("outer", "inner", "by_library"),
    [("Gathered", "Gathered", 1), ("gathered2", "GATHERED2", 1), ("scattered", "gathered", 0)],
)
def test_a_call_within_a_call_tells_that_the_library_runs_it(
    outer: str, inner: str, by_library: int
) -> None:
    library = Recorded(len, inner, True, True)
    ours = Recorded(lambda items: library(items), outer, False, True)
    assert ours([1, 2]) == 2
    assert rows(outer) == (1, by_library)


def test_a_method_of_a_class_in_c_is_replaced() -> None:
    class Thing:
        def double(self, number: int, *, more: int = 0) -> int:
            return 2 * number + more

    _call_times.set_attribute(Thing, "double", Recorded(Thing.double, "double", False, False))
    assert Thing().double(4, more=1) == Thing.double(Thing(), 4, more=1) == 9
    assert rows("double") == (2, 0)
    with pytest.raises(TypeError, match="less"):
        Thing().double(4, less=1)  # type: ignore[call-arg]


def test_many_lines_of_calls_are_recorded_as_far_as_there_is_room() -> None:
    called = Recorded(abs, "many", False, False)
    code = compile("\n".join(["called(1)"] * 9000), "many.py", "exec")
    exec(code, {"called": called})
    assert 1000 < rows("many")[0] <= 9000
