"""The classical questions, each with its text and the pairs of algorithms that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Question(NamedTuple):
    """A question.

    Attributes:
        text: the answer of theory.
        pairs: by collective, the algorithms to compare.
    """

    title: str
    text: str
    pairs: Mapping[str, Sequence[tuple[str, str]]]


ONE_OR_TWO = "Allreduce in one call or in two"
QUESTIONS = (
    Question(
        ONE_OR_TWO,
        "Two calls synchronise twice, which decides below a few KiB. Above, bytes decide. "
        "Reduce_scatter + allgather moves 2(p-1)/p of the vector per rank, the lower bound. "
        "Reduce + broadcast moves all of it through the root, up to 2 log2 p times "
        "(Chan, Heimlich, Purkayastha and van de Geijn 2007).",
        {"allreduce": (("native:reduce+broadcast", "native"),
                       ("native:reduce_scatter+allgather", "native"))},
    ),
    Question(
        "Ring or tree",
        "A tree needs log2 p rounds, each with the whole vector. A ring needs p-1 rounds, each "
        "with a p-th of it. For small sizes the number of rounds decides, for large sizes the "
        "number of bytes (Thakur, Rabenseifner and Gropp 2005).",
        {"allreduce": (("ring", "recursive_doubling"),),
         "broadcast": (("scatter_ring", "binomial"),), "allgather": (("ring", "bruck"),),
         "reduce_scatter": (("ring", "recursive_halving"),)},
    ),
    Question(
        "One-shot or two-shot",
        "In shared memory every rank can fold all vectors in one step, which reads p-1 vectors. "
        "Or it folds a p-th of each vector, and fetches the rest in a second step. One-shot waits "
        "once, two-shot reads only 2(p-1)/p of a vector.",
        {"allreduce": (("two_shot", "one_shot"),)},
    ),
    Question(
        "Node-aware or flat",
        "Node-aware algorithms send less data between nodes, but wait once more.",
        {"allreduce": (("two_level", "recursive_doubling"),),
         "broadcast": (("two_level", "binomial"),), "reduce": (("two_level", "binomial"),),
         "allgather": (("two_level", "ring"),)},
    ),
)  # fmt: skip
