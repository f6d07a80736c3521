"""The ranks that are left of a group go on; the training loop of the documentation does."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from joining import by_hand
from pages import BLOCKS

import mpicoll
from mpicoll import Collectives, RankLost
from mpicoll.backend import Transport

SIZE, VICTIM = 3, 0
"""The victim holds the store of the launch."""
PLANTED = """
    step += 1
    import os, signal
    if step == 40 and os.environ["RANK"] == "{victim}":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.launches
def test_a_training_loop_goes_on_without_a_rank(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (example,) = [block.text for block in BLOCKS if block.file_name == "training.py"]
    planted = example.replace("\n    step += 1\n", PLANTED.format(victim=VICTIM))
    assert planted != example
    script = tmp_path / "train.py"
    script.write_text(planted)
    started = by_hand(script, size=SIZE)
    left = [rank for rank in range(SIZE) if rank != VICTIM]
    assert [each.returncode for each in started] == [-9 if r == VICTIM else 0 for r in range(SIZE)]
    for new, rank in enumerate(left):
        assert f"rank {rank} goes on without rank {VICTIM}" in started[rank].output
        found = re.search(rf"rank {new} of 2: loss ([\d.]+) after 200 steps", started[rank].output)
        assert found, started[rank].output
        assert float(found[1]) < 0.5


class _Ends(Exception):
    """Ends a rank that is a thread, in the middle of what it does."""


@pytest.mark.parametrize("ranks_per_node", [7, 2])
@pytest.mark.parametrize("has_made", [False, True])
@pytest.mark.parametrize(
    "ends", [{}, {1: 1}, {6: 1}, {1: 1, 2: 1}, {1: 1, 2: 2}, {5: 1, 1: 2, 2: 3}, {3: 1, 2: 2, 1: 3}]
)
def test_ranks_that_end_while_the_others_make_their_group(
    ends: dict[int, int], has_made: bool, ranks_per_node: int
) -> None:
    """Rank 0 ends first; `ends` says in which attempt further ones do, before or after they met."""

    def rank(c: Collectives) -> tuple[int, int, float] | None:
        attempts = 0

        def make(transport: Transport) -> Collectives:
            nonlocal attempts
            attempts += 1
            is_last = ends.get(c.rank) == attempts
            if is_last and not has_made:
                raise _Ends
            made = Collectives(transport)
            if is_last:
                raise _Ends
            return made

        if c.rank == 0:
            return None
        with pytest.raises(RankLost, match="rank 0"):
            c.barrier()
        try:
            made = c.transport.survive(make)
        except _Ends:
            return None
        with made:
            return made.rank, made.size, made.allreduce(np.ones(1)).item()

    found = mpicoll.threads(7, ranks_per_node=ranks_per_node, deadline=60)(rank)
    left = [rank for rank in range(1, 7) if rank not in ends]
    size = len(left)
    wanted = {rank: (place, size, float(size)) for place, rank in enumerate(left)}
    assert found == [wanted.get(rank) for rank in range(7)]


def test_ranks_that_live_and_do_not_meet_give_up() -> None:
    """As under MPI, which makes no group any more at times after a rank has ended in its middle."""

    def rank(c: Collectives) -> int:
        attempts = 0

        def make(transport: Transport) -> Collectives:
            nonlocal attempts
            attempts += 1
            raise OSError("no group any more")

        if c.rank == 3:
            return attempts
        with pytest.raises(RankLost, match="ranks 0, 1, 2 are left and twice did not meet: no gr"):
            c.transport.survive(make)
        with c.transport.survive(Collectives) as made:  # nothing that was stated before counts
            assert made.allreduce(np.ones(1)).item() == 3
        return attempts

    assert mpicoll.threads(4, deadline=60)(rank) == [2, 2, 2, 0]


def test_a_group_of_survivors_loses_a_rank_too() -> None:
    def rank(c: Collectives) -> list[int]:
        sizes = []
        while c.size > 1 and c.rank != c.size - 1:
            with c, pytest.raises(RankLost):
                c.barrier()
            c = c.shrink()
            sizes.append(c.size)
        return sizes

    assert mpicoll.threads(4, deadline=60)(rank) == [[3, 2, 1], [3, 2], [3], []]


def test_a_rank_that_comes_too_late_is_told_so() -> None:
    gone_on = Event()

    def rank(c: Collectives) -> int:
        c.barrier()
        if c.rank == 2:
            gone_on.wait(60)
        size = c.shrink().size
        gone_on.set()
        return size

    with pytest.raises(RankLost, match="ranks 0, 1 go on without rank 2, which came too late"):
        mpicoll.threads(3, deadline=1)(rank)
