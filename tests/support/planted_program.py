"""Programs with planted causes of lost time, and healthy ones: one function for each kind.

    mpirun -n 4 python -m mpicoll.run tests/support/planted_program.py NAME RANK MS EVERY
    torchrun --nproc-per-node 4 -m torchcoll.run tests/support/planted_program.py NAME RANK MS EVERY

RANK is the rank at which the cause is planted, MS its length, and EVERY the steps between two of
its events. The line that a verdict must name ends with the comment CAUSE. The programs run until
they are killed. `SPEED` divides the amounts of work.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

SPEED = float(os.environ.get("SPEED", "1"))
HOG = "import os, sys\nparent = int(sys.argv[1])\nwhile os.getppid() == parent: sum(range(9999))"
STOPPER = """
import os, signal, sys, time
parent = int(sys.argv[1])
while os.getppid() == parent:
    time.sleep(0.35)
    os.kill(parent, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill(parent, signal.SIGCONT)
"""
SQUARES = """
import sys
for line in sys.stdin:
    print(sum(i * i for i in range(int(line))), flush=True)
"""

SERVER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
client, _ = server.accept()
while data := client.recv(1):
    time.sleep(float(sys.argv[1]))
    client.send(data)
"""


class Planted:
    """Whether this step has the cause, on this rank."""

    def __init__(self, victim: int, ms: float, every: int) -> None:
        self.victim, self.ms, self.every, self.step = victim, ms, every, 0

    def is_due(self, rank: int) -> bool:
        """Count a step, and return whether the cause is due."""
        self.step += 1
        return rank == self.victim and self.step % self.every == 0


A, B = np.random.rand(48, 48), np.random.rand(48, 48)
x, y = np.ones(8), np.empty(8)


def compute(ms: float) -> None:
    """Compute for so many milliseconds of this thread's time."""
    until = time.thread_time() + ms / 1e3 / SPEED
    while time.thread_time() < until:
        A.dot(B)


def fixed(ms: float) -> None:
    """Compute a fixed amount, which takes so many milliseconds on an idle core."""
    for _ in range(int(ms * 110 / SPEED)):
        A.dot(B)


def loop(planted: Planted, cause: Callable[[], object], ms: float = 1.0) -> None:
    """Make a balanced step, the cause where it is due, and the call."""
    while True:
        fixed(ms)
        if planted.is_due(rank):
            cause()
        world.Allreduce(x, y)  # CALL


def exchange() -> None:
    """Exchange messages with both neighbours, in a call of several lines."""
    for step in (1, -1):
        world.Sendrecv(
            x,
            dest=(rank + step) % size,
            recvbuf=y,
            source=(rank - step) % size,
        )


def exchange_by_requests() -> None:
    peers, targets = [(rank + step) % size for step in (1, -1)], np.empty((2, 8))
    requests = [world.Irecv(target, peer) for target, peer in zip(targets, peers, strict=True)]
    requests += [world.Isend(x, peer) for peer in peers]
    MPI.Request.Waitall(requests)


def hand_out_tasks() -> None:
    """Send a task to each other rank, and wait for all of them."""
    for worker in range(1, size):
        world.send(worker, worker)
    for worker in range(1, size):
        world.recv(source=worker)


def take_core(planted: Planted) -> None:
    """Have more processes on the core of the victim than there are others of the machine.

    The kernel moves those to the other cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    is_victim = rank == planted.victim
    os.sched_setaffinity(0, {cores[0]} if is_victim else {*cores[1:]} or {cores[0]})
    for _ in range(3 + round(os.getloadavg()[0]) if is_victim else 0):
        hog = subprocess.Popen(["setsid", sys.executable, "-c", HOG, str(os.getpid())])
        os.sched_setaffinity(hog.pid, {cores[0]})


# -- causes -----------------------------------------------------------------------------------


def work(planted: Planted) -> None:
    while True:
        fixed(1)
        if planted.is_due(rank):
            for _ in range(int(planted.ms * 110)):
                A.dot(B)  # CAUSE
        world.Allreduce(x, y)


def helper(planted: Planted) -> None:
    while True:
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        world.Allreduce(x, y)


def deep_helper(planted: Planted) -> None:
    def level(ms: float) -> None:
        fixed(ms)

    while True:
        level(1)
        if planted.is_due(rank):
            level(planted.ms)  # CAUSE
        world.Allreduce(x, y)


def batches(planted: Planted) -> None:
    def source() -> Any:
        while True:
            if planted.is_due(rank):
                sum(i * i for i in range(int(12000 * planted.ms)))  # CAUSE
            yield 1

    for _ in source():
        fixed(1)
        world.Allreduce(x, y)


def larger_array(planted: Planted) -> None:
    values = np.random.rand(int(20000 * (planted.ms if rank == planted.victim else 1)))
    while True:
        np.sort(values)  # CAUSE
        world.Allreduce(x, y)


def garbage(planted: Planted) -> None:
    keep = [[] for _ in range(int(60000 * planted.ms))] if rank == planted.victim else []
    assert keep or rank != planted.victim
    loop(planted, lambda: gc.collect())  # CAUSE


def sleeping(planted: Planted) -> None:
    loop(planted, lambda: time.sleep(planted.ms / 1e3))  # CAUSE


def fsync(planted: Planted) -> None:
    file = open(f"{scratch}/{rank}", "wb")  # noqa: SIM115

    def write() -> None:
        file.seek(0)
        file.write(bytes(int(planted.ms * 65536)))
        file.flush()
        os.fsync(file.fileno())  # CAUSE

    loop(planted, write)


def pipe(planted: Planted) -> None:
    """Wait for a child process that computes."""
    child = (
        subprocess.Popen(
            [sys.executable, "-c", SQUARES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if rank == planted.victim
        else None
    )

    def ask() -> None:
        assert child and child.stdin and child.stdout
        child.stdin.write(f"{int(20000 * planted.ms)}\n")
        child.stdin.flush()
        child.stdout.readline()  # CAUSE

    loop(planted, ask)


def child(planted: Planted) -> None:
    """Start a child process, and wait for it."""
    loop(planted, lambda: subprocess.run(["sh", "-c", "for i in 1 2 3; do :; done"]))  # CAUSE


def gil(planted: Planted) -> None:
    def hog() -> None:
        while True:
            sum(range(1000))  # CAUSE

    if rank == planted.victim:
        threading.Thread(target=hog, daemon=True).start()
    while True:
        sum(i * i for i in range(20000))
        world.Allreduce(x, y)


def worker(planted: Planted) -> None:
    """Wait for a thread of this process that computes."""
    jobs: queue.Queue[float] = queue.Queue()
    results: queue.Queue[int] = queue.Queue()

    def serve() -> None:
        while True:
            fixed(jobs.get())  # CAUSE
            results.put(1)

    threading.Thread(target=serve, daemon=True).start()
    while True:
        jobs.put(1 + (planted.ms if planted.is_due(rank) else 0))
        results.get()
        world.Allreduce(x, y)


def busy_thread(planted: Planted) -> None:
    """A thread of this process takes the core of the rank, without the GIL."""
    size = 300

    def multiply() -> None:
        left = np.random.rand(size, size)
        while True:
            np.sort(left, axis=None)  # CAUSE

    if rank == planted.victim:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        for _ in range(3):
            threading.Thread(target=multiply, daemon=True).start()
    loop(planted, lambda: None, 2)


def core(planted: Planted) -> None:
    """Other processes take the core of the rank."""
    take_core(planted)
    loop(planted, lambda: None, 2)


def stop(planted: Planted) -> None:
    if rank == planted.victim:
        subprocess.Popen([sys.executable, "-c", STOPPER, str(os.getpid())])
    loop(planted, lambda: None, 2)


def received(planted: Planted) -> None:
    """Receive more by Alltoallv, and work on it."""
    weights = np.ones(size)
    weights[planted.victim] = planted.ms
    sent = (weights * 2000).astype(int)
    counts = np.full(size, int(weights[rank] * 2000))
    values, target = np.random.rand(sent.sum()), np.empty(counts.sum())
    starts, ends = np.r_[0, np.cumsum(sent)[:-1]], np.r_[0, np.cumsum(counts)[:-1]]
    while True:
        world.Alltoallv([values, sent, starts, MPI.DOUBLE], [target, counts, ends, MPI.DOUBLE])
        np.sort(target)  # CAUSE


def contributed(planted: Planted) -> None:
    """Contribute more to Allgatherv, and work on it."""
    counts = np.full(size, 2000)
    counts[planted.victim] = int(2000 * planted.ms)
    values, target = np.random.rand(counts[rank]), np.empty(counts.sum())
    starts = np.r_[0, np.cumsum(counts)[:-1]]
    while True:
        np.sort(values)  # CAUSE
        world.Allgatherv(values, [target, counts, starts, MPI.DOUBLE])


def rows(planted: Planted) -> None:
    """Use sub-communicators only."""
    row, column = world.Split(rank // 2, rank), world.Split(rank % 2, rank)
    while True:
        fixed(1)
        column.Allreduce(x, y)
        if planted.is_due(rank):
            for _ in range(int(planted.ms * 110)):
                A.dot(B)  # CAUSE
        row.Allreduce(x, y)


def two_comms(planted: Planted) -> None:
    first, second = world.Dup(), world.Dup()
    while True:
        fixed(1)
        first.Allreduce(x, y)
        if planted.is_due(rank):
            for _ in range(int(planted.ms * 110)):
                A.dot(B)  # CAUSE
        second.Allreduce(x, y)


def calling_thread(planted: Planted) -> None:
    def serve() -> None:
        while True:
            fixed(1)
            if planted.is_due(rank):
                for _ in range(int(planted.ms * 110)):
                    A.dot(B)  # CAUSE
            world.Allreduce(x, y)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()


def nonblocking(planted: Planted) -> None:
    while True:
        fixed(1)
        if planted.is_due(rank):
            for _ in range(int(planted.ms * 110)):
                A.dot(B)  # CAUSE
        world.Iallreduce(x, y).Wait()


def root(planted: Planted) -> None:
    while True:
        fixed(1)
        if planted.is_due(rank):
            for _ in range(int(planted.ms * 110)):
                A.dot(B)  # CAUSE
        world.Bcast(x, planted.victim)
        world.Reduce(x, y, root=0)


def barrier(planted: Planted) -> None:
    while True:
        fixed(planted.ms)
        world.Allreduce(x, y)
        world.Barrier()  # CAUSE


def turns(planted: Planted) -> None:
    step = 0
    while True:
        step += 1
        fixed(1)
        if step % size == rank:
            fixed(planted.ms)  # CAUSE
        world.Allreduce(x, y)


def objects(planted: Planted) -> None:
    value = {str(key): [key] * 10 for key in range(int(planted.ms * 2000))}
    while True:
        fixed(1)
        world.allgather(value)


def large(planted: Planted) -> None:
    values, result = np.ones(int(planted.ms * 100000)), np.empty(int(planted.ms * 100000))
    while True:
        fixed(1)
        world.Allreduce(values, result)  # CAUSE


def logging_rank(planted: Planted) -> None:
    """Write a long log now and then."""
    log = open(f"{scratch}/log", "w")  # noqa: SIM115

    def write() -> None:
        for line in range(int(planted.ms * 1500)):
            print(f"step {line} of the run: loss {line / 7:.6f}", file=log)  # CAUSE
        log.flush()

    loop(planted, write)


def logger(planted: Planted) -> None:
    """Write a log by the standard library, whose lines are not the program's."""
    log = logging.getLogger("run")
    log.addHandler(logging.FileHandler(f"{scratch}/{rank}"))
    log.setLevel(logging.INFO)
    log.propagate = False

    def write() -> None:
        for particle in range(int(planted.ms * 80)):
            log.info("particle %d at %f", particle, particle / 7)  # CAUSE

    loop(planted, write)


def compress(planted: Planted) -> None:
    data = np.random.rand(int(5000 * planted.ms)).tobytes()
    loop(planted, lambda: zlib.compress(data))  # CAUSE


def overlap(planted: Planted) -> None:
    """Work between the begin of a call and its wait."""
    table = np.empty((size, 8))
    while True:
        request = world.Iallgather(x, table)
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        request.Wait()


def solver(planted: Planted) -> None:
    """Call objects' methods in a step: the work in one, the collective in another."""

    class Solver:
        def __init__(self) -> None:
            rows = int(4 * planted.ms) if rank == planted.victim else 4
            self.cells = np.random.rand(rows, 10000)

        def sweep(self) -> None:
            for row in self.cells:
                np.sort(row)  # CAUSE

        def residual(self) -> float:
            total: float = world.allreduce(float(rank))
            return total

    cells = Solver()
    while True:
        cells.sweep()
        cells.residual()


def prefix(planted: Planted) -> None:
    while True:
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        world.Scan(x, y)


def received_alone(planted: Planted) -> None:
    """Receive more by Alltoallv, and do nothing with it."""
    weights = np.ones(size)
    weights[planted.victim] = planted.ms
    sent = (weights * 20000).astype(int)
    counts = np.full(size, int(weights[rank] * 20000))
    values, target = np.random.rand(sent.sum()), np.empty(counts.sum())
    starts, ends = np.r_[0, np.cumsum(sent)[:-1]], np.r_[0, np.cumsum(counts)[:-1]]
    while True:
        fixed(1)
        world.Alltoallv(  # CAUSE
            [values, sent, starts, MPI.DOUBLE], [target, counts, ends, MPI.DOUBLE]
        )


def loader(planted: Planted) -> None:
    """Wait for a thread that waits for data."""
    batches: queue.Queue[int] = queue.Queue(maxsize=2)

    def produce() -> None:
        while True:
            time.sleep((planted.ms if rank == planted.victim else 0.5) / 1e3)
            batches.put(1)

    threading.Thread(target=produce, daemon=True).start()
    while True:
        batches.get()  # CAUSE
        fixed(1)
        world.Allreduce(x, y)


def decoder(planted: Planted) -> None:
    """Wait for a thread that decodes data."""
    batches: queue.Queue[int] = queue.Queue(maxsize=2)

    def produce() -> None:
        while True:
            work = planted.ms if rank == planted.victim else 0.5
            sum(i * i for i in range(int(12000 * work)))  # CAUSE
            batches.put(1)

    threading.Thread(target=produce, daemon=True).start()
    while True:
        batches.get()
        fixed(1)
        world.Allreduce(x, y)


def background(planted: Planted) -> None:
    """Wait for the thread of the step before, which compresses."""
    data, threads = np.random.rand(int(5000 * planted.ms)).tobytes(), []

    def write() -> None:
        for thread in threads:
            thread.join()
        thread = threading.Thread(target=lambda: zlib.compress(data))  # CAUSE
        thread.start()
        threads[:] = [thread]

    loop(planted, write)


def server(planted: Planted) -> None:
    """Ask a server on the network."""
    link: Any = None
    if rank == planted.victim:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(planted.ms / 1e3)], stdout=subprocess.PIPE
        )
        assert process.stdout
        link = socket.create_connection(("127.0.0.1", int(process.stdout.readline())))

    def ask() -> None:
        link.send(b"1")
        link.recv(1)  # CAUSE

    loop(planted, ask)


