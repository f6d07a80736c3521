"""Divisions of ranks into groups, and the relation of one group to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mpicoll.algorithms.registry import Algorithm
from mpicoll.backend import Nodes
from mpicoll.notation.schedule import lenders

Ints = np.ndarray


@dataclass(frozen=True)
class Groups:
    """Groups of ranks.

    Attributes:
        ranks: all ranks, group by group.
        first: where each group begins in `ranks`, and the end.
        group, place: of each rank, its group and its place there.
    """

    ranks: Ints
    first: Ints
    group: Ints
    place: Ints

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.first) - 1

    @property
    def widths(self) -> Ints:
        """The number of ranks of each group."""
        widths: Ints = np.diff(self.first)
        return widths

    def distance(self, sources: Ints | int, targets: Ints, xor: Ints | bool) -> Ints:
        """Return the distances between the groups of ranks; the exclusive or where `xor` is set."""
        source, target = self.group[sources], self.group[targets]
        distance: Ints = np.where(xor, source ^ target, (target - source) % self.count)
        return distance

    def at(self, groups: Ints, distances: Ints, xor: Ints) -> Ints:
        """Return the groups at these distances."""
        group: Ints = np.where(xor, groups ^ distances, (groups + distances) % self.count)
        return group

    def rank(self, groups: Ints, places: Ints | int) -> Ints:
        """Return the ranks at these places of groups."""
        ranks: Ints = self.ranks[self.first[groups] + places]
        return ranks


def grouped(groups: Sequence[Sequence[int]]) -> Groups:
    """Return groups of ranks as arrays.

    >>> grouped(((0, 1), (2,))).place.tolist()
    [0, 1, 0]
    """
    widths = np.fromiter(map(len, groups), np.int64, len(groups))
    first = np.concatenate([[0], np.cumsum(widths)])
    ranks = np.fromiter((rank for group in groups for rank in group), np.int64, first[-1])
    group, place = np.empty_like(ranks), np.empty_like(ranks)
    group[ranks] = np.repeat(np.arange(len(groups)), widths)
    place[ranks] = np.arange(len(ranks)) - np.repeat(first[:-1], widths)
    return Groups(ranks, first, group, place)


def divisions(algorithm: Algorithm, size: int, nodes: Nodes) -> Iterator[Groups]:
    """Yield the divisions of the ranks by which to look for equal schedules, simplest first.

    These are the nodes, pairs of nodes, and on nodes of one rank the groups of `lenders`.
    """
    yield grouped(nodes)
    if len(nodes) > 2 and len(nodes) % 2 == 0:
        pairs = zip(nodes[::2], nodes[1::2], strict=True)
        yield grouped([first + second for first, second in pairs])
    if len(nodes) == size and size & (size - 1):
        radix = int(algorithm.parameters.get("radix", 2))
        # The last of a group goes on for the others.
        yield grouped([group[::-1] for group in lenders(size, radix)])
