"""Dumps of torch's own flight recorder, as the post-mortem reads them."""

from __future__ import annotations

import collections
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from launcher import python

from mpicoll.errors import ArgumentError
from mpicoll.flight.layout import Outcome
from mpicoll.flight.plain_pickle import plain_value
from mpicoll.flight.torch_dumps import read_all
from mpicoll.postmortem.__main__ import main

MILLISECOND = 1_000_000
FRAMES = [
    {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/c10d.py", "line": 83},
    {"name": "wrapper", "filename": "/v/site-packages/typing_extensions.py", "line": 3140},
    {"name": "step", "filename": "train.py", "line": 40},
    {"name": "<module>", "filename": "train.py", "line": 90},
]  # fmt: skip


def call(number: int, start: float, **fields: Any) -> dict[str, Any]:
    """Return a call of gloo as torch writes it; `start` in milliseconds."""
    return {
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"),
        "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "is_p2p": False,
        "profiling_name": "gloo:all_reduce", "input_sizes": [[2, 5]], "output_sizes": [[2, 5]],
        "input_dtypes": ["Float"], "output_dtypes": ["Float"], "state": "scheduled",
        "retired": True, "timeout_ms": 1800000, "thread_id": "139937171200896",
        "time_created_ns": int(start * MILLISECOND), "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None, "frames": FRAMES,
    } | fields  # fmt: skip


def write(path: Path, *calls: dict[str, Any], ranks: str = "[0, 1]") -> None:
    """Write the dump of one rank, as JSON if the name says so."""
    configuration = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    dump = {"version": "2.10", "entries": calls, "pg_config": configuration, "pg_status": {}}
    path.write_bytes(json.dumps(dump).encode() if path.suffix else pickle.dumps(dump, protocol=2))


@pytest.mark.parametrize("name", ["nccl_trace_rank_{}", "trace{}.json"])
def test_dumps_become_the_files_of_ranks(tmp_path: Path, name: str) -> None:
    write(tmp_path / name.format(0), call(1, 5), call(2, 9, profiling_name="gloo:broadcast"))
    write(tmp_path / name.format(1), call(1, 7), call(2, 8, profiling_name="gloo:broadcast"))
    (first, second), faults = read_all(tmp_path)
    assert faults == [] and (first.rank, second.rank) == (0, 1)
    assert [entry.call.collective for entry in first.entries] == ["allreduce", "broadcast"]
    assert [entry.end // MILLISECOND for entry in first.entries] == [7, 9]
    assert [entry.end // MILLISECOND for entry in second.entries] == [7, 8]
    entry = second.entries[0]
    assert (entry.call.signature, entry.outcome) == ("float32 (2, 5)", Outcome.COMPLETED)
    assert entry.group is not None and (entry.group.name, entry.group.ranks) == (
        "default_pg",
        "0-1",
    )
    assert entry.location is not None and (entry.location.line, entry.location.file) == (
        40,
        "train.py",
    )


def test_calls_of_nccl_have_ends_and_states(tmp_path: Path) -> None:
    done = {"state": "completed", "time_discovered_completed_ns": 6 * MILLISECOND}
    message = {"is_p2p": True, "p2p_seq_id": 4, "profiling_name": "nccl:send 0->1"}
    write(
        tmp_path / "nccl_trace_rank_0", call(1, 5, profiling_name="nccl:_all_gather_base", **done),
        call(1, 7, retired=False, **message), ranks="[0, 1, 2]",
    )  # fmt: skip
    (dump,), _ = read_all(tmp_path)
    gather, send = dump.entries
    assert (gather.call.collective, gather.end, send.end) == ("allgather", 6 * MILLISECOND, 0)
    assert (send.call.collective, send.sequence, send.outcome) == ("send", 4, Outcome.UNDER_WAY)
    assert send.group is not None and send.group.messages
    assert dump.process.size == 3


def test_the_post_mortem_names_the_missing_rank(tmp_path: Path) -> None:
    write(tmp_path / "rank_0", call(1, 5), call(2, 9, retired=False))
    write(tmp_path / "rank_1", call(1, 7))
    (tmp_path / "notes.txt").write_text("no dump")
    shown = CliRunner().invoke(main, [str(tmp_path)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "Rank 1 keeps the others waiting." in shown.output
    assert "allreduce of float32 (2, 5) by gloo's own" in shown.output
    assert "train.py:40 in step" in shown.output


def test_groups_without_stated_ranks_have_those_that_call(tmp_path: Path) -> None:
    """gloo states the ranks of no group, once the program has made a second one."""
    pair = {"process_group": ("1", "undefined"), "pg_id": 1}
    for rank in range(3):
        calls = [call(1, 5, **pair)] if rank else []
        write(tmp_path / f"rank_{rank}", call(1, 3), *calls, ranks="[]")
    dumps, _ = read_all(tmp_path)
    groups = {group.name: group.ranks for group in dumps[2].groups if not group.messages}
    assert groups == {"default_pg": "0-2", "group 1": "1-2"}


class Harmful:
    """An object whose pickle runs a function."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("code of a pickle runs",)


@pytest.mark.parametrize(
    "value", [Harmful(), {"entries": [Harmful()]}, collections.OrderedDict(), {1, 2}, b"bytes"]
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles_of_more_than_plain_data_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], value: Any, protocol: int
) -> None:
    (tmp_path / "rank_0").write_bytes(pickle.dumps(value, protocol))
    write(tmp_path / "rank_1", call(1, 7))
    (dump,), (fault,) = read_all(tmp_path)
    assert dump.rank == 1 and fault.startswith("rank_0: no dump of torch's flight recorder: ")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_pickles_are_read(protocol: int) -> None:
    value = {"a": [1, -2, 1 << 40, 3.5, None, True, "é" * 300, {}], "b": [], "c": {"d": {"e": 1}}}
    value["f"] = value["a"]
    assert plain_value(pickle.dumps(value, protocol)) == value
    assert plain_value(pickle.dumps((1, (2, 3), (), (4, 5, 6, 7)))) == [1, [2, 3], [], [4, 5, 6, 7]]


def test_damaged_dumps_are_named(tmp_path: Path) -> None:
    write(tmp_path / "rank_7", call(1, 5))
    whole = (tmp_path / "rank_7").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "rank_3").write_bytes(whole[:length])
        dumps, (fault,) = read_all(tmp_path)
        assert [dump.rank for dump in dumps] == [7] and fault.startswith("rank_3: ")
    for at in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        (tmp_path / "rank_3").write_bytes(damaged)
        assert read_all(tmp_path)[0]


def test_a_directory_with_neither_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_text("{}")
    with pytest.raises(ArgumentError, match="has no flight files"):
        read_all(tmp_path)


PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json
dist.init_process_group("gloo")
rank, x = dist.get_rank(), torch.ones(5)
for _ in range(3):
    if rank == 1:
        time.sleep(0.1)
    dist.all_reduce(x)
while '"retired":false' in str(_dump_fr_trace_json()):  # torch notes an end a moment later
    time.sleep(0.01)
if rank == 0:
    dist.all_reduce(x, async_op=True)
    with open(sys.argv[1] + "/rank_0", "wb") as file:
        file.write(_dump_fr_trace())
    while not os.path.exists(sys.argv[1] + "/rank_1"):
        time.sleep(0.01)
    os._exit(0)
with open(sys.argv[1] + "/part", "wb") as file:
    file.write(_dump_fr_trace())
os.rename(file.name, sys.argv[1] + "/rank_1")
os._exit(0)
"""


@pytest.mark.launches
def test_a_hanging_group_of_gloo_is_told(tmp_path: Path) -> None:
    (program := tmp_path / "program.py").write_text(PROGRAM)
    (folder := tmp_path / "dumps").mkdir()
    python(
        "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(program),
        str(folder), environment={"TORCH_FR_BUFFER_SIZE": "100"},
    )  # fmt: skip
    shown = CliRunner().invoke(main, [str(folder)], env={"COLUMNS": "200"})
    assert "Rank 1 keeps the others waiting." in shown.output
    assert "Call 4 of group default_pg (2 ranks), allreduce of float32 (5)" in shown.output
    assert "program.py:14 in <module>" in shown.output
    (waiting, _), _ = read_all(folder)
    assert all(entry.end - entry.start > 50 * MILLISECOND for entry in waiting.entries[1:3])
