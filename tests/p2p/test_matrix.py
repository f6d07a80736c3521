"""Pairs as text: matrices and classes."""

from __future__ import annotations

from io import BytesIO, StringIO, TextIOWrapper

import pytest
from pairing import alike, context, findings, records, usual
from rich.console import Console

from mpicoll.measurement.ping_pong import COPY
from mpicoll.p2p import matrix
from mpicoll.p2p.record import fit_records


def print_matrices(size: int, encoding: str = "utf-8") -> str:
    pairs = records(size, findings(size, lambda a, b, n: usual(a, b, n) * (9 if a == 1 < n else 1)))
    raw = BytesIO()
    stream = TextIOWrapper(raw, encoding)
    matrix.print_pairs(pairs, fit_records(pairs, context(size, alike(size))), stream)
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("size", [2, 4, 9, 16])
def test_matrices_fit_the_terminal(size: int, encoding: str) -> None:
    text = print_matrices(size, encoding)
    assert "\x1b" not in text and "\N{HORIZONTAL ELLIPSIS}" not in text and "..." not in text
    assert max(map(len, text.splitlines())) <= 120
    for name in ("latency of 8 B, us", "one way of 1M, GB/s", "both ways of 1M, GB/s"):
        assert text.count(name) == 1


def test_cells_are_where_they_belong() -> None:
    pairs = records(3, findings(3, lambda a, b, n: n / (1000 * (10 * a + b + 1))))
    (_, latency), (_, one_way), (_, both_ways) = matrix.matrices(pairs, "mpi4py", "symmetric")
    assert latency[2, 0] is latency[0, 2]
    assert one_way[2, 1].GBps == pytest.approx(22, rel=0.02)
    assert one_way[1, 2].GBps == pytest.approx(13, rel=0.02)
    assert one_way[1, 1].quantity == COPY
    assert set(both_ways) == {(a, b) for a in range(3) for b in range(3) if a != b}


def test_many_ranks_are_summarised() -> None:
    text = print_matrices(17)
    assert "--plot" in text and "latency of 8 B" not in text
    assert "same node" in text


def test_outliers_are_marked_and_red() -> None:
    slow = records(4, findings(4, lambda a, b, n: (1 + n / 1e4) * (12 if (a, b) == (0, 2) else 1)))
    out = StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system="standard")
    matrix.report(slow, [], console, unicode=True)
    assert "\x1b[1;31m" in out.getvalue()
    one_way = dict(matrix.matrices(slow, "mpi4py", "symmetric"))["one way of 1M, GB/s"]
    marked = {ends for ends, record in one_way.items() if record.outlier}
    assert marked == {(0, 2)}
