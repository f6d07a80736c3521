"""Arrays of every layout that counts as contiguous: empty, of one element, views, subclasses.

NumPy and torch call an array contiguous whatever the strides of an axis of length one, or of an
empty array. Each rank draws a layout of its own, so that one rank alone may meet a fault.
"""

from __future__ import annotations

from math import prod
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from expect import expected, input_shape, values
from run_collective import EVERY, SCHEDULES, UNEVEN, compare, device, library

from mpicoll import ArgumentError, Collectives, Unavailable, Unsupported

DTYPE = "int64"
ROWS: list[tuple[int, ...]] = [
    (), (0,), (1,), (5,), (0, 3), (3, 0), (1, 1), (1, 4), (2, 1, 3), (1, 0, 1),
]  # fmt: skip
FORMS = [each for each in EVERY if each in SCHEDULES or each[1] == "auto" or "native" in each[1]]
CASES = [
    (name, algorithm, row)
    for name, algorithm in FORMS
    for row in (ROWS if "native" in algorithm else [(0,), (1, 1), (2, 1, 3)])
]


class Tagged(np.ndarray):
    """A user's own kind of array."""


def laid_out(c: Collectives, host: Any, random: np.random.Generator, *, written: bool) -> Any:
    """Return an array of this backend with NumPy's values, in a layout drawn at random."""
    step = host.itemsize
    free = [length == 1 or host.size == 0 for length in host.shape]
    strides = np.array([prod(host.shape[axis + 1 :]) * step for axis in range(host.ndim)], int)
    drawn = random.integers(0, 4, host.ndim) * step
    start, memory = int(random.integers(0, 3)), np.zeros(host.size + 8, host.dtype)
    array = np.lib.stride_tricks.as_strided(
        memory[start:], host.shape, tuple(np.where(free, drawn, strides).tolist())
    )
    array[...] = host
    kind = random.choice(["plain", "plain", "subclass", "read-only"])
    if library(c) == "torch":
        import torch

        tensor = torch.from_numpy(array)
        return tensor.as_subclass(torch.nn.Parameter) if kind == "subclass" else tensor
    if kind == "subclass":
        return array.view(Tagged)
    if kind == "read-only" and not written:
        array.flags.writeable = False
    return array


def run(c: Collectives, name: str, algorithm: str, row: tuple[int, ...], counts: Any) -> None:
    """Run a method and a plan on memory of drawn layouts, and compare both results."""
    random = np.random.default_rng([c.rank, crc32(f"{name} {algorithm} {row} {counts}".encode())])
    shapes = [input_shape(name, c.size, rank, row, counts) for rank in range(c.size)]
    inputs = [values(shape, DTYPE, rank) for rank, shape in enumerate(shapes)]
    wanted = expected(name, inputs, "sum", c.size - 1, counts)[c.rank]
    options = {"root": c.size - 1, "algorithm": algorithm, "counts": counts}
    x = laid_out(c, inputs[c.rank], random, written=False)
    out = None
    if wanted is not None and name != "broadcast":
        out = laid_out(c, np.full_like(wanted, -7), random, written=True)
    try:
        plan = c.plan(name, x, out=out, **options)
    except (Unavailable, Unsupported) as refused:
        pytest.skip(str(refused))
    with plan:
        plan.run()
        compare(c, plan.out, wanted, DTYPE)
    if algorithm == "native_persistent":
        return
    known = {"root", "algorithm", "counts"} & set(getattr(c, name).__annotations__)
    given = {key: options[key] for key in known}
    compare(c, getattr(c, name)(x, **given), wanted, DTYPE)


@pytest.mark.parametrize(("name", "algorithm", "row"), CASES)
def test_every_contiguous_layout(
    c: Collectives, name: str, algorithm: str, row: tuple[int, ...]
) -> None:
    run(c, name, algorithm, row, None)


@pytest.mark.parametrize("row", [(), (1,)], ids=str)
@pytest.mark.parametrize("most", [0, 1, 3])
@pytest.mark.parametrize(("name", "algorithm"), [each for each in FORMS if each[0] in UNEVEN])
def test_every_contiguous_layout_with_counts(
    c: Collectives, name: str, algorithm: str, most: int, row: tuple[int, ...]
) -> None:
    counts = [most if rank % 2 else 0 for rank in range(c.size)]
    rows = [np.roll(counts, source).tolist() for source in range(c.size)]
    run(c, name, algorithm, row, rows if name == "alltoall" else counts)


SCATTERED = {
    "transposed": lambda x: x.T,
    "every second": lambda x: x[:, ::2],
    "one column": lambda x: x[:, 1],
}


@pytest.mark.parametrize("algorithm", ["native", "ring"])
@pytest.mark.parametrize("alone", [True, False], ids=["on one rank", "everywhere"])
@pytest.mark.parametrize("layout", SCATTERED)
def test_other_layouts_are_refused_on_every_rank(
    c: Collectives, layout: str, alone: bool, algorithm: str
) -> None:
    view = SCATTERED[layout](device(c, np.ones((4, 6)), DTYPE))
    whole = device(c, np.ones(tuple(view.shape)), DTYPE)
    given = view if not alone or c.rank == c.size - 1 else whole
    with pytest.raises(ArgumentError, match="is not C-contiguous"):
        c.allreduce(given, algorithm=algorithm)
    compare(c, c.allreduce(whole, algorithm=algorithm), np.full(tuple(view.shape), c.size), DTYPE)


def test_a_repeated_value_is_refused_on_every_rank(c: Collectives) -> None:
    one = device(c, np.ones(1), DTYPE)
    view = np.broadcast_to(one, (5,)) if library(c) == "numpy" else one.expand(5)
    with pytest.raises(ArgumentError, match="is not C-contiguous"):
        c.allreduce(view if c.rank == 0 else device(c, np.ones(5), DTYPE))
