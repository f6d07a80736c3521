"""Run torch's own suite of torch.distributed over gloo and over ours, and print where they differ.

``python tests/support/torch_suite.py --ranks 2 [--tests all_reduce] [--columns gloo,ours,mpi]``

With ``--hosts 2`` the ranks of ``gloo``, ``ours`` and ``as_mpi`` are on emulated hosts.

The suite is `torch.testing._internal.distributed.distributed_test`, which the wheel has; it needs
`expecttest`. Columns: ``gloo`` is stock; ``ours`` has our groups in place of gloo's; ``as_mpi`` has
them, too, but tells the suite that it runs over MPI, for which it runs other tests; ``mpi`` does
the same with our groups over MPI, on ranks of mpirun.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import nullcontext, suppress
from importlib import import_module
from multiprocessing import Pipe
from pathlib import Path
from select import select
from typing import Any

from launcher import free_port

from mpicoll.cli.ending import unwind_at_termination
from mpicoll.hosts.emulation import Hosts

COLUMNS = ("gloo", "ours", "as_mpi", "mpi")
SECONDS = 100.0
"""After which a test counts as hung."""
REASONS = {
    "test_all_to_all": "gloo has no lists of unequal tensors: we do",
}
"""Why a test has another outcome over ours, by what its name begins with."""
HOSTS: list[Hosts] = []
"""The emulated hosts of the ranks, if any."""
OK, SKIPPED, FAILED, HUNG = "ok", "skipped", "failed", "hung"
_WORST = (HUNG, FAILED, OK, SKIPPED)


# -- one column, in a process that has imported the suite ------------------------------------------


def suite() -> Any:
    """Return the suite as `test_distributed_spawn.py` of torch's repository makes it."""
    from torch.testing._internal.distributed import distributed_test

    class TestDist(
        distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase
    ): ...

    return distributed_test, TestDist


def replace_mpi(name_of_ours: str) -> None:
    """Serve the backend that the suite calls mpi by our groups."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    for name in ("init_process_group", "new_group"):
        plain = getattr(c10d, name)

        def as_ours(*given: Any, _plain: Any = plain, **named: Any) -> Any:
            if named.get("backend") == "mpi":
                named["backend"] = name_of_ours
            return _plain(*(name_of_ours if each == "mpi" else each for each in given), **named)

        setattr(c10d, name, as_ours)
        setattr(dist, name, as_ours)


def run_column(column: str, wanted: str, after: str) -> None:
    """Print the outcome of every test after one, as a line of JSON."""
    if column in ("ours", "as_mpi"):
        os.environ["TORCHCOLL_AS_GLOO"] = "1"
    import torch

    # Otherwise every forked rank imports it within the timeout of its test.
    import_module("torchcoll.backend.making")
    from torchcoll.backend.registration import register

    register()
    torch.set_num_threads(1)
    module, case = suite()
    if column.endswith("mpi"):
        replace_mpi("gloo" if column == "as_mpi" else "mpicoll")
    case.setUpClass()
    run = run_over_mpi if column == "mpi" else run_test
    for name in sorted(name for name in dir(case) if name.startswith("test_")):
        if name > after and re.search(wanted, name):
            run(module, case, name)


def say(name: str, outcome: str, why: str) -> None:
    # A test may leave a line without its end.
    print(f"\n{json.dumps([name, outcome, why])}", flush=True)


def run_over_mpi(module: Any, case: Any, name: str) -> None:
    """Run a test on the ranks of this mpirun, which end after one that has failed."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if not comm.rank:
        say(name, HUNG, "")
        module.initialize_temp_directories()
        module.Barrier.init()
    file, folder = comm.bcast((tempfile.mktemp(), os.environ["TEMP_DIR"]))
    os.environ["TEMP_DIR"], module.Barrier.barrier_id = folder, 0
    code, why = 1, ""
    here, there = Pipe()
    try:
        case._run(comm.rank, name, file, there)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException as error:
        why = "".join(traceback.format_exception(error))
    there.close()
    with suppress(EOFError, OSError):
        while here.poll(0):
            why = str(here.recv())
    found = comm.allgather((outcome_of(code), why))
    outcome = next(each for each in _WORST if each in {each for each, _ in found})
    if not comm.rank:
        say(name, outcome, "\n".join(why for _, why in found)[-3000:])
    comm.Barrier()  # the first one that aborts ends the others
    if outcome == FAILED:
        MPI.COMM_WORLD.Abort(1)
        os._exit(1)  # MPICH may return, and the next test would begin
    if module.dist.is_initialized():  # a rank that skips a test leaves it in the middle
        module.dist.destroy_process_group()


def run_test(module: Any, case: Any, name: str) -> None:
    """Run a test on ranks that are forked, and print its outcome and why."""
    module.initialize_temp_directories()
    module.Barrier.init()
    file = tempfile.NamedTemporaryFile(delete=False).name  # noqa: SIM115
    os.remove(file)
    children, pipes = {}, []
    for rank in range(int(os.environ["WORLD_SIZE"])):
        here, there = Pipe()
        pid = os.fork()
        if not pid:
            run_rank(case, name, rank, file, there)
        there.close()
        children[pid] = rank
        pipes.append(here)
    codes = wait_for(dict(children))
    whys = []
    for pipe in pipes:
        with suppress(EOFError, OSError):
            while pipe.poll(0):
                whys.append(str(pipe.recv()))
        pipe.close()
    module.cleanup_temp_dir()
    outcomes = {outcome_of(code) for code in codes}
    outcome = next(each for each in _WORST if each in outcomes)
    say(name, outcome, "\n".join(whys)[-3000:])


