"""The ways of a call, what drives them, and how ranks agree: a list that must not grow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
WAYS = {
    "arrays of mpi4py on one node": "mpicoll/engine/channel_type.c channel_call",
    "objects of mpi4py on one node": "mpicoll/engine/channel_type.c channel_exchange",
    "tensors of torch on one node": "mpicoll/engine/channel_queue.c queue_issue",
    "methods with auto on one node": "mpicoll/calls/plan_table.c run_channel",
    "methods with an algorithm": "mpicoll/calls/plan_table.c run_plan",
    "methods with native, or on GPUs": "mpicoll/calls/plan_table.c run_plan",
    "methods with large copies": "mpicoll/calls/method_calls.py _run_once",
    "plans": "mpicoll/engine/plan.py start",
    "messages": "mpicoll/calls/point_to_point.py send",
    "long calls of mpi4py on several nodes": "mpicoll/mpi/communicator/levels.py run",
    "calls of mpi4py by a variable": "mpicoll/mpi/communicator/named.py run",
    "reductions of MPI in rank order": "mpicoll/mpi/communicator/in_order.py in_order",
    "MPI's own calls": "mpicoll/mpi/communicator/recording.py mpi_method",
    "blocking calls of torch on several nodes": "torchcoll/backend/spanning.py count",
    "gloo's own calls": "torchcoll/backend/group.py _forward",
}
"""From the arguments of a call to its data."""
DRIVERS = {
    "a channel's call": "mpicoll/engine/channel_calls.c request_run",
    "a program": "mpicoll/engine/program.c program_advance",
    "a thread for started programs and queues": "mpicoll/engine/progress.c run_all",
    "rows of Python": "mpicoll/engine/runs.py advance",
    "torch's issued calls": "torchcoll/backend/order.py _perform_first",
}
AGREEMENTS = {
    "the key in a message": "mpicoll/engine/channel.c take",
    "digests in a mailbox": "mpicoll/calls/plan_table.c compare",
    "arguments of all ranks": "mpicoll/calls/agreement.py compare",
}
LISTS = {"ways": (WAYS, 15), "drivers": (DRIVERS, 5), "agreements": (AGREEMENTS, 3)}


@pytest.mark.parametrize("name", LISTS)
def test_the_list_does_not_grow(name: str) -> None:
    entries, most = LISTS[name]
    assert len(entries) <= most


@pytest.mark.parametrize("entry", [*WAYS.values(), *DRIVERS.values(), *AGREEMENTS.values()])
def test_each_entry_is_a_function(entry: str) -> None:
    path, name = entry.split()
    kind = rf"def {name}\(" if path.endswith(".py") else rf"^(?!\s).*\b{name}\("
    assert re.search(kind, (ROOT / path).read_text(), re.MULTILINE), entry