def second_half(planted: Planted) -> None:
    """Get more work after some seconds."""
    begin = time.monotonic()
    while True:
        fixed(1)
        if planted.is_due(rank) and time.monotonic() - begin > 2:
            fixed(planted.ms)  # CAUSE
        world.Allreduce(x, y)


def halo(planted: Planted) -> None:
    """Exchange messages with both neighbours, and nothing else."""
    while True:
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        world.Sendrecv(x, (rank + 1) % size, recvbuf=y, source=(rank - 1) % size)


def halo_and_sum(planted: Planted) -> None:
    while True:
        fixed(1)
        if planted.is_due(rank):
            for _ in range(int(planted.ms * 110)):
                A.dot(B)  # CAUSE
        exchange()
        world.Allreduce(x, y)


def halo_and_rare_sum(planted: Planted) -> None:
    for step in range(1 << 30):
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        exchange()
        if step % 50 == 0:
            world.Allreduce(x, y)


def testing(planted: Planted) -> None:
    """Test a request until its message has come."""
    while True:
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        request, sent = world.Irecv(y, (rank - 1) % size), world.Isend(x, (rank + 1) % size)
        while not request.Test():
            pass
        sent.Wait()


def testing_and_sleeping(planted: Planted) -> None:
    """Sleep between the tests of a collective."""
    while True:
        fixed(1)
        request = world.Ibarrier()
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        while not request.Test():
            time.sleep(2e-4)


