"""Planted causes of lost time and healthy jobs, as data."""

from __future__ import annotations

from itertools import cycle
from typing import NamedTuple

WORK, UNEVEN, ASLEEP = "more work", "uneven data", "asleep"
CORE, THREAD, CHILD = "shared core", "own thread", "child process"
STOPPED, BARRIER, TURNS, OBJECTS = "stopped", "unneeded call", "turns", "pickled objects"
MOVEMENT, IDLE, NOBODY = "data movement", "idle", "nobody"
HANG, MISMATCH, KILLED = "hang", "mismatch", "killed"


class Job(NamedTuple):
    """One launch.

    Attributes:
        function: of `planted_program.py`.
        kind: of the cause, as `planted_answers.py` reads it from a verdict.
        ms, every: its length, and the steps between two of its events.
        ranks: of the launch, and `victim` that of the cause.
        way: how it is judged: ``doctor`` while it runs, or ``postmortem`` once it is killed.
        has_neighbour: a busy process runs beside the ranks.
        backend: mpi or torch.
    """

    function: str
    kind: str
    ms: float = 3.0
    every: int = 1
    ranks: int = 3
    victim: int = 1
    way: str = "doctor"
    has_neighbour: bool = False
    backend: str = "mpi"

    @property
    def name(self) -> str:
        """The job in few words."""
        beside = " beside" if self.has_neighbour else ""
        return f"{self.function} {self.ms:g}/{self.every} {self.victim}of{self.ranks}{beside}"

    @property
    def is_healthy(self) -> bool:
        """Whether no rank is to be blamed."""
        return self.kind in (NOBODY, IDLE, MOVEMENT, KILLED)


