"""Open the collectives of a group over its library."""

from __future__ import annotations

from typing import Any

from torch.distributed import distributed_c10d as c10d

from mpicoll.collectives import Collectives
from torchcoll.transport import TorchTransport


def open_over_gloo(group: Any) -> Collectives:
    """Return the collectives of a `Group` over its gloo; all its ranks make them together."""
    library, world = group.library, c10d._world
    # What torch.distributed asks of a group that is none of its own.
    world.pg_group_ranks[library] = world.pg_group_ranks[group]
    world.pg_backend_config[library] = "cpu:gloo"
    return Collectives(TorchTransport(library))
