"""Pairs, ranks and classes that stand out, and sentences on them."""

from __future__ import annotations

from fake_nvml import FOUR_GPUS, pair
from hypothesis import assume, given
from hypothesis import strategies as some
from pairing import findings, records, usual

from mpicoll.machine.gpu_links import gpu_link
from mpicoll.measurement.ping_pong import ONE_WAY, PairCase
from mpicoll.p2p.outliers import class_lines, outlier_lines, rank_lines


def test_pairs_that_are_alike_are_no_outliers() -> None:
    pairs = records(6, findings(6, usual))
    assert outlier_lines(pairs) == [] and rank_lines(pairs) == [] and class_lines(pairs) == []


@given(some.integers(0, 5), some.integers(0, 5), some.floats(2, 50), some.booleans())
def test_an_outlier_is_named_and_only_it(low: int, high: int, factor: float, fast: bool) -> None:
    assume(low != high)
    factor = 1 / factor if fast else factor

    def time(a: int, b: int, nbytes: int) -> float:
        odd = (a, b, nbytes) == (low, high, 1 << 20)
        return usual(a, b, nbytes) * (factor if odd else 1)

    one_way = [record for record in records(6, findings(6, time)) if record.quantity == ONE_WAY]
    odd = [(record.source, record.target, record.bytes) for record in one_way if record.outlier]
    assert odd == [(low, high, 1 << 20)]
    (line,) = outlier_lines(one_way)
    assert f"rank {low} -> rank {high} moves" in line and "mpi4py symmetric, one way, 1M" in line
    assert line.endswith("times faster" if fast else "times slower")


def test_a_sentence_states_ratio_and_sizes() -> None:
    slow = records(4, findings(4, lambda a, b, n: (1 + n / 1e4) * (12 if (a, b) == (0, 2) else 1)))
    lines = outlier_lines(slow)
    assert len(lines) == 3
    assert any("latency, 8 B: rank 0 <-> rank 2 takes 11.9 us" in line for line in lines)
    one_way = next(line for line in lines if "one way" in line)
    assert "12 times slower" in one_way and "(also at " in one_way


def test_noise_of_one_visit_names_nobody() -> None:
    samples = findings(4, usual)
    odd = samples[PairCase("mpi4py", "symmetric", ONE_WAY, 0, 2, 1 << 20)]
    odd.visits = [[900.0] * 4, [900.0] * 4, [901.0] * 4, [106.0] * 4]
    assert outlier_lines(records(4, samples)) == []
    odd.visits[-1] = [900.0] * 4
    assert len(outlier_lines(records(4, samples))) == 1


def test_one_visit_is_no_proof() -> None:
    slow = findings(4, lambda a, b, n: 12.0 if (a, b) == (0, 2) else 1.0, visits=1)
    assert outlier_lines(records(4, slow)) == []


def test_a_rank_that_is_slow_to_all_is_named() -> None:
    slow = records(6, findings(6, lambda a, b, n: (1 + n / 1e4) * (3 if a == 2 and n > 8 else 1)))
    lines = rank_lines(slow)
    assert len(lines) == 2
    assert all("rank 2 stands out to every other rank" in line for line in lines)


def test_a_slow_class_is_explained() -> None:
    """GPU 0 to GPU 2 twelve times slower than to GPU 1: the sockets' bus, not NVLink."""
    links = {
        (a, b): gpu_link(FOUR_GPUS, f"GPU-{a}", f"GPU-{b}") for b in range(4) for a in range(b)
    }
    fast = (pair(0, 1), pair(2, 3))
    samples = findings(4, lambda a, b, n: (2 + n / 25e3) * (1 if pair(a, b) in fast else 12))
    pairs = records(4, samples, links, "cuda")
    assert outlier_lines(pairs) == []
    (line,) = [line for line in class_lines(pairs) if "one way" in line]
    assert "PCIe across sockets (SYS) moves" in line and "NVLink x2 moves" in line
    assert "12 times slower" in line and "(as rank 0 (GPU 0) -> rank 2 (GPU 2))" in line
    assert "; 2 of 8: no peer access" in line
