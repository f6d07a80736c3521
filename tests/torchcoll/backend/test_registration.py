"""The entry point by which torch finds the backend."""

from __future__ import annotations

import json

import pytest
from launcher import python

pytest.importorskip("torch")

OURS, TORCHS = "torchcoll.backend.group", "torch.distributed.distributed_c10d"
NAMES = ["torchcoll", "mpicoll"]

IMPORT = """
import sys, torch
print(torch.distributed.Backend("torchcoll") in torch.distributed.Backend.backend_list)
print(*(name for name in ("mpicoll", "mpi4py", "torchcoll.launch") if name in sys.modules))
"""


def test_importing_torch_registers_it_and_imports_nothing_more(installed: dict[str, str]) -> None:
    done = python("-P", "-c", IMPORT, environment=installed)
    assert done.stdout.split() == ["True"], done.stdout


COMPARE = """
import atexit, gc, json, os, signal, sys, threading, warnings
import torch, torch.distributed as dist
from torch.distributed import distributed_c10d as c10d, rendezvous

def contents(value):
    return list(value.items()) if isinstance(value, dict) else list(value)

def observe():
    spaces = {name: vars(module) for name, module in sorted(sys.modules.items())
              if name.partition(".")[0] in ("torch", "sys", "threading", "builtins", "warnings")}
    spaces |= {"Backend": vars(dist.Backend)}
    attributes = {(space, name): value for space, values in spaces.items()
                  for name, value in list(values.items())}
    tables = {f"{space}.{name}": (value, contents(value))
              for (space, name), value in attributes.items()
              if space in ("Backend", c10d.__name__) and type(value) in (dict, list)}
    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
    tables["handlers"] = handlers, contents(handlers)
    tables["variables"] = os.environ, contents(os.environ)
    tables["filters"] = warnings.filters, contents(warnings.filters)
    tables["path"] = sys.path, contents(sys.path)
    tables["finders"] = sys.meta_path, contents(sys.meta_path)
    tables["signals"] = None, [signal.getsignal(number) for number in signal.valid_signals()]
    tables["files"] = None, os.listdir("/proc/self/fd")
    tables["hooks"] = None, [atexit._ncallbacks(), sys.gettrace(), sys.getprofile(),
                             *threading.enumerate(), *gc.callbacks]
    return attributes, tables

before, tables_before = observe()
from torchcoll.backend.registration import register
register()
after, tables_after = observe()
print(json.dumps({
    "replaced": sorted(".".join(place) for place, value in before.items()
                       if after.get(place) is not value),
    "added": sorted({name for space, name in after.keys() - before.keys() if space == "Backend"}),
    "others": sorted(".".join(place) for place in after.keys() - before.keys()
                     if place[0] != "Backend"),
    "tables": {name: [str(item) for item in items if item not in tables_before[name][1]]
               for name, (_, items) in tables_after.items() if items != tables_before[name][1]},
    "exchanged": sorted(name for name, (table, _) in tables_after.items()
                        if table is not tables_before[name][0]),
}))
"""


def test_the_entry_point_adds_names_and_changes_nothing_else_of_the_interpreter() -> None:
    done = python("-P", "-c", COMPARE, environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    changes = json.loads(done.stdout)
    assert changes["replaced"] == changes["others"] == changes["exchanged"] == []
    assert {"TORCHCOLL", "MPICOLL"} < set(changes["added"])
    assert all("COLL" in name for name in changes["added"])
    in_lists = changes["tables"].pop("Backend.backend_list")
    assert in_lists == NAMES
    assert sorted(changes["tables"]) == ["Backend.backend_capability", "Backend.backend_type_map"]
    for table in changes["tables"].values():
        assert [row.split("'")[1] for row in table] == NAMES


STOCK = """
import sys, warnings, torch, torch.distributed as dist
warnings.simplefilter("error")
dist.init_process_group({name!r}, store=dist.HashStore(), rank=0, world_size=1)
dist.barrier()
dist.distributed_c10d._set_pg_timeout(dist.default_pg_timeout)
c10d = dist.distributed_c10d
print(type(dist.group.WORLD) is c10d.ProcessGroup, dist.group.WORLD.name(),
      type(c10d.Backend._plugins).__name__, c10d._new_process_group_helper.__module__,
      [module for module in sys.modules if module.startswith(("mpicoll", "torchcoll.backend.g"))])
"""


@pytest.mark.parametrize("name", ["gloo", "cpu:gloo", None])
def test_groups_of_a_program_that_does_not_ask_for_it_are_torchs(
    installed: dict[str, str], name: str | None
) -> None:
    done = python("-P", "-c", STOCK.format(name=name), environment=installed)
    assert done.stdout.split() == ["True", "gloo", "dict", TORCHS, "[]"]


ASKED = """
import torch, torch.distributed as dist
dist.init_process_group({name!r}, store=dist.HashStore(), rank=0, world_size=1)
group = dist.new_group(backend={later!r}) if {later!r} else dist.group.WORLD
x = torch.ones(2)
dist.all_reduce(x, group=group)
print(type(group).__module__, type(dist.group.WORLD).__module__,
      dist.is_backend_available("mpicoll"))
"""


@pytest.mark.parametrize(
    ("name", "later", "kinds"),
    [
        ("torchcoll", None, [OURS, OURS]),
        ("TorchColl", None, [OURS, OURS]),
        ("cpu:torchcoll", None, [OURS, OURS]),
        ("cpu:torchcoll,cuda:gloo", None, [OURS, OURS]),
        ("cuda:gloo,cpu:torchcoll", None, [OURS, OURS]),
        ("cpu:Torchcoll,cuda:Torchcoll", None, [OURS, OURS]),
        ("gloo", "torchcoll", [OURS, TORCHS]),
        ("gloo", "cpu:torchcoll,cuda:gloo", [OURS, TORCHS]),
    ],
)
def test_a_name_brings_the_backend_at_its_first_use(
    installed: dict[str, str], name: str, later: str | None, kinds: list[str]
) -> None:
    done = python("-P", "-c", ASKED.format(name=name, later=later), environment=installed)
    assert done.stdout.split()[-3:] == [*kinds, "True"], done.stdout


def test_mpicolls_name_meets_over_mpi_at_its_first_use(installed: dict[str, str]) -> None:
    code = """
import torch.distributed as dist
handlers = __import__("sys").modules["torch.distributed.rendezvous"]._rendezvous_handlers
before = handlers["env"]
dist.Backend("mpicoll")
print(handlers["env"] is before, handlers["env"].__module__)
"""
    done = python("-P", "-c", code, environment=installed)
    assert done.stdout.split() == ["False", "torchcoll.backend.registration"], done.stdout