def probing(planted: Planted) -> None:
    """Look for a message until it has come."""
    while True:
        fixed(1)
        if planted.is_due(rank):
            time.sleep(planted.ms / 1e3)  # CAUSE
        request = world.isend(rank, (rank + 1) % size)
        while not world.iprobe((rank - 1) % size):
            pass
        world.recv(source=(rank - 1) % size)
        request.wait()


def sleeping_halo(planted: Planted) -> None:
    while True:
        fixed(1)
        if planted.is_due(rank):
            time.sleep(planted.ms / 1e3)  # CAUSE
        exchange_by_requests()


def sleeping_halo_and_sum(planted: Planted) -> None:
    while True:
        fixed(1)
        if planted.is_due(rank):
            time.sleep(planted.ms / 1e3)  # CAUSE
        exchange_by_requests()
        world.allreduce(1.0)


def writing_halo(planted: Planted) -> None:
    file = open(f"{scratch}/{rank}", "wb")  # noqa: SIM115
    while True:
        fixed(1)
        if planted.is_due(rank):
            file.seek(0)
            file.write(bytes(int(planted.ms * 65536)))
            file.flush()
            os.fsync(file.fileno())  # CAUSE
        world.sendrecv(rank, (rank + 1) % size, source=(rank - 1) % size)


