"""A program for three ranks, of which one hangs outside of all calls: see `test_hanging.py`."""

import time

import numpy as np

import mpicoll


def elsewhere() -> None:
    """Hang."""
    time.sleep(1000)


with mpicoll.world() as c:
    x = np.ones(8, np.float32)
    for step in range(5):
        c.allreduce(x)
        if step == 3 and c.rank == 1:
            elsewhere()
