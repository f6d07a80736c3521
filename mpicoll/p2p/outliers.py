"""Find pairs that are far from those like them, and classes of pairs that are, in sentences.

A pair is an outlier if the ratio of its number to the median of its class is beyond 1.25, and
beyond four standard deviations of such ratios, estimated from the median of their absolute
logarithms so that the outliers themselves do not count; and if it was so at each of at least two
visits, so that the noise of a moment names nobody. The median of a class outvotes an outlier only
where the class has at least three numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import exp, log
from operator import attrgetter
from statistics import median

from mpicoll.measurement.ping_pong import COPY, LATENCY, ONE_WAY
from mpicoll.p2p.record import bandwidth, known_value, value
from mpicoll.records.lines import PairRecord
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text

FAR = 1.25
_SIGMAS = 4 * 1.4826
_LEAST = 3
_KEYS = ("backend", "transport", "quantity", "bytes")


def mark(pairs: Sequence[PairRecord]) -> None:
    """Set in each record the median of its class, and whether it is an outlier."""
    for rows in _grouped(pairs, *_KEYS, "link"):
        values = [known_value(each) for each in rows]
        middle = median(values)
        limit = _limit(values, middle)
        for each in rows:
            each.typical = middle
            each.outlier = len(rows) >= _LEAST and _distance(each, middle) > limit


def _limit(values: Sequence[float], middle: float) -> float:
    """Return the logarithm of the ratio to the median beyond which a number is an outlier."""
    spread = median(abs(log(each / middle)) for each in values)
    return max(log(FAR), _SIGMAS * spread)


def _distance(record: PairRecord, middle: float) -> float:
    """Return the logarithm of a record's ratio to the median at the visit nearest to it."""
    if len(record.visits_us) < 2:
        return 0.0
    numbers = [
        us if record.quantity == LATENCY else bandwidth(record.quantity, record.bytes, us)
        for us in record.visits_us
    ]
    ratios = [log(each / middle) for each in (*filter(None, numbers), known_value(record))]
    return max(min(ratios), -max(ratios), 0.0)


def outlier_lines(pairs: Sequence[PairRecord]) -> list[str]:
    """Return a sentence for each outlier: pair, ratio, class and link.

    A pair that is one at several sizes has one sentence, of the size where it is farthest.
    """
    outliers = [each for each in pairs if each.outlier]
    found = _grouped(outliers, "backend", "transport", "quantity", "source", "target")
    return [_outlier_line(rows, pairs) for rows in found]


def _outlier_line(rows: Sequence[PairRecord], pairs: Sequence[PairRecord]) -> str:
    record = max(rows, key=lambda each: abs(log(known_value(each) / _typical(each))))
    also = ", ".join(bytes_text(each.bytes) for each in rows if each is not record)
    why = f"; {record.link_detail}" if record.link_detail else ""
    own, typical = known_value(record), _typical(record)
    return (
        f"{_title(record)}: {ends(record, _has_hosts(pairs))} {_does(record, own)} where its "
        f"class ({record.link}) {_does(record, typical)}: {_ratio(record, own, typical)}{why}"
        + (f" (also at {also})" if also else "")
    )


def rank_lines(pairs: Sequence[PairRecord]) -> list[str]:
    """Return a sentence for each rank whose messages to all others, or from all, stand out."""
    one_way = [each for each in pairs if each.quantity == ONE_WAY and each.outlier]
    return [
        f"{_title(rows[0])}: rank {getattr(rows[0], side)} stands out {word} every other rank: "
        "look at that rank rather than at its links"
        for side, word in (("source", "to"), ("target", "from"))
        for rows in _grouped(one_way, *_KEYS, side)
        if len(rows) == rows[0].ranks - 1 > 1
    ]


def class_lines(pairs: Sequence[PairRecord]) -> list[str]:
    """Return a sentence for each class that is far from the best one, with a pair to look at."""
    return [line for rows in _grouped(_judged(pairs), *_KEYS) for line in _compared(rows, pairs)]


def _compared(rows: Sequence[PairRecord], pairs: Sequence[PairRecord]) -> Iterator[str]:
    classes = {group[0].link: group for group in _grouped(rows, "link")}
    middles = {name: median(map(known_value, group)) for name, group in classes.items()}
    is_less_better = rows[0].quantity == LATENCY
    best = (min if is_less_better else max)(middles, key=middles.__getitem__)
    for name, middle in middles.items():
        if abs(log(middle / middles[best])) <= log(FAR):
            continue
        sample = classes[name][0]
        own, other = _does(sample, middle), _does(sample, middles[best])
        yield (
            f"{_title(sample)}: {name} {own} (as {ends(sample, _has_hosts(pairs))}), {best} "
            f"{other}: {_ratio(sample, middle, middles[best])}{_details(classes[name])}"
        )


def _details(rows: Sequence[PairRecord]) -> str:
    """Return details of the links of a class, each with the number of links that have it."""
    counts = Counter(each.link_detail for each in rows if each.link_detail)
    return "".join(
        f"; {text}" if count == len(rows) else f"; {count} of {len(rows)}: {text}"
        for text, count in counts.items()
    )


def _judged(pairs: Sequence[PairRecord]) -> list[PairRecord]:
    """Return the records that classes are compared by: latency, and the largest bandwidths."""
    most = max((each.bytes for each in pairs), default=0)
    return [
        each for each in pairs
        if each.quantity == LATENCY or (each.quantity != COPY and each.bytes == most)
    ]  # fmt: skip


def _grouped(pairs: Sequence[PairRecord], *names: str) -> list[list[PairRecord]]:
    """Return the records that have numbers, by some of their fields, in order of appearance."""
    key, found = attrgetter(*names), dict[object, list[PairRecord]]()
    for each in pairs:
        if value(each) is not None:
            found.setdefault(key(each), []).append(each)
    return list(found.values())


def _typical(record: PairRecord) -> float:
    assert record.typical is not None
    return record.typical


def _has_hosts(pairs: Sequence[PairRecord]) -> bool:
    """Whether ranks are on several hosts, so that sentences must name these."""
    return len({each.source_host for each in pairs}) > 1


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


def _ratio(record: PairRecord, own: float, other: float) -> str:
    times = exp(abs(log(own / other)))
    is_slower = (own > other) == (record.quantity == LATENCY)
    return f"{number(times, 2)} times {'slower' if is_slower else 'faster'}"
