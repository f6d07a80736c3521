"""Questions as engineers ask them of MPI, torch and NCCL: a page answers each, two links away."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from launcher import ROOT
from pages import DOCS

MOST_LINKS = 2
"""From the front page to the answer: with the front page at most three pages are read."""

ANSWERS = {
    "Why is comm.bcast of a large NumPy array so slow?": ("explanation/objects.md", "pickles"),
    "OverflowError or MPI_ERR_ARG when I send more than 2 GiB": (
        "explanation/objects.md", "MPI_ERR_ARG"),
    "Does Iallreduce make progress while I compute?": ("explanation/overlap.md", "nobody"),
    "Does MPI.IN_PLACE work?": ("reference/mpi4py_compatibility.md", "`MPI.IN_PLACE` works"),
    "Can I use MPIPoolExecutor?": ("reference/mpi4py_compatibility.md", "MPIPoolExecutor"),
    "Each process says that it is rank 0 of 1": (
        "howto/start_ranks.md", "starts each process as a group of\none"),
    "One rank raised an exception and the job hangs": (
        "howto/run_programs.md", "ends all ranks when one rank raises an error"),
    "Is it safe to call collectives from several threads?": (
        "reference/mpi4py_compatibility.md", "Two threads must not"),
    "Do I need MPI_THREAD_MULTIPLE?": ("questions.md", "`MPI_THREAD_MULTIPLE`? | No"),
    "Are operators of MPI.Op.Create faster?": (
        "reference/mpi4py_compatibility.md", "`MPI.Op.Create` | MPI"),
    "Sums differ between two runs; are they deterministic?": (
        "howto/choose_an_algorithm.md", "MPICOLL_REPRODUCIBLE=1"),
    "Is the sum bitwise equal on all ranks?": (
        "explanation/results.md", "the last bits can differ between the ranks"),
    "Can I run collectives in a Jupyter notebook?": ("howto/notebook.md", "needs no launcher"),
    "CuPy arrays with an MPI that is not GPU-aware": ("explanation/gpu.md", "staged"),
    "mpi4py is slower than OSU's benchmark in C": (
        "explanation/instruments.md", "part of a microsecond"),
    "gloo: Connection refused between two hosts": (
        "howto/network_interface.md", "GLOO_SOCKET_IFNAME=eth0"),
    "Which interface does NCCL use?": ("howto/network_interface.md", "NCCL_SOCKET_IFNAME"),
    "The watchdog timed out: which rank is missing?": ("howto/gloo_and_nccl.md", "dumps"),
    "How do I print the algorithm that NCCL chose?": (
        "howto/library_algorithm.md", "NCCL_DEBUG_SUBSYS=INIT,TUNING"),
    "Does NCCL_ALGO=Ring give deterministic sums?": (
        "explanation/results.md", "NCCL's order depends on"),
    "What is the busbw factor of all-gather, and why?": (
        "explanation/bandwidth.md", "| allgather | (p-1)/p | a rank receives"),
    "busbw is lower than my link: is that normal?": ("explanation/bandwidth.md", "80 to 95 %"),
    "Duplicate GPU detected": ("reference/gpus.md", "Duplicate GPU detected"),
    "How much of my DDP step is exposed communication?": (
        "explanation/overlap.md", "_get_ddp_logging_data"),
    "Is DDP on CPUs with gloo faster?": ("tutorials/ddp_program.md", "-m torchcoll.run"),
    "init_process_group with the backend mpicoll: an example": (
        "howto/run_programs.md", 'init_process_group("mpicoll")'),
    "Does FSDP2 work?": ("reference/torch_compatibility.md", "FSDP2"),
    "all_gather_object is slow": ("explanation/objects.md", "all_gather_object"),
    "gloo refuses int16": ("reference/torch_compatibility.md", "gloo reduces no int16"),
    "Ranks called all_reduce with different shapes: what happens?": (
        "explanation/different_calls.md", "aborts: message truncated"),
    "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM has no effect": (
        "howto/library_algorithm.md", "MPICH then takes another one, silently"),
    "coll_tuned_allreduce_algorithm is ignored": (
        "howto/library_algorithm.md", "coll_tuned_use_dynamic_rules` must be 1"),
    "How do I tune Open MPI's thresholds for my cluster?": (
        "howto/tune_a_library.md", "OMPI_MCA_coll_tuned_dynamic_rules_filename"),
    "When is a ring faster than recursive doubling?": (
        "explanation/ring_or_tree.md", "ring above"),
    "MPICH: bus error in Docker": ("howto/this_machine.md", "--shm-size=1g"),
    "CMA: Operation not permitted in a container": (
        "explanation/shared_memory.md", "SYS_PTRACE"),
    "There are not enough slots available": ("howto/start_ranks.md", "--oversubscribe"),
    "How do I pin ranks to cores, and see it?": ("howto/bind_ranks.md", "HYDRA_TOPO_DEBUG=1"),
    "Collectives are slow with more ranks than cores": (
        "howto/bind_ranks.md", "mpi_yield_when_idle"),
    "Which rank is the straggler in my job?": ("howto/slow_job.md", "straggler"),
    "DDP hangs: one rank has fewer batches": ("howto/debug_a_hang.md", "`with model.join():`"),
    "DDP hangs: one rank skips a part of the model": (
        "howto/debug_a_hang.md", "find_unused_parameters=True"),
    "The job hangs before its first allreduce": (
        "howto/debug_a_hang.md", "A hang in the first call"),
    "NCCL: Watchdog caught collective operation timeout": (
        "reference/errors.md", "Watchdog caught collective operation timeout"),
    "MPI_ERR_TRUNCATE: message truncated": ("reference/errors.md", "MPI_ERR_TRUNCATE"),
    "MPI_Comm_split: Too many communicators": ("reference/errors.md", "Too many communicators"),
    "libmpi.so.12: cannot open shared object file": ("reference/errors.md", "MPI4PY_LIBMPI"),
    "Distributed package doesn't have MPI built in": (
        "reference/errors.md", "needs no build of torch"),
    "Allgather of an array in Fortran order gives mixed elements": (
        "reference/mpi4py_compatibility.md", "travels as it lies in memory"),
    "The same sum on another number of ranks": ("howto/choose_an_algorithm.md", "math.fsum"),
    "Are neighbour collectives faster?": ("questions.md", "neighbour collectives get faster? | No"),
    "torchrun: Address already in use": ("reference/errors.md", "torchrun --standalone"),
    "My profiler of MPI shows no Allreduce": ("questions.md", "Only those that MPI runs"),
    "Do PETSc and other C libraries become faster?": ("questions.md", "they call MPI themselves"),
    "Each rank has a container of its own": (
        "howto/this_machine.md", "the containers must share `/dev/shm`"),
    "Does it run on Windows or macOS?": ("questions.md", "macOS or Windows? | No"),
    "How do I uninstall it, and what stays in my home?": (
        "howto/uninstall.md", "~/.local/share/mpicoll"),
    "import torch imports this package: how do I turn that off?": (
        "howto/uninstall.md", "TORCH_DEVICE_BACKEND_AUTOLOAD=0"),
    "Gatherv of a large array: OverflowError": ("reference/errors.md", "OverflowError: ... 'int'"),
    "Scatterv refuses counts in a NumPy array": (
        "reference/mpi4py_compatibility.md", "can be lists or NumPy arrays"),
    "Can I pass a torch tensor to comm.Allreduce?": (
        "reference/mpi4py_compatibility.md", "Tensors of torch on the host"),
    "ValueError: ndarray is not contiguous": ("reference/errors.md", "ndarray is not contiguous"),
    "Collectives of large messages are slow with coll/han": (
        "howto/library_algorithm.md", "OMPI_MCA_coll=^han"),
    "new_group hangs": ("howto/debug_a_hang.md", "also ranks outside of the new group"),
    "comm.send to the same rank hangs": ("howto/debug_a_hang.md", "or to the rank itself"),
    "mpiexec hangs with multiprocessing and spawn": ("reference/errors.md", "PMIU_write error"),
    "gloo: Invalid scalar type": ("reference/errors.md", "Invalid scalar type"),
    "How do I set the timeout of gloo?": ("reference/deadlines.md", "timedelta(minutes=5)"),
    "RuntimeError: Socket Timeout": ("reference/errors.md", "Socket Timeout"),
    "The job becomes slower the longer it runs": ("questions.md", "slower with time"),
    "Does MPI_Comm_spawn work?": ("reference/mpi4py_compatibility.md", "those of `Spawn`"),
}  # fmt: skip
"""The page of each answer, and words that it has."""


@cache
def pages_within(links: int) -> frozenset[Path]:
    """Return the pages that so many links lead to from the front page."""
    if links == 0:
        return frozenset({ROOT / "README.md"})
    near = pages_within(links - 1)
    return near | {
        (page.parent / target).resolve()
        for page in near
        if page.exists()
        for target in re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]*)?\)", page.read_text())
    }


@pytest.mark.parametrize("question", ANSWERS)
def test_a_page_near_the_front_page_answers(question: str) -> None:
    name, words = ANSWERS[question]
    assert DOCS / name in pages_within(MOST_LINKS)
    assert words in (DOCS / name).read_text()


def test_there_are_forty_questions() -> None:
    assert len(ANSWERS) >= 40
