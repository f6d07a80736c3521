"""Run test files of torch's repository over gloo and over ours on the CPU, and print both columns.

``python tests/support/torch_files.py SOURCES [FILES...] [--columns gloo,ours] [--like PATTERN]``

SOURCES is the folder ``test/distributed`` of a checkout, FILES are paths in it: by default the
suites of FSDP2, DTensor and tensor parallelism. The files are copied, with ``cpu`` in place of
``cuda``, and what is skipped for want of GPUs is run. Ranks are forked. Exit status 1 where a test
passes over gloo and not over ours.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

FILES = (
    "_composable/fsdp/test_fully_shard_*.py", "_composable/test_replicate.py",
    "_tensor/test_*.py", "tensor/test_*.py", "tensor/parallel/test_*.py",
    "test_functional_api.py", "test_device_mesh.py", "test_c10d_functional_native.py",
)  # fmt: skip
LEFT = ("compile", "micro_pipeline", "xla", "test_dtensor_ops", "multi_threaded", "memory")
"""What is in the names of files that test no exchange between processes."""
RANKS, SECONDS = 2, 1500
"""Ranks of tests that want one for each GPU; the time for one file."""
DROPPED: tuple[tuple[str, str, Any], ...] = (
    ("common_fsdp", "test_compiled_fsdp", lambda **_: lambda test: test),
    ("inductor_utils", "HAS_CUDA", False),
)
"""What files of an older torch import, and the torch at hand has no more."""


# -- one column: a plugin of pytest ----------------------------------------------------------------


def pytest_configure(config: Any) -> None:
    """Fork the ranks of every test, and let what wants GPUs run without."""
    if "TORCHCOLL_FILES" not in os.environ:
        return
    import torch
    from torch.testing._internal import common_distributed, common_fsdp

    from torchcoll.backend.registration import register

    register()
    torch.set_num_threads(1)
    processes = torch.multiprocessing.get_context("fork").Process
    case = common_distributed.MultiProcessTestCase
    case._spawn_processes = lambda self: self._start_processes(processes)
    common_distributed.TIMEOUT_DEFAULT = 200
    for module in (common_distributed, common_fsdp):
        for name in ("skip_if_lt_x_gpu", "requires_nccl", "requires_multicast_support"):
            setattr(module, name, lambda *_, **__: lambda test: test)
    torch.accelerator.device_count = lambda: RANKS
    for where, name, stand_in in DROPPED:
        module = import_module(f"torch.testing._internal.{where}")
        if not hasattr(module, name):
            setattr(module, name, stand_in)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Give tests that count GPUs some ranks."""
    if "TORCHCOLL_FILES" not in os.environ:
        return
    from torch.testing._internal.common_fsdp import FSDPTest

    for case in {item.cls for item in items if item.cls is not None}:
        if issubclass(case, FSDPTest):
            case.world_size = property(lambda self: RANKS)


# -- both columns ----------------------------------------------------------------------------------


def copy(sources: Path, target: Path) -> None:
    """Copy the tests, written for the CPU."""
    shutil.copytree(sources, target, ignore=shutil.ignore_patterns("rpc", "elastic", "*.pyc"))
    for path in target.rglob("*.py"):
        text = path.read_text()
        text = re.sub(r"\.cuda\([^)]*\)", ".cpu()", text).replace('"cuda"', '"cpu"')
        text = re.sub(r"device_ids=\[[^]]*\]", "device_ids=None", text)  # of DDP
        path.write_text(re.sub(r'"cuda:(\d|\{[^}]*\})"', '"cpu"', text).replace('"nccl"', '"gloo"'))


def outcomes(path: Path, column: str, like: str) -> dict[str, str]:
    """Return what became of every test of a file."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.xml"
        here, root = Path(__file__).parent, Path(__file__).parent.parent.parent
        variables = {
            **os.environ, "PYTHONPATH": f"{here}:{root}:{path.parent}", "TORCHCOLL_FILES": "1",
            "TORCHCOLL_AS_GLOO": str(int(column == "ours")), "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "torch_files", f"--junitxml={found}",
            "-p", "no:cacheprovider", "-p", "no:pytest_mpi", "--tb=line", "-c", os.devnull,
            f"--rootdir={path.parent}", *(["-k", like] if like else []), str(path),
        ]  # fmt: skip
        with open(Path(tempfile.gettempdir()) / f"torch_files_{column}.log", "a") as log:
            try:
                subprocess.run(command, env=variables, stdout=log, stderr=log, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                print(f"{path.name}, {column}: no end in {SECONDS} s", flush=True)
        if not found.exists():
            return {}
        return {
            f"{each.get('classname', '').rsplit('.', 1)[-1]}.{each.get('name')}": next(
                ({"error": "failed", "failure": "failed", "skipped": "skipped"}[kind.tag]
                 for kind in each if kind.tag in ("error", "failure", "skipped")), "ok")
            for each in ElementTree.parse(found).getroot().iter("testcase")
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--columns", default="gloo,ours")
    parser.add_argument("--like", default="", help="pytest's -k")
    options = parser.parse_args()
    columns, worse = options.columns.split(","), 0
    total = {column: Counter[str]() for column in columns}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "distributed"
        copy(options.sources, target)
        for path in sorted({path for name in options.files for path in target.glob(name)}):
            if options.files is FILES and any(each in path.name for each in LEFT):
                continue
            found = {column: outcomes(path, column, options.like) for column in columns}
            counts = [Counter(each.values()) for each in found.values()]
            for column, each in zip(columns, counts, strict=True):
                total[column] += each
            said = ", ".join(
                f"{how} {[each[how] for each in counts]}" for how in sum(counts, Counter())
            )
            print(f"{path.relative_to(target)}: {said}", flush=True)
            for name in sorted(set().union(*found.values())):
                ends = [each.get(name, "not run") for each in found.values()]
                if len(set(ends)) > 1:
                    worse += ends[0] == "ok"
                    print(f"    {name}: {', '.join(ends)}", flush=True)
    print(*(f"{column}: {dict(each)}" for column, each in total.items()), sep="\n")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