def run_rank(case: Any, name: str, rank: int, file: str, pipe: Any) -> None:
    """Be a rank of a test, and end."""
    code = 1
    quiet = os.open(os.environ.get("SUITE_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        for hosts in HOSTS:
            hosts.enter(rank * hosts.count // int(os.environ["WORLD_SIZE"]))
        case._run(rank, name, file, pipe)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException as error:
        with suppress(OSError):
            pipe.send("".join(traceback.format_exception(error)))
    os._exit(code)


def wait_for(children: dict[int, int]) -> list[int | None]:
    """Return the exit codes of processes, None for those that had to be killed."""
    end, codes = time.monotonic() + SECONDS, []
    while children and time.monotonic() < end:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in children:
            del children[pid]
            codes.append(os.waitstatus_to_exitcode(status))
            if codes[-1] and not 70 <= codes[-1] < 95:
                # The others may wait for it in vain.
                end = min(end, time.monotonic() + 20)
        else:
            time.sleep(0.005)
    for pid in children:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        codes.append(None)
    return codes


def outcome_of(code: int | None) -> str:
    from torch.testing._internal.common_distributed import TEST_SKIPS

    if code is None:
        return HUNG
    if any(code == each.exit_code for each in TEST_SKIPS.values()):
        return SKIPPED
    return OK if code == 0 else FAILED


# -- all columns -----------------------------------------------------------------------------------


def start(column: str, options: argparse.Namespace, after: str) -> subprocess.Popen[str]:
    """Start a process that runs a column, or what is left of it after a test."""
    ranks, output = options.ranks, options.output
    environment = {
        **os.environ, "WORLD_SIZE": str(ranks), "BACKEND": "mpi" if "mpi" in column else "gloo",
        "TEMP_DIR": tempfile.mkdtemp(), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()),
        "SUITE_LOG": str(output / f"{column}.log"),
        **(HOSTS[0].environment() if HOSTS else {}),
    }  # fmt: skip
    command = [sys.executable, __file__, "--column", column, "--tests", options.tests,
               "--after", after]  # fmt: skip
    command += ["--hosts", str(HOSTS[0].count), "--prefix", HOSTS[0].prefix] if HOSTS else []
    if column == "mpi":
        command = ["mpirun", "-n", str(ranks), *command]
    with open(output / f"{column}.log", "a") as log:
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )


def outcomes_of(column: str, options: argparse.Namespace) -> dict[str, list[str]]:
    """Return the outcome of every test of a column, and why."""
    found: dict[str, list[str]] = {}
    while True:
        before = max(found, default="")
        process = start(column, options, before)
        assert process.stdout is not None
        while select([process.stdout], [], [], 2 * SECONDS)[0]:
            line = process.stdout.readline()
            if line.startswith('["test_'):
                name, *rest = json.loads(line)
                found[name] = rest
            elif not line:
                break
        process.kill()
        if process.wait() == 0 or max(found, default="") == before:
            return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=0, help="emulated hosts")
    parser.add_argument("--tests", default="", help="a regular expression")
    parser.add_argument("--columns", default="gloo,ours")
    parser.add_argument("--prefix", help=argparse.SUPPRESS)
    parser.add_argument("--column", help=argparse.SUPPRESS)
    parser.add_argument("--after", default="", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    if options.hosts:
        HOSTS.append(Hosts(options.hosts))
    if options.column:
        if HOSTS:
            HOSTS[0].prefix = options.prefix
        run_column(options.column, options.tests, options.after)
        return 0
    unwind_at_termination()  # removes the hosts
    with HOSTS[0] if HOSTS else nullcontext():
        return run_columns(options)


def run_columns(options: argparse.Namespace) -> int:
    """Run and compare the columns; return whether ours does worse."""
    columns = options.columns.split(",")
    found: dict[str, dict[str, list[str]]] = {}
    for column in columns:
        found[column] = outcomes_of(column, options)
        (options.output / f"{column}-{options.ranks}.json").write_text(json.dumps(found[column]))
    return report(found, columns)


def report(found: dict[str, dict[str, list[str]]], columns: list[str]) -> int:
    """Print how many tests end how, and every difference; return whether ours does worse."""
    print(f"{'':12}", *(f"{each:>10}" for each in columns))
    for outcome in (OK, SKIPPED, FAILED, HUNG):
        counts = [sum(each[0] == outcome for each in found[column].values()) for column in columns]
        print(f"{outcome:12}", *(f"{count:10}" for count in counts))
    worse = 0
    for name in found[columns[0]]:
        outcomes = [found[column].get(name, [HUNG, ""]) for column in columns]
        bad = any(outcome in (FAILED, HUNG) for outcome, _ in outcomes[len(columns) > 1 :])
        if len({outcome for outcome, _ in outcomes}) == 1 and (len(columns) > 1 or not bad):
            continue
        reason = next((REASONS[each] for each in REASONS if name.startswith(each)), "")
        print(name, *(outcome for outcome, _ in outcomes), reason)
        if bad and not reason:
            worse += 1
            print(
                *(f"    {line}" for _, why in outcomes for line in why.splitlines()[-4:]), sep="\n"
            )
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
