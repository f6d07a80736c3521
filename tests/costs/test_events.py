"""The event simulation against a plain one, a message at a time, and against closed forms."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from catalogue import CATALOGUE, label
from topologies import topologies

from mpicoll.algorithms.registry import Algorithm, find
from mpicoll.costs import (
    AlphaBeta,
    Hockney,
    LogGP,
    Model,
    Nodes,
    Switch,
    Topology,
    Torus,
    pattern_of,
    simulate,
)
from mpicoll.errors import Deadlock, ScheduleError, Unsupported
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.schedule import Fold, Receive, Send, recv, send

MODELS: list[Model] = [
    Hockney(1e-6, 1e-9, 3e-10), Hockney(1e-6, 1e-9, ports=None), Hockney(2e-6, 1e-9, ports=2),
    LogGP(L=1e-6, o=2e-7, g=5e-7, G=1e-9, gamma=1e-10),
]  # fmt: skip


@pytest.mark.parametrize("size", [2, 5, pytest.param(8, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("algorithm", CATALOGUE, ids=label)
def test_the_simulation_is_that_of_one_message_after_the_other(
    algorithm: Algorithm, size: int
) -> None:
    # Which model meets which topology changes with the size.
    shapes = [*topologies(size)][5 if size == 8 else 0 :]  # those that only eight ranks have
    for topology, model in zip(shapes, cycle(MODELS[size % 4 :] + MODELS), strict=False):
        try:
            pattern = pattern_of(algorithm, size, 0, topology.groups)
        except Unsupported:
            continue
        plain = Plain(algorithm, topology, 12_000, model).finish()
        assert simulate(pattern, 12_000, model, topology) == plain, (topology, model)


class Plain:
    """The same model, written for one message at a time and nothing else."""

    def __init__(
        self, algorithm: Algorithm, topology: Topology, nbytes: float, model: Model
    ) -> None:
        size = topology.size
        self.rounds = [algorithm.rounds(rank, size, 0, topology.groups) for rank in range(size)]
        self.unit = nbytes / max(1, algorithm.blocks(size))
        self.topology, self.model = topology, model
        self.next, self.began, self.ends = [0] * size, [0.0] * size, [0.0] * size
        self.open = [0] * size
        self.waiting: dict[Any, list[Any]] = defaultdict(list)
        self.ready: list[tuple[float, int, int, int, int]] = []
        self.needs: dict[tuple[int, int], Any] = {}
        self.ports: dict[Any, list[float]] = defaultdict(lambda: [0.0] * model.servers)
        self.links: dict[int, float] = defaultdict(float)

    def finish(self) -> float:
        for rank in range(len(self.rounds)):
            self.enter(rank)
        while self.ready:
            self.ready.sort(key=lambda message: (self.start(*message), *message))
            self.carry(*self.ready.pop(0))
        return max(self.began)

    def fold(self, rank: int, index: int) -> int:
        """Return the blocks that a round and the rounds without messages behind it fold."""
        blocks = 0
        for number in range(index, len(self.rounds[rank])):
            ops = self.rounds[rank][number]
            if number > index and any(isinstance(op, Send | Receive) for op in ops):
                break
            blocks += sum(isinstance(op, Fold) for op in ops)
            blocks += sum(len(op.blocks) for op in ops if isinstance(op, Receive) and op.side)
        return blocks

    def enter(self, rank: int) -> None:
        while self.next[rank] < len(self.rounds[rank]):
            ops = self.rounds[rank][self.next[rank]]
            messages = [op for op in ops if isinstance(op, Send | Receive)]
            if messages or self.next[rank] == 0:
                self.ends[rank] = self.began[rank]
            self.next[rank] += 1
            if messages:
                self.open[rank] = len(messages)
                for place, op in enumerate(messages):
                    self.post(rank, place, op)
                return
            if self.next[rank] == 1:
                self.began[rank] = self.fold(rank, 0) * (self.unit * self.model.gamma)

    def post(self, rank: int, place: int, op: Send | Receive) -> None:
        at = self.began[rank]
        sends = isinstance(op, Send)
        key = (rank, op.peer) if sends else (op.peer, rank)
        waiting = self.waiting[key, not sends]
        if not waiting:
            self.waiting[key, sends].append((at, place, len(op.blocks)))
            return
        time, peer_place, blocks = waiting.pop(0)
        assert blocks == len(op.blocks)
        first = place if sends else peer_place
        self.ready.append((max(at, time), first, *key, blocks))

    def route(self, source: int, target: int) -> tuple[list[int], AlphaBeta | None]:
        """Return the links of a message, and what it takes that uses none."""
        if (source, target) not in self.needs:
            pair = np.array([source]), np.array([target])
            near = self.topology.is_intra_node(*pair)
            path = [int(link) for link in self.topology.path(*pair)[:, 0] if link >= 0]
            node_link = self.topology.intra_node
            self.needs[source, target] = path, node_link if near is not None and near[0] else None
        return self.needs[source, target]

    def sides(self, source: int, target: int) -> list[list[float]]:
        if self.route(source, target)[1] and not self.model.has_port_limit:
            return []
        return [self.ports["from", source], self.ports["to", target]]

    def start(self, at: float, place: int, source: int, target: int, blocks: int) -> float:
        links = (self.links[link] for link in self.route(source, target)[0])
        return max([at, *map(min, self.sides(source, target)), *links])

    def carry(self, at: float, place: int, source: int, target: int, blocks: int) -> None:
        model, nbytes = self.model, blocks * self.unit
        path, inside = self.route(source, target)
        takes, busy = model.latency + nbytes * model.beta, model.hold + nbytes * model.beta
        if inside:
            takes = busy = inside.alpha + nbytes * inside.beta
        start = self.start(at, place, source, target, blocks)
        for side in self.sides(source, target):
            side[side.index(min(side))] = start + busy
        for link in path:
            self.links[link] = start + nbytes * model.beta
        for rank in (source, target):
            self.land(rank, start + (takes + self.topology.hop * len(path)))

    def land(self, rank: int, end: float) -> None:
        self.open[rank] -= 1
        self.ends[rank] = max(self.ends[rank], end)
        if not self.open[rank]:
            folds = self.fold(rank, self.next[rank] - 1) * (self.unit * self.model.gamma)
            self.began[rank] = self.ends[rank] + folds
            self.enter(rank)


@pytest.mark.parametrize(
    ("collective", "algorithm", "size", "model", "price"),
    [
        # One port: p-1 messages of a rank take turns. Without counted ports only bytes do.
        ("broadcast", "one_shot", 5, Hockney(2, 1, ports=1), 4 * (2 + 100)),
        ("broadcast", "one_shot", 5, Hockney(2, 1, ports=None), 2 + 4 * 100),
        ("broadcast", "one_shot", 5, Hockney(2, 1, ports=2), 2 * (2 + 100)),
        ("broadcast", "knomial(radix=4)", 16, Hockney(2, 1, ports=3), 2 * (2 + 100)),
        # 2o + L, and each further message max(g, o) + n G later.
        ("broadcast", "one_shot", 2, LogGP(L=5, o=2, g=3, G=1), 2 * 2 + 5 + 100),
        ("broadcast", "one_shot", 4, LogGP(L=5, o=2, g=3, G=1), 2 * 2 + 5 + 100 + 2 * (3 + 100)),
        ("broadcast", "one_shot", 4, LogGP(L=5, o=3, g=2, G=0), 2 * 3 + 5 + 2 * 3),
        ("alltoall", "naive", 5, Hockney(2, 1, ports=1), 4 * (2 + 20)),
    ],
)  # fmt: skip
def test_what_ports_and_gaps_take(
    collective: str, algorithm: str, size: int, model: Model, price: float
) -> None:
    pattern = pattern_of(find(collective, algorithm), size)
    assert simulate(pattern, 100, model, Switch(size)) == pytest.approx(price)


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [("broadcast", "one_shot"), ("alltoall", "naive"), ("allreduce", "ring")],
)
def test_a_node_without_memory_is_a_switch(collective: str, algorithm: str, model: Model) -> None:
    pattern = pattern_of(find(collective, algorithm), 8)
    node, switch = Nodes(8, nodes=(tuple(range(8)),)), Switch(8)
    assert simulate(pattern, 64, model, node) == simulate(pattern, 64, model, switch)


def test_ports_count_also_where_messages_take_no_time() -> None:
    pattern = pattern_of(find("alltoall", "naive"), 8)
    node = Nodes(8, nodes=(tuple(range(8)),), memory=AlphaBeta(0.5, 0.01))
    # Seven messages of 80 bytes in turn; all at once if start-ups overlap.
    assert simulate(pattern, 640, Hockney(0, 1), node) == pytest.approx(7 * 1.3)
    assert simulate(pattern, 640, Hockney(0, 1, ports=None), node) == pytest.approx(1.3)


def test_any_number_of_ports() -> None:
    pattern = pattern_of(find("alltoall", "naive"), 8)
    few_ports, any_ports = (Hockney(1, 1, ports=ports) for ports in (7, 10**12))
    assert simulate(pattern, 80, any_ports, Switch(8)) == simulate(
        pattern, 80, few_ports, Switch(8)
    )


def test_a_waiting_message_keeps_no_port() -> None:
    """Rank 0 sends to 1, which is busy with 2 at first, and to 3, which is not."""
    lonely = two_sided({0: [(send(1, 0), send(3, 0))], 2: [send(1, 0)], 1: [recv(2, 0), recv(0, 0)],
                        3: [recv(0, 0)]})  # fmt: skip
    assert simulate(pattern_of(lonely, 4), 10, Hockney(1, 1), Switch(4)) == 22


def test_messages_without_another_side() -> None:
    lonely = pattern_of(two_sided({0: [send(1, 0)], 1: []}), 2)
    with pytest.raises(ScheduleError, match="is sent and not received"):
        simulate(lonely, 1, Hockney(1, 1), Switch(2))


def test_ranks_that_wait_for_each_other() -> None:
    waiting = two_sided({0: [recv(1, 0), send(1, 0)], 1: [recv(0, 0), send(0, 0)]})
    with pytest.raises(Deadlock, match="rank 0 waits"):
        simulate(pattern_of(waiting, 2), 1, Hockney(1, 1), Switch(2))


def test_what_takes_too_long() -> None:
    ring = pattern_of(find("allreduce", "ring"), 64)
    torus = Torus(64, dims=(64,))  # on which all ranks are simulated
    with pytest.raises(Unsupported, match="8,064 messages would take about"):
        simulate(ring, 1, Hockney(1, 1), torus, seconds=0.001)
    with pytest.raises(Unsupported, match="of 65,536 of them would take about"):
        pattern_of(find("broadcast", "binomial"), 1 << 16, seconds=2.0)
    with pytest.raises(Unsupported, match="16,384 segments would take about"):
        pattern_of(find("broadcast", "chain(segments=16384)"), 8, seconds=0.01)
    with pytest.raises(Unsupported, match=r"takes more than 0\.05 s"):
        pattern_of(two_sided({0: [send(1)] * 10**6, 1: [recv(0)] * 10**6}), 2, seconds=0.05)
    with pytest.raises(Unsupported, match=r"takes more than 0\.001 s"):  # of one long round
        pattern_of(find("allreduce", "one_shot"), 1 << 13, seconds=1e-3)


def test_time_that_others_take_does_not_count() -> None:
    def slow(rank: int, size: int) -> Iterator[Any]:
        time.sleep(0.02)
        yield send(1, 0) if rank == 0 else recv(0, 0)

    class Slow(Topology):
        def path(self, sources: Any, targets: Any) -> Any:
            time.sleep(0.1)
            return super().path(sources, targets)

    lazy = Algorithm(COLLECTIVES["broadcast"], "slow", slow, block_count=1)
    pattern = pattern_of(lazy, 2, seconds=0.03)
    assert simulate(pattern, 1, Hockney(1, 1), Slow(2), seconds=0.05) == 2


def two_sided(rounds: dict[int, list[Any]]) -> Algorithm:
    """Return a schedule given rank by rank."""
    return Algorithm(
        COLLECTIVES["broadcast"], "given", lambda rank, size: iter(rounds[rank]), block_count=1
    )
