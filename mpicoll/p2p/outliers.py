"""Which pairs are far from those like them, and which classes of pairs are: in sentences.

A pair is an outlier if the ratio of its number to the median of its class is beyond 1.25, and
beyond four standard deviations of such ratios, estimated from the median of their absolute
logarithms so that the outliers themselves do not count; and if it was so at each of at least two
visits, so that a moment's noise names nobody. A class needs three numbers to have a median that
outvotes an outlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import exp, log
from statistics import median

from mpicoll.bench.record import Record
from mpicoll.measurement.ping_pong import COPY, LATENCY, ONE_WAY
from mpicoll.p2p.record import bandwidth, value
from mpicoll.text.numbers import number
from mpicoll.text.sizes import bytes_text

FAR = 1.25
_SIGMAS = 4 * 1.4826
_LEAST = 3
_KEYS = ("backend", "transport", "quantity", "bytes")


def mark(pairs: Sequence[Record]) -> None:
    """Write into each record what is typical of its class, and whether it is far from that."""
    for rows in _grouped(pairs, (*_KEYS, "link")):
        values = [_number(each) for each in rows]
        middle = median(values)
        limit = _limit(values, middle)
        for each in rows:
            each["typical"] = middle
            each["outlier"] = len(rows) >= _LEAST and _distance(each, middle) > limit


def _limit(values: Sequence[float], middle: float) -> float:
    """Return the logarithm of the ratio from which a number is far from the median."""
    spread = median(abs(log(each / middle)) for each in values)
    return max(log(FAR), _SIGMAS * spread)


def _distance(record: Record, middle: float) -> float:
    """Return how far from the median a record lies where it comes nearest."""
    ends = record["visits_us"]
    if len(ends) < 2:
        return 0.0
    if record["quantity"] != LATENCY:
        ends = [bandwidth(record["quantity"], record["bytes"], each) for each in ends]
    ratios = [log(each / middle) for each in (*ends, _number(record))]
    return max(min(ratios), -max(ratios), 0.0)


def outlier_lines(pairs: Sequence[Record]) -> list[str]:
    """Return a sentence for each outlier, naming pair, ratio, class and what joins the two.

    A pair that is one at several sizes has one sentence, of the size where it is farthest.
    """
    keys = ("backend", "transport", "quantity", "source", "target")
    found = _grouped([each for each in pairs if each["outlier"]], keys)
    return [_outlier_line(rows, pairs) for rows in found]


def _outlier_line(rows: Sequence[Record], pairs: Sequence[Record]) -> str:
    record = max(rows, key=lambda each: abs(log(_number(each) / each["typical"])))
    also = ", ".join(bytes_text(each["bytes"]) for each in rows if each is not record)
    hosts = {each["source_host"] for each in pairs}
    why = f"; {record['link_detail']}" if record["link_detail"] else ""
    own, typical = _number(record), record["typical"]
    return (
        f"{_title(record)}: {ends(record, len(hosts) > 1)} {_does(record, own)} where its class "
        f"({record['link']}) {_does(record, typical)}: {_ratio(record, own, typical)}{why}"
        + (f" (also at {also})" if also else "")
    )


def rank_lines(pairs: Sequence[Record]) -> list[str]:
    """Return a sentence for each rank whose messages to all others, or from all, stand out."""
    found = []
    for side, word in (("source", "to"), ("target", "from")):
        one_way = [each for each in pairs if each["quantity"] == ONE_WAY and each["outlier"]]
        for rows in _grouped(one_way, (*_KEYS, side)):
            first = rows[0]
            if len(rows) == first["ranks"] - 1 > 1:
                found.append(
                    f"{_title(first)}: rank {first[side]} stands out {word} every other rank: "
                    "look at that rank rather than at its links"
                )
    return found


def class_lines(pairs: Sequence[Record]) -> list[str]:
    """Return a sentence for each class that is far from the best one, with a pair to look at."""
    return [line for rows in _grouped(_telling(pairs), _KEYS) for line in _compared(rows, pairs)]


def _compared(rows: Sequence[Record], pairs: Sequence[Record]) -> Iterator[str]:
    classes = {group[0]["link"]: group for group in _grouped(rows, ("link",))}
    middles = {name: median(map(_number, group)) for name, group in classes.items()}
    is_less_better = rows[0]["quantity"] == LATENCY
    best = (min if is_less_better else max)(middles, key=middles.__getitem__)
    hosts = {each["source_host"] for each in pairs}
    for name, middle in middles.items():
        if abs(log(middle / middles[best])) <= log(FAR):
            continue
        sample = classes[name][0]
        why = _details(classes[name])
        own, other = _does(sample, middle), _does(sample, middles[best])
        yield (
            f"{_title(sample)}: {name} {own} (as {ends(sample, len(hosts) > 1)}), {best} {other}: "
            f"{_ratio(sample, middle, middles[best])}{why}"
        )


def _details(rows: Sequence[Record]) -> str:
    """Return what is known of the pairs of a class beyond it, and of how many."""
    counts = Counter(each["link_detail"] for each in rows if each["link_detail"])
    return "".join(
        f"; {text}" if count == len(rows) else f"; {count} of {len(rows)}: {text}"
        for text, count in counts.items()
    )


def _telling(pairs: Sequence[Record]) -> list[Record]:
    """Return what a class is judged by: latency, and the bandwidths of the largest size."""
    most = max((each["bytes"] for each in pairs), default=0)
    return [
        each for each in pairs
        if each["quantity"] == LATENCY or (each["quantity"] != COPY and each["bytes"] == most)
    ]  # fmt: skip


def _grouped(pairs: Sequence[Record], keys: Sequence[str]) -> list[list[Record]]:
    """Return the records that have numbers, by some of their keys, in order of appearance."""
    found: dict[tuple[object, ...], list[Record]] = {}
    for each in pairs:
        if value(each) is not None:
            found.setdefault(tuple(each[key] for key in keys), []).append(each)
    return list(found.values())


def _number(record: Record) -> float:
    found = value(record)
    assert found is not None
    return found


# -- words ------------------------------------------------------------------------------


def ends(record: Record, with_hosts: bool) -> str:
    """Return a pair's name: ranks, and their GPUs and hosts where these tell more."""
    names = []
    for side in ("source", "target"):
        more = [f"GPU {record[f'{side}_gpu']}"] if record[f"{side}_gpu"] else []
        more += [record[f"{side}_host"]] if with_hosts else []
        names.append(f"rank {record[side]}" + (f" ({', '.join(more)})" if more else ""))
    if record["quantity"] == COPY:
        return names[0]
    return (" -> " if record["quantity"] == ONE_WAY else " <-> ").join(names)


def _title(record: Record) -> str:
    quantity = record["quantity"].replace("_", " ")
    return f"{record['backend']} {record['transport']}, {quantity}, {bytes_text(record['bytes'])}"


def _does(record: Record, amount: float) -> str:
    if record["quantity"] == LATENCY:
        return f"takes {number(amount)} us"
    return f"moves {number(amount)} GB/s"


def _ratio(record: Record, own: float, other: float) -> str:
    times = exp(abs(log(own / other)))
    is_slower = (own > other) == (record["quantity"] == LATENCY)
    return f"{number(times, 2)} times {'slower' if is_slower else 'faster'}"