_PLANTED = (
    # function, kind, ms, every, ranks, victim
    ("work", WORK, 3, 1, 3, 1), ("work", WORK, 1, 1, 2, 1), ("work", WORK, 8, 1, 4, 3),
    ("work", WORK, 40, 20, 3, 1), ("work", WORK, 30, 10, 2, 0), ("work", WORK, 60, 50, 3, 2),
    ("work", WORK, 3, 3, 3, 0),
    ("helper", WORK, 4, 1, 3, 1), ("helper", WORK, 30, 10, 2, 1), ("deep_helper", WORK, 4, 1, 3, 2),
    ("batches", WORK, 4, 1, 2, 1), ("batches", WORK, 4, 1, 3, 0),
    ("larger_array", WORK, 5, 1, 3, 1), ("larger_array", WORK, 3, 1, 2, 0),
    ("garbage", WORK, 3, 10, 3, 1), ("logging_rank", WORK, 20, 20, 3, 0),
    ("logging_rank", WORK, 30, 50, 2, 0),
    ("sleeping", ASLEEP, 3, 1, 3, 1), ("sleeping", ASLEEP, 5, 1, 2, 1),
    ("sleeping", ASLEEP, 40, 20, 3, 2), ("sleeping", ASLEEP, 10, 5, 4, 0),
    ("fsync", ASLEEP, 1, 1, 3, 1), ("fsync", ASLEEP, 1, 1, 2, 0),
    ("pipe", CHILD, 4, 1, 3, 1), ("pipe", CHILD, 4, 1, 2, 0), ("child", CHILD, 1, 1, 3, 2),
    ("gil", THREAD, 1, 1, 3, 1), ("gil", THREAD, 1, 1, 2, 1),
    ("worker", THREAD, 4, 1, 3, 1), ("worker", THREAD, 4, 1, 2, 0),
    ("busy_thread", THREAD, 1, 1, 2, 1),
    ("core", CORE, 1, 1, 2, 1), ("core", CORE, 1, 1, 2, 0),
    ("stop", STOPPED, 1, 1, 3, 1), ("stop", STOPPED, 1, 1, 2, 0),
    ("received", UNEVEN, 10, 1, 3, 1), ("received", UNEVEN, 6, 1, 2, 0),
    ("contributed", UNEVEN, 10, 1, 3, 1), ("contributed", UNEVEN, 6, 1, 4, 2),
    ("rows", WORK, 5, 1, 4, 3), ("rows", WORK, 5, 1, 4, 0),
    ("two_comms", WORK, 3, 1, 2, 1), ("two_comms", WORK, 4, 1, 3, 0),
    ("calling_thread", WORK, 3, 1, 3, 1), ("calling_thread", WORK, 5, 1, 2, 0),
    ("nonblocking", WORK, 4, 1, 3, 1), ("nonblocking", WORK, 6, 1, 2, 1),
    ("root", WORK, 4, 1, 3, 1), ("root", WORK, 4, 1, 3, 0),
    ("logger", WORK, 5, 1, 3, 1), ("logger", WORK, 40, 20, 3, 0),
    ("compress", WORK, 4, 1, 3, 1), ("compress", WORK, 3, 1, 2, 0),
    ("overlap", WORK, 4, 1, 3, 1), ("overlap", WORK, 6, 1, 2, 0),
    ("solver", WORK, 4, 1, 3, 2), ("prefix", WORK, 4, 1, 3, 0), ("second_half", WORK, 5, 1, 3, 2),
    ("received_alone", UNEVEN, 12, 1, 3, 1),
    ("loader", ASLEEP, 6, 1, 3, 1), ("server", ASLEEP, 4, 1, 3, 1), ("server", ASLEEP, 5, 1, 2, 0),
    ("decoder", THREAD, 5, 1, 2, 1), ("background", THREAD, 8, 1, 2, 1),
    ("halo", WORK, 3, 1, 3, 1), ("halo", WORK, 2, 1, 2, 0),
    ("halo_and_sum", WORK, 3, 1, 3, 2), ("halo_and_sum", WORK, 4, 1, 4, 1),
    ("halo_and_rare_sum", WORK, 3, 1, 3, 1), ("halo_and_rare_sum", WORK, 30, 10, 2, 1),
    ("sleeping_halo", ASLEEP, 4, 1, 4, 2), ("sleeping_halo", ASLEEP, 3, 1, 2, 0),
    ("sleeping_halo_and_sum", ASLEEP, 4, 1, 3, 1), ("sleeping_halo_and_sum", ASLEEP, 20, 10, 2, 1),
    ("writing_halo", ASLEEP, 1, 1, 3, 1), ("halo_core", CORE, 1, 1, 2, 1),
    ("halo_core_and_sum", CORE, 1, 1, 2, 0), ("slow_stage", WORK, 3, 1, 3, 1),
    ("slow_stage", WORK, 3, 1, 4, 0), ("slow_worker", WORK, 3, 1, 4, 2),
    ("slow_worker", WORK, 3, 1, 3, 1), ("slow_master", WORK, 3, 1, 3, 0),
    ("ring_of_sends", WORK, 4, 1, 3, 2), ("ring_of_sends", WORK, 3, 1, 2, 1),
    ("testing", WORK, 3, 1, 3, 1), ("testing", WORK, 4, 1, 2, 0),
    ("testing_and_sleeping", WORK, 4, 1, 3, 0),
    ("probing", ASLEEP, 4, 1, 3, 2), ("probing", ASLEEP, 3, 1, 2, 0),
    ("barrier", BARRIER, 1, 1, 3, 0),
    ("turns", TURNS, 5, 1, 3, 0), ("turns", TURNS, 5, 1, 2, 0),
)  # fmt: skip
_TORCH = (
    ("torch_work", WORK, 4, 1, 2, 1), ("torch_batch", WORK, 8, 1, 2, 1),
    ("torch_sleeping", ASLEEP, 4, 1, 2, 0), ("torch_stages", WORK, 4, 1, 3, 1),
    ("torch_ring", WORK, 3, 1, 2, 1), ("torch_ring", WORK, 3, 1, 3, 0),
)  # fmt: skip
_HANGS = (
    ("missing_call", HANG), ("endless_loop", HANG), ("wrong_order", HANG),
    ("wrong_length", MISMATCH), ("wrong_root", MISMATCH), ("receiving", HANG),
    ("sending", HANG), ("locking", HANG), ("missing_row", HANG), ("raising", HANG),
    ("wrong_type", MISMATCH), ("wrong_call", MISMATCH), ("missing_message", HANG),
    ("wrong_tag", HANG), ("two_sends", HANG),
)  # fmt: skip
_HEALTHY = (
    ("balanced", NOBODY, 1, 1, 3), ("balanced", NOBODY, 3, 1, 2), ("balanced", NOBODY, 0.3, 1, 4),
    ("balanced", NOBODY, 10, 1, 3), ("balanced", NOBODY, 30, 1, 2),
    *(("noise", NOBODY, ms, 1 << 30, ranks) for ms in (1, 4) for ranks in (2, 3, 4)),
    ("noise", NOBODY, 4, 48, 3), ("noise", NOBODY, 4, 48, 2),
    ("bursts", NOBODY, 5, 1, 3), ("bursts", NOBODY, 5, 1, 2),
    ("equal_threads", NOBODY, 1, 1, 2), ("equal_sleep", NOBODY, 2, 1, 3),
    ("equal_sleep", NOBODY, 5, 1, 4), ("equal_rows", NOBODY, 1, 1, 4),
    ("several", NOBODY, 1, 1, 3), ("several", NOBODY, 1, 1, 4), ("several", NOBODY, 1, 1, 2),
    ("phases", NOBODY, 1, 1, 2), ("phases", NOBODY, 1, 1, 3), ("phases", NOBODY, 1, 1, 4),
    ("pinned", NOBODY, 2, 1, 2), ("pinned", NOBODY, 2, 1, 4),
    ("short_calls", NOBODY, 1, 1, 3), ("short_calls", NOBODY, 1, 1, 2),
    ("equal_nonblocking", NOBODY, 2, 1, 3), ("idle", IDLE, 1, 1, 3), ("idle", IDLE, 1, 1, 2),
    ("objects", NOBODY, 2, 1, 3), ("objects", NOBODY, 1, 1, 2),
    ("long_tail", NOBODY, 1, 1, 3), ("long_tail", NOBODY, 1, 1, 2),
    ("heavy_steps", NOBODY, 1, 1, 3), ("equal_checkpoint", NOBODY, 1, 1, 3),
    ("rotating_root", NOBODY, 1, 1, 3), ("mixed_sizes", NOBODY, 2, 1, 3),
    ("large", MOVEMENT, 3, 1, 3), ("large", MOVEMENT, 10, 1, 2),
    *((name, NOBODY, ms, 1, ranks) for name in (
        "equal_halo", "equal_halo_and_sum", "equal_halo_and_rare_sum", "noisy_halo", "equal_ring",
        "equal_testing",
        "pipeline", "pipeline_and_sum", "equal_tasks", "equal_tasks_and_sum",
    ) for ms, ranks in ((2, 3), (1, 2), (3, 4))),
)  # fmt: skip


