"""Sentences on a collective's aim, on each round of a schedule, and on its merits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import log

from mpicoll.explain.measures import minimum
from mpicoll.explain.trace import Hop, RoundTrace, runs
from mpicoll.text.numbers import count_text

AIMS = {
    "barrier": "No rank may go on before it has heard of all others.",
    "broadcast": "Rank {root}, the root, has a vector m; all must end with it.",
    "reduce": "Every rank has a vector m; rank {root}, the root, must end with their sum.",
    "allreduce": "Every rank has a vector m; all must end with the sum of them all.",
    "gather": "Every rank has a row; rank {root}, the root, must end with all rows, m together.",
    "allgather": "Every rank has a row; all must end with all rows, m together.",
    "scatter": "Rank {root}, the root, has all rows, m together; each rank must end with its own.",
    "reduce_scatter": "Every rank has all rows, m together; each must end with the sum of its own.",
    "alltoall": "Every rank has a row for every rank, m together; all must be delivered.",
    "scan": "Every rank has a vector m; each must end with the sum up to its own.",
    "exscan": "Every rank has a vector m; each must end with the sum of those before it.",
}


def aim(collective: str, root: int) -> str:
    """Return a sentence that states the aim of a collective.

    >>> aim("broadcast", 2)
    'Rank 2, the root, has a vector m; all must end with it.'
    """
    return AIMS[collective].format(root=root)


def join_names(names: Iterable[object]) -> str:
    """Enumerate names.

    >>> join_names(["ring"]), join_names(["ring", "swing", "circulant"])
    ('ring', 'ring, swing and circulant')
    """
    *names_before, last = map(str, names)
    return f"{', '.join(names_before)} and {last}" if names_before else last


def share(part: float | Fraction, unit: str = "m") -> str:
    """Write a share of the vector.

    >>> share(Fraction(1, 4)), share(1.5), share(1.0), share(Fraction(3, 16)), share(0)
    ('m/4', '1.5 m', 'm', '3m/16', '0')
    """
    exact = Fraction(part).limit_denominator(4096)
    if exact in (0, 1):
        return unit if exact else "0"
    if exact < 1:
        return f"{exact.numerator if exact.numerator > 1 else ''}{unit}/{exact.denominator}"
    return f"{float(exact):.4g} {unit}"


def about_bytes(nbytes: float) -> str:
    """Write a number of bytes, roughly.

    >>> about_bytes(440000.0), about_bytes(900), about_bytes(3.2e6)
    ('430 KiB', '900 B', '3.05 MiB')
    """
    power = min(3, int(log(max(1.0, nbytes), 1024)))
    return f"{nbytes / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


# -- a round ---------------------------------------------------------------------------------


def sentence(trace: RoundTrace, now: int) -> str:
    """Return a sentence on a round.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.explain.trace import trace_rounds
    >>> print(sentence(trace_rounds(find("allreduce", "ring"), 4), 2))
    Each rank sends the block it has just reduced (m/4) to its right neighbour, which reduces it.
    >>> print(sentence(trace_rounds(find("allreduce", "recursive_doubling"), 4), 2))
    Pairs of ranks, 2 apart, swap whole vectors (m); each reduces what it gets.
    """
    hops = trace.hops[now]
    if now == 0:
        return f"Before the first round. {aim(trace.collective.name, trace.root)}"
    if not hops:
        return "No message leaves in this round."
    pairs = [(hop.source, hop.destination) for hop in hops]
    payload, ends = _payload(trace, hops, now), _ends(trace, hops)
    if _swap(pairs):
        return f"{_swaps(pairs, trace.size, _plural(payload))}{ends[0]}."
    return f"{_sends(pairs, trace.size, payload)}{ends[1]}."


def _swap(pairs: Sequence[tuple[int, int]]) -> bool:
    """Whether the ranks are in pairs that swap."""
    is_single = max(Counter(source for source, _ in pairs).values()) == 1
    return is_single and {(target, source) for source, target in pairs} == {*pairs}


def _swaps(pairs: Sequence[tuple[int, int]], size: int, payload: str) -> str:
    """Return a sentence on ranks that swap blocks."""
    if len(pairs) == 2:
        return f"Ranks {pairs[0][0]} and {pairs[0][1]} swap {payload}"
    if len(pairs) < size:
        return f"Ranks {_ranks(source for source, _ in pairs)} swap {payload} in pairs"
    distances = {
        min((target - source) % size, (source - target) % size) for source, target in pairs
    }
    distance = f", {distances.pop()} apart," if len(distances) == 1 else ""
    return f"Pairs of ranks{distance} swap {payload}"


def _sends(pairs: Sequence[tuple[int, int]], size: int, payload: str) -> str:
    """Return a sentence on ranks that send blocks."""
    sources, targets = {source for source, _ in pairs}, {target for _, target in pairs}
    if len({*pairs}) == size * (size - 1):
        return f"Each rank sends {payload} to every other rank"
    if len(pairs) > len(sources) == len(targets) == size:
        return f"Each rank sends {payload} to several others"
    around = {(target - source) % size for source, target in pairs}
    if len(pairs) == size and len(around) == 1:
        return f"Each rank sends {payload} to {_neighbour(around.pop(), size)}"
    steps = {target - source for source, target in pairs}
    if len(sources) > 1 and len(steps) == 1:
        return f"Ranks {_ranks(sources)} each send {payload} to {_neighbour(steps.pop(), 2 * size)}"
    every = (
        f"Rank {_ranks(sources)} sends" if len(sources) == 1 else f"Ranks {_ranks(sources)} send"
    )
    return f"{every} {payload} to {'rank' if len(targets) == 1 else 'ranks'} {_ranks(targets)}"


def _neighbour(step: int, around: int) -> str:
    """Return who is that many steps to the right of a rank, the short way."""
    right = step % around
    distance, side = min((right, "right"), (around - right, "left"))
    return f"its {side} neighbour" if distance == 1 else f"the rank {distance} to its {side}"


def _ranks(ranks: Iterable[int]) -> str:
    return runs(sum(1 << rank for rank in {*ranks}))


def _payload(trace: RoundTrace, hops: Sequence[Hop], now: int) -> str:
    """Return the contents of a message in words, with their share of the vector."""
    counts = {len(hop.blocks) for hop in hops}
    largest = max(counts)
    if largest == 0:
        return "a signal"
    upto = "up to " if len(counts) > 1 else ""
    size = f" ({upto}{share(Fraction(largest, trace.whole))})"
    if largest == trace.whole and trace.collective.unit == "vector":
        return f"the whole vector{size}"
    word = (
        "row"
        if trace.collective.unit in ("rows", "pairs") and trace.whole == trace.size
        else "block"
    )
    past = _past(trace, hops, now)
    if past == "finished":
        word, past = f"finished {word}", ""
    if largest == 1:
        return f"{'the' if past else 'a'} {word}{past}{size}"
    return f"{upto}{largest} {word}s{past}{size}"


def _past(trace: RoundTrace, hops: Sequence[Hop], now: int) -> str:
    """Return the origin of the blocks that are sent in a round, in words."""
    sent = [
        (hop.source, column)
        for hop in hops
        for column, entry in enumerate(trace.columns)
        if not {*hop.blocks}.isdisjoint(entry.blocks)
    ]
    cells = [trace.states[now - 1][rank][column] for rank, column in sent]
    everyone = (1 << trace.size) - 1
    if trace.collective.reduces and cells and all(cell.mask == everyone for cell in cells):
        return "finished"
    marks = {cell.mark for cell in cells}
    if trace.collective.unit != "pairs" and marks in ({"+"}, {"="}):
        return " it has just reduced" if marks == {"+"} else " it has just received"
    return ""


_PLURALS = (
    ("the whole vector", "whole vectors"),
    ("a signal", "signals"),
    ("a finished block", "finished blocks"),
    ("a finished row", "finished rows"),
    ("a block", "blocks"),
    ("a row", "rows"),
    ("the block it has", "the blocks they have"),
    ("the row it has", "the rows they have"),
    ("it has just", "they have just"),
)


def _plural(payload: str) -> str:
    """Return the plural of a message's contents.

    >>> _plural("the whole vector (m)"), _plural("a signal"), _plural("2 blocks (m/2)")
    ('whole vectors (m)', 'signals', '2 blocks (m/2)')
    """
    for singular, plural in _PLURALS:
        if singular in payload:
            return payload.replace(singular, plural)
    return payload


def _ends(trace: RoundTrace, hops: Sequence[Hop]) -> tuple[str, str]:
    """Return the end of a sentence, on the use of received data: for swaps, and for sends."""
    if not trace.collective.reduces:
        return "", ""
    folds = {hop.folded for hop in hops}
    if len(folds) > 1:
        return "; some is reduced, some kept", "; some is reduced, some kept"
    verb, past_tense = ("reduces", "reduced") if True in folds else ("keeps", "kept")
    is_single = len(hops) == trace.size or len({hop.destination for hop in hops}) == 1
    sent = f", which {verb} it" if is_single else f"; what arrives is {past_tense}"
    return f"; each {verb} what it gets", sent


# -- the whole ----------------------------------------------------------------------------------


def verdict(trace: RoundTrace) -> str:
    """Return a sentence that compares a schedule with the least possible.

    >>> from mpicoll.algorithms import find
    >>> from mpicoll.explain.trace import trace_rounds
    >>> print(verdict(trace_rounds(find("allreduce", "ring"), 4)))
    ring: 6 rounds where 2 would do; 1.5 m sent, the least possible
    >>> print(verdict(trace_rounds(find("allreduce", "recursive_doubling"), 8)))
    recursive_doubling: 3 rounds, the fewest possible; 3 m sent where 1.75 m would do
    """
    text = f"{trace.algorithm}: {_rounds(trace)}"
    return text if trace.collective.unit == "none" else f"{text}; {_volume(trace)}"


def _rounds(trace: RoundTrace) -> str:
    fewest, ports = minimum(trace).rounds, trace.proof.ports
    text = count_text(trace.rounds, "round")
    if trace.rounds > fewest:
        return f"{text} where {fewest} would do"
    if trace.rounds == fewest:
        return f"{text}, the fewest possible"
    return f"{text}, fewer than the {fewest} of one message at a time: up to {ports} at once"


def _volume(trace: RoundTrace) -> str:
    little, moved = minimum(trace).volume, trace.moved(trace.rounds)
    way = "sent" if trace.sent(trace.rounds) == moved else "received by one rank"
    if moved > little + 1e-9:
        return f"{share(moved)} {way} where {share(little)} would do"
    return f"{share(moved)} {way}, the least possible"


def reasons(trace: RoundTrace) -> list[str]:
    """Return the reasons why a schedule is, or is not, the best for small and large messages."""
    if trace.size == 1:
        return ["A single rank has no one to send to."]
    sentences = [_latency(trace)]
    if trace.collective.unit != "none":
        sentences.append(_bandwidth(trace))
    return sentences


def _latency(trace: RoundTrace) -> str:
    fewest = minimum(trace).rounds
    reached = [heard_of(trace, now) for now in range(trace.rounds + 1)]
    if trace.rounds < fewest:
        return (
            f"Rounds: {trace.rounds}, as a rank starts up to {trace.proof.ports} messages at once; "
            f"one at a time, {fewest} would be the fewest."
        )
    path = ", ".join(map(str, reached[: min(len(reached), 6)])) + (
        ", ..." if len(reached) > 6 else ""
    )
    if trace.rounds == fewest:
        return (
            f"Rounds: {trace.rounds}, the fewest possible. What is known to a rank can at most "
            f"double in a round, and {trace.size} ranks need {fewest} doublings. "
            "So this is latency-optimal: small messages cost rounds, and here are no more."
        )
    return (
        f"Rounds: {trace.rounds} where {fewest} would do. What is known could double in each "
        f"round; here the least informed rank has heard of {path} of {trace.size} ranks after "
        "0, 1, 2, ... rounds. Small messages cost rounds, so they pay for it."
    )


def _bandwidth(trace: RoundTrace) -> str:
    little, moved = minimum(trace).volume, trace.moved(trace.rounds)
    if moved > little + 1e-9:
        return (
            f"Bytes: {share(moved)} through the busiest rank where {share(little)} would do: "
            f"{_typical(trace)}. Large messages cost bytes, so they pay for it."
        )
    return (
        f"Bytes: {share(moved)} through the busiest rank, the least possible. {_must(trace)} "
        f"Here {_typical(trace)}, so no rank moves more than its part. So this is "
        "bandwidth-optimal: large messages cost bytes, and here are no more."
    )


def _typical(trace: RoundTrace) -> str:
    """Return the bytes of messages in words."""
    sizes = [Fraction(len(hop.blocks), trace.whole) for now in trace.hops for hop in now]
    low, high = share(min(sizes, default=0)), share(max(sizes, default=0))
    return f"every message carries {low}" if low == high else f"messages carry {low} to {high}"


def _must(trace: RoundTrace) -> str:
    if trace.collective.name == "allreduce":
        size = trace.size
        return (
            f"To bring {size} vectors together takes {size - 1} transfers of m, to hand the sum "
            f"out as many: {share(2 * (size - 1))} in all, so at least "
            f"{share(minimum(trace).volume)} for some of {size} ranks."
        )
    return "Some rank must send, or receive, that much in any schedule."


def heard_of(trace: RoundTrace, now: int) -> int:
    """Return the number of ranks that the least informed rank has heard of after a round."""
    return min(mask.bit_count() for mask in trace.sources[now])
