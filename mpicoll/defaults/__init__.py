"""The algorithms that MPICH and Open MPI choose by default, as data: ``algorithm="mpich_default"``.

Each library's decision table is a file beside this one; `tables` says how it is read. The
schedules run over this project's executor, so a difference to the library's own call is one of
executors, not of algorithms, except where `Choice.note` says how they differ.

>>> choose("mpich_default", "broadcast", Call(8, bytes=12288)).schedule
'binomial'
>>> choose("mpich_default", "broadcast", Call(8, bytes=12289)).schedule
'scatter_recursive_doubling'
>>> choose("openmpi_default", "alltoall", Call(8, bytes=64)).note
'at most so many messages at a time as a parameter says, which is unset: all of them'

``python -m mpicoll.explain allreduce --defaults --ranks 8`` prints the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpicoll.defaults.calls import Call, Choice

if TYPE_CHECKING:
    from mpicoll.defaults.tables import Library

__all__ = ["NAMES", "Call", "Choice", "choose", "function", "table"]

NAMES = ("mpich_default", "openmpi_default")
"""The names of a library's choice, given in the place of an algorithm."""


def table(name: str) -> Library:
    """Return the decision table of a library; `name` is one of `NAMES`.

    >>> table("mpich_default").library.partition(" ")[0]
    'MPICH'
    """
    from mpicoll.defaults.tables import load  # most programs need no tables, and no msgspec

    return load(name.removesuffix("_default"))


def function(collective: str, *, has_counts: bool = False) -> str:
    """Return the call of MPI, as decision tables name it.

    >>> function("broadcast"), function("allgather", has_counts=True)
    ('bcast', 'allgatherv')
    >>> function("reduce_scatter"), function("reduce_scatter", has_counts=True)
    ('reduce_scatter_block', 'reduce_scatter')
    """
    if collective == "reduce_scatter":
        return collective if has_counts else "reduce_scatter_block"
    return {"broadcast": "bcast"}.get(collective, collective) + "v" * has_counts


def choose(name: str, collective: str, call: Call, *, has_counts: bool = False) -> Choice:
    """Return the algorithm that a library takes for a call.

    >>> choose("mpich_default", "broadcast", Call(8, bytes=64)).schedule
    'binomial'

    Args:
        name: one of `NAMES`.
        has_counts: the rows have counts, as in MPI's calls that end in v.
    """
    return table(name).look_up(function(collective, has_counts=has_counts), call)
