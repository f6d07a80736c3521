"""Time torch.distributed's calls over gloo and over ours, interleaved in one run.

``torchrun --nproc-per-node 2 tests/support/time_backend.py [LARGEST_BYTES]`` prints, for every call
and size, the medians in us and gloo's divided by ours, with the quartiles of that ratio.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

BLOCKS, SECONDS = 7, 0.1
SMALLEST, LARGEST, FACTOR = 4, 64 << 20, 16


def calls(nbytes: int) -> dict[str, Callable[[Any], object]]:
    """Return every call that gloo has, by name, on buffers of `nbytes`; each takes a group."""
    size, rank = dist.get_world_size(), dist.get_rank()
    count = max(nbytes // 4, 1)
    x, part = torch.ones(count), torch.ones(max(count // size, 1))
    whole, other = torch.empty(2, part.numel() * size).unbind()
    parts = list(torch.empty(size, part.numel()).unbind())
    apart = [torch.empty(part.numel()) for _ in range(size)]
    root = rank == 0
    return {
        "all_reduce": lambda g: dist.all_reduce(x, dist.ReduceOp.MAX, group=g),
        "broadcast": lambda g: dist.broadcast(x, 0, group=g),
        "reduce": lambda g: dist.reduce(x, 0, dist.ReduceOp.MAX, group=g),
        "all_gather": lambda g: dist.all_gather(apart, part, group=g),
        "all_gather_into_tensor": lambda g: dist.all_gather_single(whole, part, group=g),
        "gather": lambda g: dist.gather(part, apart if root else None, 0, group=g),
        "scatter": lambda g: dist.scatter(part, parts if root else None, 0, group=g),
        "reduce_scatter_tensor": lambda g: dist.reduce_scatter_single(part, whole, group=g),
        "all_to_all_single": lambda g: dist.all_to_all_single(whole, other, group=g),
    }


def sample(call: Callable[[Any], object], group: Any, times: int) -> float:
    """Return the seconds of a call, the mean of some."""
    dist.barrier(group)
    begin = time.perf_counter()
    for _ in range(times):
        call(group)
    return (time.perf_counter() - begin) / times


def agreed(value: float, group: Any) -> float:
    """Return the largest value of all ranks."""
    found = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX, group=group)
    return float(found)


def compare(call: Callable[[Any], object], groups: dict[str, Any]) -> dict[str, list[float]]:
    """Return the samples of each group, in blocks of which each has one of both."""
    order = random.Random(0)
    times, found = {}, {name: list[float]() for name in groups}
    for name, group in groups.items():
        sample(call, group, 3)
        once = agreed(sample(call, group, 5), group)
        times[name] = max(1, min(1000, int(SECONDS / BLOCKS / 2 / once)))
    for _ in range(BLOCKS):
        for name in order.sample(list(groups), len(groups)):
            mean = sample(call, groups[name], times[name])
            found[name].append(agreed(mean, groups[name]))
    return found


def main() -> None:
    from torchcoll.backend.registration import register

    register()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "ours": dist.new_group(backend="torchcoll")}
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else LARGEST
    first, ratios = dist.get_rank() == 0, []
    if first:
        print(f"{'call':24}{'bytes':>10}{'gloo us':>12}{'ours us':>12}{'ratio':>9}  quartiles")
    cases = [(name, 4 * FACTOR**power) for name in calls(4) for power in range(6)]
    cases += [(name, LARGEST) for name in calls(4)]
    for name, nbytes in sorted(cases):
        if nbytes > largest:
            continue
        found = compare(calls(nbytes)[name], groups)
        each = [a / b for a, b in zip(found["gloo"], found["ours"], strict=True)]
        low, ratio, high = statistics.quantiles(each, n=4)
        ratios.append(ratio)
        if first:
            medians = "".join(f"{1e6 * statistics.median(found[g]):12.1f}" for g in groups)
            print(f"{name:24}{nbytes:10}{medians}{ratio:9.2f}  {low:.2f} to {high:.2f}", flush=True)
    if first:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean {mean:.1f}, smallest {min(ratios):.2f}, {len(ratios)} cells")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