def halo_core(planted: Planted) -> None:
    take_core(planted)
    while True:
        fixed(2)
        exchange()


def halo_core_and_sum(planted: Planted) -> None:
    take_core(planted)
    while True:
        fixed(2)
        exchange()
        world.Allreduce(x, y)


def slow_stage(planted: Planted) -> None:
    """Each rank of a chain works on the message of its predecessor."""
    while True:
        if rank:
            world.Recv(y, rank - 1)
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        if rank < size - 1:
            world.Ssend(x, rank + 1)


def slow_worker(planted: Planted) -> None:
    """A rank hands out one task to each of the others, and waits for all of them."""
    while True:
        if rank == 0:
            hand_out_tasks()
        else:
            world.recv(source=0)
            fixed(1)
            if planted.is_due(rank):
                fixed(planted.ms)  # CAUSE
            world.send(rank, 0)
        world.Barrier()


def slow_master(planted: Planted) -> None:
    """A rank that hands out tasks needs longer for it than the others for their work."""
    status = MPI.Status()
    while rank == 0:
        world.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        world.recv(source=status.source)
        fixed(planted.ms)  # CAUSE
        world.send(1, status.source)
    while True:
        world.send(rank, 0)
        world.recv(source=0)
        fixed(1)


def ring_of_sends(planted: Planted) -> None:
    """Large messages around a ring, one rank after the other."""
    values, target = np.ones(1 << 15), np.empty(1 << 15)
    while True:
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        if rank % 2 == 0:
            world.Send(values, (rank + 1) % size)
            world.Recv(target, (rank - 1) % size)
        else:
            world.Recv(target, (rank - 1) % size)
            world.Send(values, (rank + 1) % size)
        world.Bcast(x, 0)


