"""Tell torch.distributed the backend's name.

torch calls `register` at every ``import torch``, as the package's entry point in the group
``torch.backends``: so it imports nothing that is not there already, and never raises.
"""

from __future__ import annotations

import os
import sys
from typing import Any

NAME = "torchcoll"
AS_GLOO = "TORCHCOLL_AS_GLOO"
"""``1`` in this variable makes every group over gloo ours: `python -m torchcoll.run` sets it."""


def register() -> None:
    """Register the backend where torch has torch.distributed; once is enough, more do no harm."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None:
        return
    if NAME not in c10d.Backend.backend_list:
        c10d.Backend.register_backend(NAME, _make, extended_api=True, devices=["cpu", "cuda"])
    if os.environ.get(AS_GLOO) == "1" and c10d._new_process_group_helper.__module__ != __name__:
        _replace_gloo(c10d)


def _make(options: Any, chosen: Any) -> Any:
    """Make a process group, as torch asks for it: see `torchcoll.backend.making`."""
    from torchcoll.backend.making import make_group

    return make_group(options, chosen)


def _replace_gloo(c10d: Any) -> None:
    """Make ours of the groups whose backend is gloo, also beside another for GPUs."""
    make, plain = c10d._new_process_group_helper, c10d.ProcessGroup

    def helper(size: Any, rank: Any, ranks: Any, backend: Any, *rest: Any, **named: Any) -> Any:
        if "gloo" not in c10d.BackendConfig(backend).get_device_backend_map().values():
            return make(size, rank, ranks, backend, *rest, **named)
        from torchcoll.backend.group import Group

        c10d.ProcessGroup = Group
        try:
            return make(size, rank, ranks, backend, *rest, **named)
        finally:
            c10d.ProcessGroup = plain

    c10d._new_process_group_helper = helper
