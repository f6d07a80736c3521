"""The ranks that a command measures on: how every such command begins."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass

from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import Disagreement, brief
from mpicoll.machine.launches import single_rank
from mpicoll.machine.processes import Process, other_load, oversubscription, own_process
from mpicoll.measurement.worlds import Worlds, form_worlds, worlds_with_gpus
from mpicoll.text.printable import printable

_RANK_OPTIONS = ("output", "plot", "interface")
"""Options that may differ between ranks."""


def _texts(options: object) -> Iterator[tuple[str, str]]:
    for name, value in vars(options).items():
        if is_dataclass(value):
            yield from _texts(value)
        elif name not in _RANK_OPTIONS:
            yield name, brief(value)


@dataclass(frozen=True)
class Ranks:
    """The groups of a command, and the description of their processes.

    Attributes:
        worlds: the group of each backend; the first one carries the control messages.
        gpu_ways: for each backend how arrays on GPUs travel, or why not; empty for other arrays.
        left_out: remarks on ranks, backends and transports that are lacking.
        oversubscribed: remarks on nodes with more ranks than cores.
        busy: remarks on nodes where something else runs.
    """

    watchdog: Watchdog
    worlds: dict[str, Collectives]
    gpu_ways: dict[str, dict[str, str]]
    processes: Sequence[Process]
    left_out: Sequence[str]
    oversubscribed: Sequence[str]
    busy: Sequence[str]

    @property
    def everyone(self) -> Collectives:
        """The group that carries the control messages."""
        return next(iter(self.worlds.values()))

    @property
    def is_root(self) -> bool:
        """Whether this rank prints and writes."""
        return self.everyone.rank == 0

    def print(self, text: str = "") -> None:
        """Print on rank 0."""
        if self.is_root:
            print(printable(text), flush=True)

    def check_alike(self, options: object) -> None:
        """Check that all ranks were started with the same options; collective.

        Args:
            options: a record; only rank 0 writes files, and interfaces differ between hosts.

        Raises:
            Disagreement: on every rank, with the first option that differs.
        """
        local_texts = dict(_texts(options))
        first, *other_texts = self.everyone.exchange(local_texts, dict[str, str])
        for rank, texts in enumerate(other_texts, 1):
            for name, text in first.items():
                if texts.get(name) != text:
                    raise Disagreement(
                        f"rank {rank} was started with other arguments than rank 0: {name} is "
                        f"{texts.get(name)} there, not {text}"
                    )

    def log(self, text: str) -> None:
        """Print progress and warnings on rank 0's standard error."""
        if self.is_root:
            print(printable(text), file=sys.stderr, flush=True)


def form_ranks(
    backends: Sequence[str], makers: Worlds, timeout: float, interface: str | None = None, *,
    on_gpu: bool = False,
) -> Ranks:  # fmt: skip
    """Form the groups of a command, and ask each rank for its process; collective.

    Args:
        timeout: seconds after which a step of the command counts as hung.
        on_gpu: keep the groups whose ranks have GPUs.

    Raises:
        ArgumentError: there is no such group, or the launcher is not that of the MPI library.
    """
    watchdog = Watchdog(timeout)
    worlds, remarks = form_worlds(backends, interface, makers, watchdog)
    worlds, gpu_ways = worlds_with_gpus(worlds, remarks) if on_gpu else (worlds, {})
    everyone = next(iter(worlds.values()))
    if everyone.size == 1:
        remarks.insert(0, single_rank(everyone.library))
    processes = everyone.exchange(own_process(), Process)
    return Ranks(
        watchdog, worlds, gpu_ways, processes, remarks,
        oversubscription(everyone.nodes, processes), other_load(everyone.nodes, processes),
    )  # fmt: skip
