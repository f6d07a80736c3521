"""Make a group with its library beneath."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from torchcoll.backend.group import Group
from torchcoll.backend.opening import open_over_gloo, open_over_mpi

_GLOO = dist.ProcessGroup.BackendType.GLOO


def make_group(options: Any, chosen: Any, *, over_mpi: bool) -> Group:
    """Make a group as `init_process_group` and `new_group` ask for it.

    Args:
        options: torch's: store, rank, size, timeout, name.
        chosen: the caller's `pg_options`.
        over_mpi: whether MPI has started the ranks, and carries what they exchange.

    Raises:
        ArgumentError: `pg_options` or ``TORCHCOLL_ALGORITHM`` names no such algorithm.
    """
    rank, size = options.group_rank, options.group_size
    over = open_over_mpi if over_mpi else open_over_gloo
    group = Group(options.store, rank, size, over=over, options=chosen)
    # NumPy, whose arrays MPI takes, cannot fold it.
    group.not_reduced = {torch.bfloat16} if over_mpi else set()
    gloo = dist.ProcessGroupGloo(options.store, rank, size, timeout=options.timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    group._set_default_backend(_GLOO)
    for device in ("cpu", "cuda"):
        group._register_backend(torch.device(device), _GLOO, gloo)
    gloo._set_sequence_number_for_group()
    return group
