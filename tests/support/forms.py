"""Closed forms of what algorithms do by themselves: rounds, bytes sent and reduced by a rank.

They are the expectation, from the papers and the catalogue; the simulator derives the figures.
Bytes are in whole vectors m, of the rank that has the most; None where no formula is known for
every size. `p` is the number of ranks; one rank does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil, floor, log2

from mpicoll.algorithms.circulant_graph import skips
from mpicoll.algorithms.shapes import factors

Figures = tuple[float | None, float | None, float | None]
Form = Callable[[int], Figures]


def q(p: int) -> int:
    """Return ceil(log2 p)."""
    return (p - 1).bit_length()


def f(p: int) -> int:
    """Return floor(log2 p)."""
    return p.bit_length() - 1


def x(p: int) -> bool:
    """Return whether p is no power of two."""
    return p & (p - 1) != 0


def bw(p: int) -> float:
    """Return (p-1)/p."""
    return (p - 1) / p


def log(p: int, k: int) -> int:
    """Return floor(log_k p)."""
    return 0 if p < k else 1 + log(p // k, k)


def fibonacci(p: int) -> int:
    """Return the rounds of a postal tree of latency 2."""
    told = [1, 1]
    while told[-1] < p:
        told.append(told[-1] + told[-2])
    return len(told) - 2


def split(p: int) -> float:
    """Return what the busiest rank of a split binary tree sends."""
    return 1.5 if p == 4 or p > 5 else 1


def split_rounds(p: int) -> int:
    """Return the rounds of a split binary tree of four segments."""
    return f(p // 2) + 1 + 4


def kept(p: int) -> int:
    """Return how often the cyclic allreduce folds into the value without the rank itself."""
    odd = [i for i, (held, wanted) in enumerate(pairwise(skips(p))) if wanted < 2 * held]
    return max(odd, default=1) - 1


def surplus(p: int, k: int) -> int:
    """Return how many ranks lend their vector to one, at most."""
    return min(k - 1, p - k ** log(p, k))


def one_two_three(p: int) -> int:
    """Return ceil(log2(p-1) + log2(4/3)), in integers; one round at least."""
    return max(1, (4 * (p - 1) // 3 + (4 * (p - 1) % 3 > 0) - 1).bit_length())


def pat(p: int, aggregation: int) -> int:
    """Return the rounds of PAT."""
    whole = 1 << q(p)
    a = min(aggregation, whole)
    return q(a) + whole // a - 1


def digits_up_to(size: int) -> int:
    """Return the ones in the binary digits of all numbers below `size`."""
    return sum(map(int.bit_count, range(size)))


def subtree(size: int, radix: int) -> int:
    """Return the ranks of the largest subtree below the root of the k-nomial tree."""
    spans = [radix**level for level in range(size) if radix**level < size]
    return max(min(span, size - span) for span in spans)


def swept(size: int) -> int:
    """Return the rounds of sweeping up and down."""
    return floor(log2(size)) + floor(log2(size / 3)) + 1


SPREAD: dict[str, Callable[[int], float | None]] = {
    "naive": lambda p: p - 1,
    "direct": lambda p: 1,
    "ring": lambda p: p - 1,
    "bruck": q,
    "circulant": q,
    "pipelined_circulant": lambda p: 3 + q(p),
    "recursive_doubling": q,
    "neighbor_exchange": lambda p: p / 2,
    "swing": q,
    "bcube": lambda p: len(factors(p, 4)),
    "sparbit": q,
    "pat": lambda p: pat(p, 4),
    "k_ring": lambda p: p - 1,
}
"""Rounds of the allgathers in which each rank sends (p-1)/p m, and of them backwards."""

FORMS: dict[tuple[str, str], Form] = {
    **{("allgather", name): lambda p, r=r: (r(p), bw(p), 0) for name, r in SPREAD.items()},
    **{
        ("reduce_scatter", name): lambda p, r=r: (r(p), bw(p), bw(p))
        for name, r in SPREAD.items()
        if name not in ("naive", "recursive_doubling")
    },
    ("barrier", "naive"): lambda p: (2 * (p - 1), 0, 0),
    ("barrier", "tree"): lambda p: (2 * q(p), 0, 0),
    ("barrier", "ring"): lambda p: (2 * p, 0, 0),
    ("barrier", "dissemination"): lambda p: (q(p), 0, 0),
    ("barrier", "recursive_doubling"): lambda p: (f(p) + 2 * x(p), 0, 0),
    ("barrier", "recexch"): lambda p: (log(p, 4) + 2 * (p != 4 ** log(p, 4)), 0, 0),
    ("barrier", "direct"): lambda p: (1, 0, 0),
    ("barrier", "two_level"): lambda p: (2 * q(p), 0, 0),
    ("broadcast", "naive"): lambda p: (p - 1, p - 1, 0),
    ("broadcast", "one_shot"): lambda p: (1, p - 1, 0),
    ("broadcast", "binomial"): lambda p: (q(p), q(p), 0),
    ("broadcast", "knomial"): lambda p: (ceil(round(log2(p) / 2, 9)), None, 0),
    ("broadcast", "chain"): lambda p: (p - 2 + 8, 1, 0),
    ("broadcast", "kary"): lambda p: (f(p) + 7, min(2, p - 1), 0),
    ("broadcast", "chains"): lambda p: (ceil((p - 1) / 4) + 7, min(4, p - 1), 0),
    ("broadcast", "fibonacci"): lambda p: (fibonacci(p), fibonacci(p), 0),
    ("broadcast", "split_binary"): lambda p: (split_rounds(p), split(p), 0),
    ("broadcast", "pipelined_circulant"): lambda p: (7 + q(p), (7 + q(p)) / 8, 0),
    ("broadcast", "two_tree"): lambda p: (None, 1, 0),
    ("broadcast", "bine"): lambda p: (q(p), None, 0),
    ("broadcast", "scatter_bine"): lambda p: (2 * q(p), 2 * bw(p), 0),
    ("broadcast", "scatter_circulant"): lambda p: (2 * q(p), 2 * bw(p), 0),
    ("broadcast", "scatter_recursive_doubling"): lambda p: (2 * q(p), 2 * bw(p), 0),
    ("broadcast", "scatter_ring"): lambda p: (q(p) + p - 1, 2 * bw(p), 0),
    ("broadcast", "two_level"): lambda p: (q(p), q(p), 0),
    ("reduce", "naive"): lambda p: (p - 1, 1, p - 1),
    ("reduce", "one_shot"): lambda p: (1, 1, p - 1),
    ("reduce", "two_shot"): lambda p: (p, 1, bw(p)),
    ("reduce", "binomial"): lambda p: (q(p), 1, q(p)),
    ("reduce", "knomial"): lambda p: (ceil(round(log2(p) / 2, 9)), 1, None),
    ("reduce", "chain"): lambda p: (p - 2 + 8, 1, 1),
    ("reduce", "kary"): lambda p: (f(p) + 7, 1, min(2, p - 1)),
    ("reduce", "chains"): lambda p: (ceil((p - 1) / 4) + 7, 1, min(4, p - 1)),
    ("reduce", "fibonacci"): lambda p: (fibonacci(p), 1, fibonacci(p)),
    ("reduce", "split_binary"): lambda p: (split_rounds(p), 1, split(p)),
    ("reduce", "pipelined_circulant"): lambda p: (7 + q(p), 1, (7 + q(p)) / 8),
    ("reduce", "two_tree"): lambda p: (None, 1, 1),
    ("reduce", "bine"): lambda p: (q(p), 1, None),
    ("reduce", "circulant"): lambda p: (2 * q(p), None, bw(p)),
    ("reduce", "ring"): lambda p: (p - 1 + q(p), None, bw(p)),
    ("reduce", "rabenseifner"): lambda p: (2 * f(p) + 2 * x(p), None, None),
    ("reduce", "in_order_binary"): lambda p: (None, 1, None),
    ("reduce", "two_level"): lambda p: (q(p), 1, q(p)),
    ("allreduce", "naive"): lambda p: (2 * (p - 1), p - 1, p - 1),
    ("allreduce", "one_shot"): lambda p: (1, p - 1, p - 1),
    ("allreduce", "two_shot"): lambda p: (2, 2 * bw(p), bw(p)),
    ("allreduce", "reduce+broadcast"): lambda p: (2 * q(p), q(p), q(p)),
    ("allreduce", "recursive_doubling"): lambda p: (f(p) + 2 * x(p), f(p) + x(p), f(p) + x(p)),
    ("allreduce", "recexch"): lambda p: (
        log(p, 4) + 2 * (p != 4 ** log(p, 4)),
        3 * log(p, 4) + surplus(p, 4),
        3 * log(p, 4) + surplus(p, 4),
    ),
    ("allreduce", "cyclic"): lambda p: (q(p), q(p), q(p) + kept(p)),
    ("allreduce", "trivance"): lambda p: (log(p, 3), 2 * log(p, 3), 2 * log(p, 3)),
    ("allreduce", "swing_latency"): lambda p: (f(p) + 2 * x(p), f(p) + x(p), f(p) + x(p)),
    ("allreduce", "ring"): lambda p: (2 * (p - 1), 2 * bw(p), bw(p)),
    ("allreduce", "ring_unchunked"): lambda p: (p - 1, p - 1, p - 1),
    ("allreduce", "segmented_ring"): lambda p: (4 * (p - 1), 2 * bw(p), bw(p)),
    ("allreduce", "rabenseifner"): lambda p: (
        2 * f(p) + 3 * x(p),
        2 * (1 - 0.5 ** f(p)) + 1.5 * x(p),
        1 - 0.5 ** f(p) + 0.5 * x(p),
    ),
    ("allreduce", "binary_blocks"): lambda p: (None if x(p) else 2 * f(p), None, None),
    ("allreduce", "bcube"): lambda p: (2 * len(factors(p, 4)), 2 * bw(p), bw(p)),
    ("allreduce", "circulant"): lambda p: (2 * q(p), 2 * bw(p), bw(p)),
    ("allreduce", "swing"): lambda p: (2 * q(p), 2 * bw(p), bw(p)),
    ("allreduce", "double_tree"): lambda p: (None, 2 if p > 3 else None, 1 if p > 2 else None),
    ("allreduce", "dual_root"): lambda p: (None, None, None),
    ("allreduce", "two_level"): lambda p: (2 * q(p), q(p), q(p)),
    ("allreduce", "lanes"): lambda p: (2, 2 * bw(p), bw(p)),
    ("allreduce", "lane_ring"): lambda p: (None, 2 * bw(p), bw(p)),
    ("allgather", "gather+broadcast"): lambda p: (2 * q(p), q(p), 0),
    ("allgather", "recexch"): lambda p: (log(p, 4) + 2 * (p != 4 ** log(p, 4)), None, 0),
    ("allgather", "lanes"): lambda p: (1, bw(p), 0),
    ("allgather", "lane_ring"): lambda p: (None, bw(p), 0),
    ("allgather", "two_level"): lambda p: (2 * q(p), q(p), 0),
    ("reduce_scatter", "naive"): lambda p: (2 * (p - 1), 1, p - 1),
    ("reduce_scatter", "pairwise"): lambda p: (p - 1, bw(p), bw(p)),
    ("reduce_scatter", "recursive_halving"): lambda p: (
        f(p) + 2 * x(p), 1 if x(p) else bw(p), None if x(p) else bw(p)
    ),
    ("reduce_scatter", "butterfly"): lambda p: (
        f(p) + 2 * x(p), 1 if x(p) else bw(p), None if x(p) else bw(p)
    ),
    ("reduce_scatter", "recursive_doubling"): lambda p: (
        f(p) + 2 * x(p), None if x(p) else f(p) - bw(p), None if x(p) else f(p) - bw(p)
    ),
    ("reduce_scatter", "recexch"): lambda p: (log(p, 4) + 2 * (p != 4 ** log(p, 4)), None, None),
    ("reduce_scatter", "lanes"): lambda p: (1, bw(p), bw(p)),
    ("reduce_scatter", "lane_ring"): lambda p: (None, bw(p), bw(p)),
    ("gather", "naive"): lambda p: (p - 1, 1 / p, 0),
    ("gather", "binomial"): lambda p: (q(p), subtree(p, 2) / p, 0),
    ("gather", "knomial"): lambda p: (ceil(round(log2(p) / 2, 9)), subtree(p, 4) / p, 0),
    ("gather", "bine"): lambda p: (q(p), None, 0),
    ("gather", "size_aware"): lambda p: (q(p), None, 0),
    ("gather", "two_level"): lambda p: (q(p), subtree(p, 2) / p, 0),
    ("gather", "chain"): lambda p: (p - 1, bw(p), 0),
    ("scatter", "naive"): lambda p: (p - 1, bw(p), 0),
    ("scatter", "binomial"): lambda p: (q(p), bw(p), 0),
    ("scatter", "knomial"): lambda p: (ceil(round(log2(p) / 2, 9)), bw(p), 0),
    ("scatter", "bine"): lambda p: (q(p), bw(p), 0),
    ("scatter", "size_aware"): lambda p: (q(p), bw(p), 0),
    ("scatter", "two_level"): lambda p: (q(p), bw(p), 0),
    ("scatter", "chain"): lambda p: (p - 1, bw(p), 0),
    ("alltoall", "naive"): lambda p: (1, bw(p), 0),
    ("alltoall", "pairwise"): lambda p: (p - 1, bw(p), 0),
    ("alltoall", "ring"): lambda p: (p - 1, (p - 1) / 2, 0),
    ("alltoall", "bruck"): lambda p: (q(p), digits_up_to(p) / p, 0),
    ("alltoall", "hybrid"): lambda p: (q(p), digits_up_to(p) / p, 0),
    ("alltoall", "tuna"): lambda p: (None, None, 0),
    ("alltoall", "circulant"): lambda p: (q(p), None, 0),
    ("alltoall", "swing"): lambda p: (q(p), None, 0),
    ("alltoall", "grid"): lambda p: (None, None, 0),
    ("alltoall", "lanes"): lambda p: (p - 1, bw(p), 0),
    ("alltoall", "two_level"): lambda p: (2 * q(p), (p - 1) ** 2 / p, 0),
    ("scan", "linear"): lambda p: (p - 1, 1, 1),
    ("scan", "chain"): lambda p: (p - 2 + 8, 1, 1),
    ("scan", "one_shot"): lambda p: (1, p - 1, p - 1),
    ("scan", "two_shot"): lambda p: (2, None, bw(p)),
    ("scan", "hillis_steele"): lambda p: (q(p), f(p) if p < 3 else q(p), q(p)),
    ("scan", "recursive_doubling"): lambda p: (q(p), None, None),
    ("scan", "sweep"): lambda p: (swept(p), f(p), f(p)),
    ("scan", "binary_tree"): lambda p: (2 * f(p) + 8 if p > 2 else 8, *[min(3, f(p))] * 2),
    ("scan", "two_tree"): lambda p: (None, None, None),
    ("exscan", "linear"): lambda p: (p - 1, 1, None),
    ("exscan", "chain"): lambda p: (None, None, None),
    ("exscan", "one_shot"): lambda p: (1, p - 1, max(0, p - 2)),
    ("exscan", "two_shot"): lambda p: (None, None, None),
    ("exscan", "hillis_steele"): lambda p: (1 + q(p - 1), 1 + q(p - 1), q(p - 1)),
    ("exscan", "recursive_doubling"): lambda p: (q(p), None, None),
    ("exscan", "sweep"): lambda p: (1 + max(0, swept(p - 1)), 1 + f(p - 1), f(p - 1)),
    ("exscan", "one_two_three"): lambda p: (one_two_three(p), None, None),
    ("exscan", "binary_tree"): lambda p: (None, None, None),
    ("exscan", "two_tree"): lambda p: (None, None, None),
}  # fmt: skip