def causes() -> list[Job]:
    """Return the jobs with a cause, half of them beside a busy neighbour."""
    beside = cycle((False, True))
    jobs = [Job(*row, has_neighbour=next(beside)) for row in _PLANTED]
    jobs += [Job(*row, has_neighbour=next(beside), backend="torch") for row in _TORCH]
    for name, kind in _HANGS:  # a job that is killed without a question leaves no stacks
        way = "doctor" if kind == HANG else "postmortem"
        jobs.append(Job(name, kind, way=way, has_neighbour=next(beside)))
    return jobs


def healthy() -> list[Job]:
    """Return the healthy jobs, half of them beside a busy neighbour; with other random numbers."""
    jobs = [
        Job(*row, victim=seed, has_neighbour=bool(seed % 2)) for seed in (1, 2) for row in _HEALTHY
    ]
    jobs += [
        Job("killed", KILLED, ms, way="postmortem", ranks=ranks, has_neighbour=bool(number % 2))
        for number, (ms, ranks) in enumerate(((1, 2), (1, 3), (3, 4), (10, 3), (0.2, 2), (40, 2)))
    ]
    jobs += [
        Job(name, NOBODY, 2, ranks=ranks, backend="torch", has_neighbour=ranks > 2)
        for name, ranks in (
            ("torch_balanced", 2), ("torch_pipeline", 2), ("torch_pipeline", 3),
            ("torch_equal_ring", 2), ("torch_equal_ring", 3), ("torch_equal_batch", 2),
        )
    ]  # fmt: skip
    return jobs