def torch_batch(planted: Planted) -> None:
    """An uneven batch: the forward and the backward pass of one rank take longer."""
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.rand(int(256 * (planted.ms if rank == planted.victim else 1)), 64)
    while True:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()  # CAUSE
        loss.backward()  # CAUSE
        optimizer.step()


def torch_work(planted: Planted) -> None:
    import torch

    values = torch.ones(8)
    while True:
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        dist.all_reduce(values)


def torch_sleeping(planted: Planted) -> None:
    import torch

    values = torch.ones(8)
    while True:
        fixed(1)
        if planted.is_due(rank):
            time.sleep(planted.ms / 1e3)  # CAUSE
        dist.all_reduce(values)


def torch_stages(planted: Planted) -> None:
    """A pipeline with a slow stage, and a sum at its end."""
    import torch

    values, loss = torch.ones(1000), torch.ones(1)
    while True:
        if rank > 0:
            dist.recv(values, rank - 1)
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        if rank < size - 1:
            dist.send(values, rank + 1)
        dist.all_reduce(loss)


def torch_ring(planted: Planted) -> None:
    """Messages alone, which do not block."""
    import torch

    values, target = torch.ones(1000), torch.empty(1000)
    while True:
        fixed(1)
        if planted.is_due(rank):
            fixed(planted.ms)  # CAUSE
        requests = [dist.isend(values, (rank + 1) % size), dist.irecv(target, (rank - 1) % size)]
        for request in requests:
            request.wait()


