"""Find outliers among pairs and classes of pairs, and describe them in sentences.

A pair is an outlier if its excess over the other pairs of its class is beyond a factor of 1.25 and
beyond four standard deviations, at each of at least two visits, so that short noise causes no
outlier. The deviation is estimated from the median of the absolute logarithms, which is insensitive
to outliers. A class needs at least three numbers, since its median must not depend on the outlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import exp, log
from operator import attrgetter
from statistics import median

import numpy as np

from mpicoll.measurement.peers import compare
from mpicoll.measurement.ping_pong import COPY, LATENCY, ONE_WAY
from mpicoll.p2p.record import known_value, value
from mpicoll.records.lines import PairRecord
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text

FAR = 1.25
_SIGMAS = 4 * 1.4826
_MIN_CLASS = 3
_KEYS = ("backend", "transport", "quantity", "bytes")


def mark(pairs: Sequence[PairRecord]) -> None:
    """Set in each record the median of its class, and whether it is an outlier."""
    for rows in _group(pairs, *_KEYS, "link"):
        values = [known_value(record) for record in rows]
        middle = median(values)
        limit = max(log(FAR), _SIGMAS * median(abs(log(amount / middle)) for amount in values))
        visits = min(len(record.visits_us) for record in rows)
        if is_comparable := len(rows) >= _MIN_CLASS and visits > 1:
            times = np.log([record.visits_us[:visits] for record in rows]).T
            slower, faster = (
                [excess.least for excess in compare(sign * times)] for sign in (1, -1)
            )
        for place, record in enumerate(rows):
            record.typical = middle
            record.outlier = is_comparable and max(slower[place], faster[place]) > limit


def outlier_lines(pairs: Sequence[PairRecord]) -> list[str]:
    """Return a sentence for each outlier: pair, ratio, class and link.

    An outlier at several sizes gets one sentence, for the size with the largest distance.
    """
    outliers = [record for record in pairs if record.outlier]
    groups = _group(outliers, "backend", "transport", "quantity", "source", "target")
    return [_outlier_line(rows, pairs) for rows in groups]


def _outlier_line(rows: Sequence[PairRecord], pairs: Sequence[PairRecord]) -> str:
    record = max(rows, key=lambda candidate: abs(log(known_value(candidate) / _typical(candidate))))
    also = ", ".join(bytes_text(row.bytes) for row in rows if row is not record)
    why = f"; {record.link_detail}" if record.link_detail else ""
    amount, typical = known_value(record), _typical(record)
    return (
        f"{_title(record)}: {ends(record, _has_hosts(pairs))} {_does(record, amount)} where its "
        f"class ({record.link}) {_does(record, typical)}: {_ratio(record, amount, typical)}{why}"
        + (f" (also at {also})" if also else "")
    )


def rank_lines(pairs: Sequence[PairRecord]) -> list[str]:
    """Return a sentence for each rank whose messages to all, or from all, ranks are outliers."""
    one_way = [record for record in pairs if record.quantity == ONE_WAY and record.outlier]
    return [
        f"{_title(rows[0])}: rank {getattr(rows[0], side)} stands out {word} every other rank: "
        "look at that rank rather than at its links"
        for side, word in (("source", "to"), ("target", "from"))
        for rows in _group(one_way, *_KEYS, side)
        if len(rows) == rows[0].ranks - 1 > 1
    ]


def class_lines(pairs: Sequence[PairRecord]) -> list[str]:
    """Return a sentence for each class that is far from the best one, with an example pair."""
    return [
        line
        for rows in _group(_class_records(pairs), *_KEYS)
        for line in _compare_classes(rows, pairs)
    ]


def _compare_classes(rows: Sequence[PairRecord], pairs: Sequence[PairRecord]) -> Iterator[str]:
    classes = {group[0].link: group for group in _group(rows, "link")}
    middles = {name: median(map(known_value, group)) for name, group in classes.items()}
    is_less_better = rows[0].quantity == LATENCY
    best = (min if is_less_better else max)(middles, key=middles.__getitem__)
    for name, middle in middles.items():
        if abs(log(middle / middles[best])) <= log(FAR):
            continue
        sample = classes[name][0]
        amount, best_amount = _does(sample, middle), _does(sample, middles[best])
        yield (
            f"{_title(sample)}: {name} {amount} (as {ends(sample, _has_hosts(pairs))}), {best} "
            f"{best_amount}: {_ratio(sample, middle, middles[best])}{_details(classes[name])}"
        )


def _details(rows: Sequence[PairRecord]) -> str:
    """Return details of the links of a class, each with the number of links that have it."""
    counts = Counter(record.link_detail for record in rows if record.link_detail)
    return "".join(
        f"; {text}" if count == len(rows) else f"; {count} of {len(rows)}: {text}"
        for text, count in counts.items()
    )


def _class_records(pairs: Sequence[PairRecord]) -> list[PairRecord]:
    """Return the records that compare classes: latency, and bandwidth of the largest size."""
    largest = max((record.bytes for record in pairs), default=0)
    return [
        record for record in pairs
        if record.quantity == LATENCY or (record.quantity != COPY and record.bytes == largest)
    ]  # fmt: skip


def _group(pairs: Sequence[PairRecord], *names: str) -> list[list[PairRecord]]:
    """Return the records with numbers, grouped by some fields, in order of appearance."""
    key, groups = attrgetter(*names), dict[object, list[PairRecord]]()
    for record in pairs:
        if value(record) is not None:
            groups.setdefault(key(record), []).append(record)
    return list(groups.values())


def _typical(record: PairRecord) -> float:
    assert record.typical is not None
    return record.typical


def _has_hosts(pairs: Sequence[PairRecord]) -> bool:
    """Whether ranks are on several hosts, so that sentences must name the hosts."""
    return len({record.source_host for record in pairs}) > 1


# -- words ------------------------------------------------------------------------------


def ends(record: PairRecord, with_hosts: bool) -> str:
    """Return a pair's name: its ranks, with their GPUs and, if asked for, their hosts."""
    names = [
        _end(record.source, record.source_gpu, record.source_host, with_hosts),
        _end(record.target, record.target_gpu, record.target_host, with_hosts),
    ]
    if record.quantity == COPY:
        return names[0]
    return (" -> " if record.quantity == ONE_WAY else " <-> ").join(names)


def _end(rank: int, gpu: str | None, host: str, with_hosts: bool) -> str:
    more = [f"GPU {gpu}"] if gpu else []
    more += [host] if with_hosts else []
    return f"rank {rank}" + (f" ({', '.join(more)})" if more else "")


def _title(record: PairRecord) -> str:
    quantity = record.quantity.replace("_", " ")
    return f"{record.backend} {record.transport}, {quantity}, {bytes_text(record.bytes)}"


def _does(record: PairRecord, amount: float) -> str:
    if record.quantity == LATENCY:
        return f"takes {number(amount)} us"
    return f"moves {number(amount)} GB/s"


def _ratio(record: PairRecord, amount: float, reference: float) -> str:
    times = exp(abs(log(amount / reference)))
    is_slower = (amount > reference) == (record.quantity == LATENCY)
    return f"{number(times, 2)} times {'slower' if is_slower else 'faster'}"
