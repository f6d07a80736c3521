"""A backend for torch.distributed: `init_process_group("torchcoll")`.

torch imports this package whenever it is imported itself, so functions import what they need.
"""

from __future__ import annotations

from typing import Any

__all__ = ["describe_group"]


def describe_group(group: Any = None) -> str:
    """Return in words what serves the collectives of a process group.

    The result is such as ``torchcoll over gloo, 2 ranks in shared memory`` or ``gloo``, whatever
    name `torch.distributed.get_backend` returns. Nothing is sent, so any rank may ask alone. Before
    the first call of a group it is unknown whether its ranks share memory.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> describe_group()
    'gloo'
    >>> dist.destroy_process_group()

    Args:
        group: by default the default group.

    Raises:
        ValueError: there is no default group, and none is given.
    """
    import torch.distributed as dist

    from torchcoll.backend.group import Group
    from torchcoll.backend.registration import NAME, OVER_MPI
    from torchcoll.groups import libraries_by_device

    if group is None and (group := dist.group.WORLD) is None:
        raise ValueError("there is no default group: call init_process_group, or give a group")
    if isinstance(group, Group):
        return group.describe()
    libraries = libraries_by_device(group).values()
    # On several nodes gloo serves a group that has our name.
    names = ("gloo" if library in (NAME, OVER_MPI) else library for library in libraries)
    return " and ".join(dict.fromkeys(names))