# -- healthy ----------------------------------------------------------------------------------


def balanced(planted: Planted) -> None:
    while True:
        fixed(planted.ms)
        world.Allreduce(x, y)


def noise(planted: Planted) -> None:
    """Exponential times, equal on all ranks."""
    source = np.random.default_rng(1000 * planted.victim + rank)
    for step in range(1 << 30):
        fixed(min(source.exponential(planted.ms), 40))
        world.Allreduce(x, y)
        if step + 1 == planted.every:
            time.sleep(1000)


def bursts(planted: Planted) -> None:
    """A rank that chance chooses computes longer."""
    source = np.random.default_rng(planted.victim)
    while True:
        fixed(1)
        if source.integers(size) == rank:
            fixed(planted.ms)
        world.Allreduce(x, y)


def idle(planted: Planted) -> None:
    for _ in range(200):
        fixed(1)
        world.Allreduce(x, y)
    time.sleep(1000)  # CAUSE


def equal_threads(planted: Planted) -> None:
    def hog() -> None:
        while True:
            sum(range(1000))

    threading.Thread(target=hog, daemon=True).start()
    while True:
        sum(i * i for i in range(5000))
        world.Allreduce(x, y)


def equal_sleep(planted: Planted) -> None:
    while True:
        time.sleep(planted.ms / 1e3)
        world.Allreduce(x, y)


