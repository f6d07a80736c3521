"""Records of pairs, and fits of their classes."""

from __future__ import annotations

import pytest
from pairing import alike, context, findings, records, usual

from mpicoll.machine.links import LinkClass
from mpicoll.measurement.checking import Wrong
from mpicoll.measurement.ping_pong import BOTH_WAYS, COPY, ONE_WAY, PairCase, PairSamples
from mpicoll.p2p.record import fit_records
from mpicoll.p2p.survey import wrongs


def test_records_and_fits_of_each_class() -> None:
    links = alike(4) | {(0, 3): LinkClass("network")}
    samples = findings(4, lambda a, b, n: 2 + n / 1e4 if {a, b} != {0, 3} else 30 + n / 1e3)
    pairs = records(4, samples, links)
    fits = {record.link: record for record in fit_records(pairs, context(4, links))}
    assert set(fits) == {"same node", "network"}
    for name, alpha, beta in (("same node", 2, 0.1), ("network", 30, 1)):
        assert fits[name].alpha_us == pytest.approx(alpha, rel=0.05)
        assert fits[name].beta_ns_per_byte == pytest.approx(beta, rel=0.05)
    assert fits["network"].pairs == 2 and fits["network"].sizes == [8, 1 << 20]


@pytest.mark.parametrize("quantity", [ONE_WAY, BOTH_WAYS])
def test_a_bandwidth_counts_both_directions(quantity: str) -> None:
    samples = {PairCase("mpi4py", "cma", quantity, 0, 1, 4000): PairSamples(1, [[2.0]])}
    (record,) = records(2, samples)
    assert record.GBps == pytest.approx(2.0 if quantity == ONE_WAY else 4.0)
    assert record.correct is None


def test_wrong_bytes_have_one_line_for_a_pair() -> None:
    wrong = Wrong(1, 4, 0, 7, 255, "message")
    samples = findings(2, usual)
    for pair_samples in samples.values():
        pair_samples.wrong = wrong
    lines = wrongs(
        {case: pair_samples for case, pair_samples in samples.items() if case.quantity != COPY}
    )
    assert lines == [f"WRONG between ranks 0 and 1 (mpi4py, symmetric): {wrong}"]
    assert all(record.correct is False for record in records(2, samples) if record.quantity != COPY)
