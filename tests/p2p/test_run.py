"""Whole runs of ``mpicoll.p2p`` on real ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from fake_nvml import pair
from launcher import LIMIT, QUIRKS, ROOT, mpirun, python, ranks

from mpicoll.machine.links import NETWORK
from mpicoll.measurement.ping_pong import COPY, LATENCY
from mpicoll.records.lines import FitRecord, PairRecord, RunRecord
from mpicoll.records.reading import load, only

pytestmark = pytest.mark.launches

needs_mpi = pytest.mark.skipif(mpirun() is None, reason="no mpirun here")
P2P = ("-m", "mpicoll.p2p", "-T", str(LIMIT // 2))
TINY = ("--sizes", "8,4K,64K", "--budget", "0.3")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One run of three ranks on two stated nodes, over both backends and all transports."""
    if mpirun() is None:
        pytest.skip("no mpirun here")
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("pairs")
    result = ranks(
        3, *P2P, *TINY, "-o", str(folder / "pairs.jsonl"), "--plot", str(folder / "pairs.png"),
        environment={"MPICOLL_RANKS_PER_NODE": "2"},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    described, *records = load(folder / "pairs.jsonl")
    assert isinstance(described, RunRecord)
    return SimpleNamespace(
        text=result.stdout, folder=folder, run=described.run, records=records,
        pairs=only(PairRecord, records), fits=only(FitRecord, records),
    )  # fmt: skip


@pytest.mark.parametrize("backend", ["mpi4py", "torch"])
@pytest.mark.parametrize("transport", ["point-to-point", "symmetric", "cma"])
def test_every_pair_is_measured_over_each_transport(run: Any, backend: str, transport: str) -> None:
    pairs_of_transport = [
        record for record in run.pairs if (record.backend, record.transport) == (backend, transport)
    ]  # fmt: skip
    assert len(pairs_of_transport) == 3 * (1 + 2 * 3)
    refused = [record for record in pairs_of_transport if record.message]
    measured = [record for record in pairs_of_transport if record.time_us]
    if transport == "cma" and not measured:
        pytest.skip("this kernel refuses cross-memory attach")
    assert len(refused) + len(measured) == len(pairs_of_transport)
    assert all(record.correct is True and record.samples >= 3 for record in measured)
    assert all(record.GBps > 0 for record in measured if record.quantity != LATENCY)
    between = [record for record in pairs_of_transport if record.link == NETWORK]
    assert {frozenset((e.source, e.target)) for e in between} == {pair(0, 2), pair(1, 2)}
    everywhere = transport == "point-to-point"
    assert {record.link == NETWORK for record in refused} == (set() if everywhere else {True})


def test_a_run_has_its_own_copies_and_fits(run: Any) -> None:
    copies = [record for record in run.pairs if record.quantity == COPY]
    assert {(record.source, record.backend) for record in copies} == {
        (rank, name) for rank in range(3) for name in ("mpi4py", "torch")
    }
    fits = run.fits
    assert {(record.backend, record.link) for record in fits} >= {
        ("mpi4py", "network"), ("torch", "network"),
    }  # fmt: skip
    # A pair has one latency, and two sizes in either direction.
    pairs = {"network": 2}
    assert all(record.points == 5 * pairs.get(record.link, 1) for record in fits)
    assert all(record.alpha_us >= 0 and record.error >= 0 for record in fits)
    assert all(record.run.versions["numpy"] for record in run.records)


def test_a_run_prints_and_draws(run: Any) -> None:
    assert run.text.count("one way of 64K, GB/s") >= 4
    assert " times\n" in run.text.split("# every pair was visited")[1]
    assert {file.name for file in run.folder.iterdir()} == {"pairs.jsonl", "pairs.png"}
    assert (run.folder / "pairs.png").stat().st_size > 20_000


@needs_mpi
def test_bad_usage_is_printed_once() -> None:
    result = ranks(2, *P2P, "--backends", "mpi4py", "--transports", "symmetric",
                 environment={"MPICOLL_SYMMETRIC": "0"})  # fmt: skip
    assert result.returncode == 2, result.stdout
    assert result.stdout.count("Error:") == 1
    assert "no symmetric transport: rank 0: MPICOLL_SYMMETRIC" in result.stdout


# Wrong bytes and a pair that hangs, as in test_survey, but of the command: what it prints, and how
# it ends.
BROKEN_PING_PONG = """
import time
from mpicoll.measurement.checking import Wrong
from mpicoll.measurement.worlds import ALL_BACKENDS
from mpicoll.p2p import survey
from mpicoll.p2p.command import main

class Broken(survey.PingPong):
    def {method}

survey.PingPong = Broken
main(obj=ALL_BACKENDS)
"""
WRONG = "check(self):\n        return Wrong(0, 1, 5, 7, 255, 'message')"
HUNG = "check(self):\n        time.sleep(1000 if self.pair == (0, 2) else 0)"


def run_broken(tmp_path: Path, method: str, count: int, *arguments: str) -> Any:
    script = tmp_path / "broken.py"
    script.write_text(BROKEN_PING_PONG.format(method=method))
    return ranks(count, str(script), "--backends", "mpi4py", "--transports", "symmetric",
                 "--sizes", "8,4K", "--budget", "0.3", *arguments)  # fmt: skip


@needs_mpi
def test_wrong_bytes_fail_the_run(tmp_path: Path) -> None:
    result = run_broken(tmp_path, WRONG, 2)
    assert result.returncode == 1, result.stdout
    assert (
        "WRONG between ranks 0 and 1 (mpi4py, symmetric): rank 0, message index 5" in result.stdout
    )


@needs_mpi
def test_a_pair_that_hangs_is_named(tmp_path: Path) -> None:
    result = run_broken(tmp_path, HUNG, 3, "-T", "6")
    assert result.returncode not in (0, 1, 2)
    assert "HUNG" in result.stdout and "ranks 0 and 2 (mpi4py, symmetric)" in result.stdout


@needs_mpi
def test_a_run_that_is_terminated_writes_what_it_has(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    process = subprocess.Popen(
        (str(mpirun()), "-n", "2", sys.executable, *P2P, "--backends", "mpi4py",
         "--sizes", "8,64K", "--time", "100", "-o", str(file)),
        cwd=ROOT, env={**os.environ, **QUIRKS}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        # The first line on standard error announces the measurement.
        while "measuring for" not in process.stderr.readline():
            assert process.poll() is None
        for child in psutil.Process(process.pid).children(recursive=True):
            if str(file) in child.cmdline() and "python" in child.name():
                child.terminate()
        _, errors = process.communicate(timeout=LIMIT)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode != 0, errors
    pairs = only(PairRecord, load(file))
    assert {(0, 1), (1, 0)} <= {(record.source, record.target) for record in pairs}


def test_torch_alone_needs_no_mpi() -> None:
    pytest.importorskip("torch")
    result = python("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "torchcoll.p2p",
                  "--sizes", "8,4K", "--budget", "0.1", "--format", "csv")  # fmt: skip
    assert result.returncode == 0, result.stdout
    lines = result.stdout.splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("schema,backend,"))
    assert any(line.startswith("1,torch,") for line in lines[head:])