def equal_rows(planted: Planted) -> None:
    row, column = world.Split(rank // 2, rank), world.Split(rank % 2, rank)
    while True:
        fixed(planted.ms)
        column.Allreduce(x, y)
        fixed(planted.ms)
        row.Allreduce(x, y)


def several(planted: Planted) -> None:
    """Other collectives in turn."""
    table = np.empty((size, 8))
    while True:
        fixed(planted.ms)
        world.Bcast(x, 0)
        world.Allgather(x, table)
        fixed(planted.ms)
        world.Reduce(x, y, root=0)
        world.Alltoall(table, table.copy())


def phases(planted: Planted) -> None:
    """Make as many calls in a step as there are ranks, at a place each."""
    while True:
        for place in range(size):
            fixed(planted.ms)
            for _ in range(place == 0):
                world.Allreduce(x, y)
            for _ in range(place == 1):
                world.Barrier()
            for _ in range(place > 1):
                world.allreduce(1.0)


def pinned(planted: Planted) -> None:
    """Stay on one core: the scheduler cannot move the rank away from a busy neighbour."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    balanced(planted)


def short_calls(planted: Planted) -> None:
    while True:
        world.Allreduce(x, y)


def equal_nonblocking(planted: Planted) -> None:
    while True:
        request = world.Iallreduce(x, y)
        fixed(planted.ms)
        request.Wait()


def long_tail(planted: Planted) -> None:
    """Times with a long tail, equal on all ranks."""
    source = np.random.default_rng(1000 * planted.victim + rank)
    while True:
        fixed(min(source.lognormal(0, 1.2), 50))
        world.Allreduce(x, y)


def heavy_steps(planted: Planted) -> None:
    """All ranks compute longer in each tenth step."""
    for step in range(1 << 30):
        fixed(20 * planted.ms if step % 10 == 0 else planted.ms)
        world.Allreduce(x, y)


def equal_checkpoint(planted: Planted) -> None:
    file = open(f"{scratch}/{rank}", "wb")  # noqa: SIM115
    for step in range(1 << 30):
        fixed(planted.ms)
        if step % 20 == 0:
            file.seek(0)
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
        world.Allreduce(x, y)


def rotating_root(planted: Planted) -> None:
    for step in range(1 << 30):
        fixed(planted.ms)
        world.Bcast(x, root=step % size)


def mixed_sizes(planted: Planted) -> None:
    arrays = [np.ones(count) for count in (8, 2000, 100000)]
    for step in range(1 << 30):
        fixed(planted.ms)
        world.Allreduce(arrays[step % 3], arrays[step % 3].copy())


def equal_halo(planted: Planted) -> None:
    while True:
        fixed(planted.ms)
        exchange()


def equal_halo_and_sum(planted: Planted) -> None:
    while True:
        fixed(planted.ms)
        exchange_by_requests()
        world.Allreduce(x, y)


def equal_halo_and_rare_sum(planted: Planted) -> None:
    for step in range(1 << 30):
        fixed(planted.ms)
        exchange()
        if step % 50 == 0:
            world.Allreduce(x, y)


def equal_testing(planted: Planted) -> None:
    while True:
        fixed(planted.ms)
        requests = [world.Irecv(y, (rank - 1) % size), world.Isend(x, (rank + 1) % size)]
        while not MPI.Request.Testall(requests):
            pass


def noisy_halo(planted: Planted) -> None:
    """Exponential times, equal on all ranks."""
    source = np.random.default_rng(1000 * planted.victim + rank)
    while True:
        fixed(min(source.exponential(planted.ms), 40))
        exchange_by_requests()


def equal_ring(planted: Planted) -> None:
    """Hand a message around a ring: one rank after the other has it."""
    values = np.ones(1 << 12)
    while True:
        if rank == 0:
            fixed(planted.ms)
            world.Send(values, 1)
            world.Recv(values, size - 1)
        else:
            world.Recv(values, rank - 1)
            fixed(planted.ms)
            world.Send(values, (rank + 1) % size)


def pass_on(planted: Planted) -> None:
    """Work on the message of the rank before, and send one to the next rank."""
    if rank:
        world.Recv(y, rank - 1)
    fixed(planted.ms)
    if rank < size - 1:
        world.Send(x, rank + 1)


def pipeline(planted: Planted) -> None:
    while True:
        pass_on(planted)


def pipeline_and_sum(planted: Planted) -> None:
    """A pipeline whose last rank comes last to each collective."""
    while True:
        pass_on(planted)
        world.Allreduce(x, y)


def equal_tasks(planted: Planted) -> None:
    """A rank hands out equal tasks to the ranks that ask."""
    status = MPI.Status()
    while rank == 0:
        world.recv(source=MPI.ANY_SOURCE, status=status)
        world.send(1, status.source)
    while True:
        world.send(rank, 0)
        world.recv(source=0)
        fixed(planted.ms)


def equal_tasks_and_sum(planted: Planted) -> None:
    while True:
        if rank == 0:
            hand_out_tasks()
        else:
            world.recv(source=0)
            fixed(planted.ms)
            world.send(rank, 0)
        world.bcast(1.0)


def torch_balanced(planted: Planted) -> None:
    import torch

    values = torch.ones(8)
    while True:
        fixed(planted.ms)
        dist.all_reduce(values)


def torch_pipeline(planted: Planted) -> None:
    """Equal stages; each sum waits for the last one."""
    torch_stages(Planted(-1, 0, 1))


def torch_equal_ring(planted: Planted) -> None:
    torch_ring(Planted(-1, 0, 1))


def torch_equal_batch(planted: Planted) -> None:
    torch_batch(Planted(-1, 1, 1))


# -- hangs and ends ----------------------------------------------------------------------------


def missing_call(planted: Planted) -> None:
    for step in range(100):
        if rank == planted.victim and step == 60:
            time.sleep(1000)  # CAUSE
        world.Allreduce(x, y)


def endless_loop(planted: Planted) -> None:
    for step in range(100):
        while rank == planted.victim and step == 60:  # CAUSE
            pass  # CAUSE
        world.Allreduce(x, y)


def wrong_order(planted: Planted) -> None:
    first, second = world.Dup(), world.Dup()
    for step in range(100):
        if rank == planted.victim and step == 60:
            second.Allreduce(x, y)  # CAUSE
            first.Allreduce(x, y)
        else:
            first.Allreduce(x, y)
            second.Allreduce(x, y)


def wrong_length(planted: Planted) -> None:
    for step in range(100):
        count = 16 if rank == planted.victim and step == 40 else 8
        world.Allreduce(np.ones(count), np.empty(count))  # CAUSE


def wrong_root(planted: Planted) -> None:
    for step in range(100):
        world.Bcast(x, root=1 if rank == planted.victim and step == 70 else 0)  # CAUSE
        world.Allreduce(x, y)


def receiving(planted: Planted) -> None:
    for step in range(100):
        if rank == planted.victim and step == 60:
            world.Recv(x, source=(rank + 1) % size, tag=7)  # CAUSE
        world.Allreduce(x, y)


def sending(planted: Planted) -> None:
    values = np.ones(1 << 20)
    for step in range(100):
        if rank == planted.victim and step == 60:
            world.Send(values, (rank + 1) % size)  # CAUSE
        world.Allreduce(x, y)


def locking(planted: Planted) -> None:
    lock = threading.Lock()
    lock.acquire()
    for step in range(100):
        if rank == planted.victim and step == 60:
            lock.acquire()  # CAUSE
        world.Allreduce(x, y)


def raising(planted: Planted) -> None:
    for step in range(100):
        if rank == planted.victim and step == 60:
            raise ValueError(f"no cell {step}")  # CAUSE
        world.Allreduce(x, y)


def missing_row(planted: Planted) -> None:
    row = world.Split(rank // 2, rank)
    for step in range(100):
        if rank == planted.victim and step == 60:
            time.sleep(1000)  # CAUSE
        row.Allreduce(x, y)
        if step % 10 == 0:
            world.Barrier()


def wrong_type(planted: Planted) -> None:
    for step in range(100):
        kind = np.float32 if rank == planted.victim and step == 40 else np.float64
        world.Allreduce(np.ones(8, kind), np.empty(8, kind))  # CAUSE


def wrong_call(planted: Planted) -> None:
    for step in range(100):
        if rank == planted.victim and step == 40:
            world.Bcast(x, 0)  # CAUSE
        else:
            world.Allreduce(x, y)


def missing_message(planted: Planted) -> None:
    """Receive what nobody sends, between messages."""
    for _ in range(60):
        exchange()
    while True:
        if rank == planted.victim:
            world.Recv(y, source=(rank + 1) % size, tag=7)  # CAUSE
        exchange()


def wrong_tag(planted: Planted) -> None:
    for step in range(100):
        fixed(1)
        if rank == 0:
            world.send(step, 1, tag=3 if step == 60 else 1)
        elif rank == 1:
            world.recv(source=0, tag=1)  # CAUSE
    time.sleep(1000)


def two_sends(planted: Planted) -> None:
    """Send large messages to each other before both receive."""
    values, target = np.ones(1 << 20), np.empty(1 << 20)
    exchange()
    world.Send(values, (rank + 1) % size)  # CAUSE
    world.Recv(target, (rank - 1) % size)


def killed(planted: Planted) -> None:
    balanced(planted)


def main() -> None:
    name, victim, ms, every = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    globals()[name](Planted(victim, ms, every))


if __name__ == "__main__":
    scratch = os.environ.get("SCRATCH", ".")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        import torch.distributed as dist

        dist.init_process_group("gloo")
        rank, size = dist.get_rank(), dist.get_world_size()
    else:
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        rank, size = world.rank, world.size
    main()
