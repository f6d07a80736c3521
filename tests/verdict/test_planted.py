"""Planted causes in jobs of real ranks: named while they run, and after SIGKILL."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher import mpirun
from planted_jobs import (
    HANG,
    IDLE,
    KILLED,
    MISMATCH,
    THREAD,
    UNEVEN,
    WORK,
    Job,
    causes,
    healthy,
)
from planted_launches import judged

pytestmark = [
    pytest.mark.launches,
    pytest.mark.skipif(mpirun() is None, reason="no mpirun beside this Python or on PATH"),
]
SHORT = (
    Job("calling_thread", WORK, 8, 1, 3, 1), Job("work", WORK, 60, 10, 2, 1),
    Job("received", UNEVEN, 10, 1, 3, 1), Job("worker", THREAD, 8, 1, 2, 0),
    Job("idle", IDLE, ranks=2), Job("halo", WORK, 6, 1, 3, 1), Job("two_sends", HANG, ranks=2),
    Job("wrong_tag", HANG, ranks=2),
    Job("wrong_length", MISMATCH, ranks=2, way="postmortem"),
    Job("killed", KILLED, ranks=2, way="postmortem"),
)  # fmt: skip


@pytest.mark.parametrize("job", SHORT, ids=lambda job: job.name)
def test_a_planted_cause_is_named(job: Job, tmp_path: Path) -> None:
    result = judged(job, tmp_path, 1.5)
    marks = result.kind, result.place is not False, result.line is not False
    assert marks == (True, True, True), (tmp_path / "report").read_text()


def test_the_corpus_has_as_many_healthy_jobs_as_causes() -> None:
    """Half of both run beside a busy neighbour."""
    for jobs in (causes(), healthy()):
        assert len(jobs) >= 60
        assert abs(2 * sum(job.has_neighbour for job in jobs) - len(jobs)) <= 2
