"""Estimate the memory that cases take on each node or GPU, and refuse a group that does not fit.

A case has its arrays, which all cases of a backend share, and what its program needs: scratch, and
the slots of shared memory that messages pass through unless they are read where they are
(`mpicoll.measurement.program_memory`). A library does not tell what it needs within its own call:
see `_within_native`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.machine.gpu_links import own_gpu
from mpicoll.machine.memory import available_memory, free_in_process
from mpicoll.measurement.cases import CUDA, NEW_ARRAYS, Case, Group
from mpicoll.measurement.program_memory import program_bytes
from mpicoll.measurement.workbench import pool_size
from mpicoll.notation.contract import Side
from mpicoll.notation.elements import itemsize
from mpicoll.text.sizes import rounded_size_text, size_text

_SHARE = 0.9
"""Of the free memory: page tables and other processes need some."""
_SMALL = 1 << 20
"""Payloads that are not weighed: they take less than the libraries themselves."""


class Weighed(NamedTuple):
    """The memory of the node or GPU where a group fits least, in bytes.

    Attributes:
        needed: by all its ranks together; `free`: for all of them together.
        refusal: why the group cannot be measured; empty where it fits.
    """

    needed: int
    free: int
    refusal: str


def remarks_on_memory(
    groups: Sequence[Sequence[Case]], worlds: Mapping[str, Collectives], watchdog: Watchdog,
    limit: int | None = None,
) -> list[str]:  # fmt: skip
    """Return a remark for each group of cases that does not fit; collective.

    Raises:
        ArgumentError: none fits.
    """
    verdicts = [
        (cases[0].group, weigh_watched(cases, worlds, watchdog, limit).refusal) for cases in groups
    ]
    watchdog.step("")
    refused = [f"{group} is left out: {refusal}" for group, refusal in verdicts if refusal]
    if refused and len(refused) == len(verdicts):
        raise ArgumentError(refused[0])
    return refused


def weigh_watched(
    cases: Sequence[Case], worlds: Mapping[str, Collectives], watchdog: Watchdog,
    limit: int | None = None,
) -> Weighed:  # fmt: skip
    """Weigh the cases of one group as a step of the watchdog's, as a rank may be stopped meanwhile.

    Arguments and result are those of `weigh`; the step goes on until the next one begins.
    """
    watchdog.step(f"estimating the memory of {cases[0].group}")
    return weigh(cases, worlds, limit)


def weigh(
    cases: Sequence[Case], worlds: Mapping[str, Collectives], limit: int | None = None
) -> Weighed:
    """Weigh the cases of one group against the free memory of every node or GPU; collective.

    Args:
        limit: the bytes that each rank may take, None for all that there are.
    """
    group = cases[0].group
    if group.bytes_total < _SMALL and limit is None:
        return Weighed(0, 0, "")
    local_bytes = needed(cases, worlds)
    if group.device == CUDA:
        return _weigh_on_gpus(local_bytes, worlds, group.bytes_total, limit)
    return weigh_bytes(local_bytes, next(iter(worlds.values())), group.bytes_total, limit)


def _weigh_on_gpus(
    local_bytes: int, worlds: Mapping[str, Collectives], payload: int, limit: int | None
) -> Weighed:
    """Weigh the bytes that each rank needs against the free memory of every GPU; collective."""
    for world in worlds.values():
        world.gpu()
    control, gpu = next(iter(worlds.values())), own_gpu(worlds)
    free = int(_SHARE * gpu.free)
    every = control.exchange([local_bytes, free, free if limit is None else limit])
    identities = control.exchange(gpu.identity, str)
    gpus: dict[tuple[int, str], list[int]] = {}
    for number, node in enumerate(control.nodes):
        for rank in node:
            gpus.setdefault((number, identities[rank]), []).append(rank)
    return _fullest([_on(ranks, every, payload, "GPU") for ranks in gpus.values()])


def weigh_bytes(
    local_bytes: int, control: Collectives, payload: int, limit: int | None = None
) -> Weighed:
    """Weigh the bytes that each rank needs against the free memory of every node; collective.

    Args:
        local_bytes: the bytes that this rank needs, a multiple of `payload`.
        limit: the bytes that each rank may take, None for all that there are.
    """
    bounds = [bound for bound in (limit, free_in_process()) if bound is not None]
    free = int(_SHARE * available_memory())
    every = control.exchange([local_bytes, free, min(bounds, default=free)])
    return _fullest([_on(node, every, payload, "node") for node in control.nodes])


def _fullest(places: Sequence[Weighed]) -> Weighed:
    return max(places, key=lambda place: (bool(place.refusal), place.needed / max(1, place.free)))


def _on(ranks: Sequence[int], every: Sequence[Sequence[int]], payload: int, kind: str) -> Weighed:
    """Weigh the needs of the ranks of one node, or of one GPU, against its free memory.

    Args:
        every: for each rank of all the bytes that it needs, that are free where it is, and that
            it may take.
    """
    needs, frees, bounds = zip(*(every[rank] for rank in ranks), strict=True)
    total, free = sum(needs), min(frees)
    text = rounded_size_text
    reasons = [
        (bound / max(1, need), f"{text(need)} on rank {rank}, which may take {text(bound)}")
        for rank, need, bound in zip(ranks, needs, bounds, strict=True)
    ]
    place = f"the {kind} of rank {ranks[0]}, where {text(free)} are free for {len(ranks)} ranks"
    scale, reason = min([*reasons, (free / max(1, total), f"{text(total)} on {place}")])
    if scale >= 1:
        return Weighed(total, free, "")
    fits = int(payload * scale)
    largest = f"up to {size_text(1 << fits.bit_length() - 1)}" if fits else "no size"
    return Weighed(total, free, f"it takes about {reason}: {largest} would fit")


def needed(cases: Sequence[Case], worlds: Mapping[str, Collectives]) -> int:
    """Return the bytes that cases of one group take on this rank, all bound at once; collective."""
    group, total = cases[0].group, 0
    for backend in dict.fromkeys(case.backend for case in cases):
        world = worlds[backend]
        input_bytes, output_bytes = _array(group, world, "input"), _array(group, world, "output")
        new = any(case.call == NEW_ARRAYS for case in cases)
        pairs = pool_size(group) if new else 1
        total += pairs * (
            max(input_bytes, output_bytes) if group.in_place else input_bytes + output_bytes
        )
        names = [case.algorithm for case in cases if case.backend == backend]
        # A persistent call keeps its memory, all others take theirs one after the other.
        natives = {name == "native_persistent" for name in names if name.startswith("native")}
        # What GPU arrays are copied to for a library lies on the host.
        within = 0 if group.device == CUDA else _within_native(group, world)
        total += len(natives) * max(input_bytes, output_bytes) * within
        total += sum(program_bytes(group, world, name) for name in names if name[:6] != "native")
    return total


def _within_native(group: Group, world: Collectives) -> int:
    """Return how many of the larger array a library needs, as MPICH and gloo were measured to.

    One, and one more for a partial result that is not the output.
    """
    contract = group.contract
    has_partial = contract.reduces and not contract.has_output(world.rank, group.root)
    return 2 if has_partial or contract.name in ("scan", "exscan") else 1


def _array(group: Group, world: Collectives, side: Side) -> int:
    """Return the bytes of this rank's input or output."""
    contract = group.contract
    has = contract.has_input if side == "input" else contract.has_output
    shape: tuple[int, ...] = contract.shape(side, (group.width,), world.rank, world.size)
    return prod(shape) * itemsize(group.dtype) if has(world.rank, group.root) else 0
