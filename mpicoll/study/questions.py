"""The classical questions, each with its text and the pairs of algorithms that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Question(NamedTuple):
    """A question.

    Attributes:
        text: what theory says.
        pairs: by collective, the algorithms to compare.
    """

    title: str
    text: str
    pairs: Mapping[str, Sequence[tuple[str, str]]]


ONE_OR_TWO = "Allreduce in one call or in two"
QUESTIONS = (
    Question(
        ONE_OR_TWO,
        "Two calls synchronise twice, which decides below a few KiB. From the size at which bytes "
        "dominate, reduce_scatter + allgather moves 2(p-1)/p of the vector per rank, the lower "
        "bound, and reduce + broadcast all of it through the root, 2 log2 p times at worst "
        "(Chan, Heimlich, Purkayastha and van de Geijn 2007).",
        {"allreduce": (("native:reduce+broadcast", "native"),
                       ("native:reduce_scatter+allgather", "native"))},
    ),
    Question(
        "Ring or tree",
        "A tree needs log2 p rounds, each of the whole vector; a ring p-1, each of a p-th of it. "
        "Few bytes are a matter of rounds, many of bytes (Thakur, Rabenseifner and Gropp 2005).",
        {"allreduce": (("ring", "recursive_doubling"),),
         "broadcast": (("scatter_ring", "binomial"),), "allgather": (("ring", "bruck"),),
         "reduce_scatter": (("ring", "recursive_halving"),)},
    ),
    Question(
        "One-shot or two-shot",
        "In shared memory every rank can fold all vectors itself, in one step that reads p-1 of "
        "them; or fold a p-th of each, and fetch the rest in a second step. The first waits once, "
        "the second reads 2(p-1)/p of a vector.",
        {"allreduce": (("two_shot", "one_shot"),)},
    ),
    Question(
        "Node-aware or flat",
        "Levels send less between nodes, and wait once more.",
        {"allreduce": (("two_level", "recursive_doubling"),),
         "broadcast": (("two_level", "binomial"),), "reduce": (("two_level", "binomial"),),
         "allgather": (("two_level", "ring"),)},
    ),
)  # fmt: skip
