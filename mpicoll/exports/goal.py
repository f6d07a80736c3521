"""A schedule as GOAL, which LogGOPSim and ATLAHS read (Hoefler, Siebert and Lumsdaine 2009).

A round begins when all operations of the one before have ended. Folds are `calc`, in nanoseconds;
a `calc` of nothing joins the messages of a round where there are several.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpicoll.algorithms.registry import Algorithm
from mpicoll.backend import Nodes
from mpicoll.cli.progress import tracked
from mpicoll.costs.models import DEFAULT
from mpicoll.exports.sized import SizedMessage, SizedRound, sized_rounds


def goal(
    algorithm: Algorithm, size: int, nbytes: int, root: int = 0, nodes: Nodes | None = None
) -> Iterator[str]:
    r"""Yield the lines of a GOAL file.

    Args:
        nbytes: as in `sized_rounds`.

    >>> from mpicoll.algorithms import find
    >>> print("\n".join(goal(find("allreduce", "ring"), 2, 400)))
    num_ranks 2
    rank 0 {
    l1: send 200b to 1 tag 0
    l2: recv 200b from 1 tag 0
    l3: calc 10
    l3 requires l1
    l3 requires l2
    l4: send 200b to 1 tag 1
    l4 requires l3
    l5: recv 200b from 1 tag 1
    l5 requires l3
    }
    rank 1 {
    l1: send 200b to 0 tag 0
    l2: recv 200b from 0 tag 0
    l3: calc 10
    l3 requires l1
    l3 requires l2
    l4: send 200b to 0 tag 1
    l4 requires l3
    l5: recv 200b from 0 tag 1
    l5 requires l3
    }
    """
    yield f"num_ranks {size}"
    for rank in tracked(range(size), "rank {}".format):
        yield f"rank {rank} {{"
        yield from _rank([*sized_rounds(algorithm, rank, size, nbytes, root, nodes)])
        yield "}"


def _rank(rounds: list[SizedRound]) -> Iterator[str]:
    number, previous = 0, 0  # labels count from 1: 0 is none
    for index, (messages, folded) in enumerate(rounds):
        first = number + 1
        for message in messages:
            number += 1
            yield f"l{number}: {_written(message)}"
            if previous:
                yield f"l{number} requires l{previous}"
        if folded or (len(messages) > 1 and index + 1 < len(rounds)):
            yield f"l{number + 1}: calc {round(1e9 * DEFAULT.gamma * folded)}"
            for required in range(first, number + 1) if messages else filter(None, [previous]):
                yield f"l{number + 1} requires l{required}"
            number += 1
        previous = number


def _written(message: SizedMessage) -> str:
    verb, way = ("send", "to") if message.is_send else ("recv", "from")
    return f"{verb} {message.nbytes}b {way} {message.peer} tag {message.tag}"
