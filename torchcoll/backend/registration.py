"""Tell torch.distributed the backend's name.

torch calls `register` at every ``import torch``, as the package's entry point in the group
``torch.backends``: so it imports nothing that is not there already, and never raises.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

from torchcoll.backend.compiling import uncompiled

NAME, OVER_MPI = "torchcoll", "mpicoll"
"""The names of the backend, by the library that ranks meet through."""
AS_GLOO = "TORCHCOLL_AS_GLOO"
"""``1`` in this variable makes every group over gloo ours: `python -m torchcoll.run` sets it."""


class _Plugins(dict[str, Any]):
    """torch's table of backends; those of ours do not count where it asks whether there are any.

    It would leave a group such as ``cpu:gloo`` without a default backend then, and warn of that.
    """

    def keys(self) -> Any:
        return [name for name in self if name.lower() not in (NAME, OVER_MPI)]


def register() -> None:
    """Register the backend where torch has torch.distributed; once is enough, more do no harm."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None:
        return
    if not isinstance(c10d.Backend._plugins, _Plugins):
        c10d.Backend._plugins = _Plugins(c10d.Backend._plugins)
    # What asks for the device of a library would take a GPU where this torch can have none.
    devices = ["cpu", "cuda"] if c10d.torch.backends.cuda.is_built() else ["cpu"]
    for name in (NAME, OVER_MPI):
        if name not in c10d.Backend.backend_list:
            make = partial(uncompiled(_make), name)
            c10d.Backend.register_backend(name, make, extended_api=True, devices=devices)
    _meet_through_mpi(sys.modules.get("torch.distributed.rendezvous"))
    _tell_timeouts(c10d)
    helper = getattr(c10d, "_new_process_group_helper", None)
    if helper is not None and helper.__module__ != __name__:
        _replace_groups(c10d, helper)


def _make(name: str, options: Any, chosen: Any) -> Any:
    """Make a process group, as torch asks for it: see `torchcoll.backend.making`."""
    from torchcoll.backend.making import make_group

    return make_group(options, chosen, over_mpi=name == OVER_MPI)


def _meet_through_mpi(rendezvous: Any) -> None:
    """Let ranks of an mpirun meet without RANK and MASTER_ADDR, which is an error otherwise."""
    handlers = getattr(rendezvous, "_rendezvous_handlers", {})
    plain = handlers.get("env")
    if plain is None or plain.__module__ == __name__:
        return

    def handle_env(url: str, **named: Any) -> Any:
        if "RANK" in os.environ or "?" in url:
            return plain(url, **named)
        from torchcoll.backend.meeting import meet_over_mpi

        return meet_over_mpi() or plain(url, **named)

    handlers["env"] = uncompiled(handle_env)


def _tell_timeouts(c10d: Any) -> None:
    """Tell our groups of a timeout that a program sets, which torch 2.13 tells gloo alone."""
    plain = getattr(c10d, "_set_pg_timeout", None)
    if plain is None or plain.__module__ == __name__ or hasattr(c10d, "set_timeout"):
        return

    def set_timeout(timeout: Any, group: Any = None) -> None:
        from torchcoll.backend.group import Group

        group = c10d._get_default_group() if group is None else group
        plain(timeout, group)
        if isinstance(group, Group):
            group.set_timeout(timeout)

    c10d._set_pg_timeout = uncompiled(set_timeout)


def _replace_groups(c10d: Any, make: Any) -> None:
    """Make ours of groups over several libraries, one of which is ours, or gloo where asked for.

    torch gives a library of Python's the whole group, and makes no other beside it.
    """

    def helper(size: Any, rank: Any, ranks: Any, backend: Any, *extras: Any, **named: Any) -> Any:
        libraries = _by_device(c10d, backend)
        if not libraries:
            return make(size, rank, ranks, backend, *extras, **named)
        from torchcoll.backend.making import make_beside

        arguments, our_names = (
            (size, rank, ranks, backend, *extras),
            {NAME, OVER_MPI} & {*libraries.values()},
        )
        beneath = backend
        if our_names:
            beneath = ",".join(
                f"{device}:{'gloo' if name in our_names else name}"
                for device, name in libraries.items()
            )
        return make_beside(make, beneath, arguments, named, over_mpi=OVER_MPI in our_names)

    c10d._new_process_group_helper = uncompiled(helper)


def _by_device(c10d: Any, backend: Any) -> dict[str, str]:
    """Return the library of each device, for a group that torch would not make ours of."""
    as_gloo = os.environ.get(AS_GLOO) == "1"
    if not as_gloo and "," not in str(backend):
        return {}
    libraries: dict[str, str] = c10d.BackendConfig(backend).get_device_backend_map()
    names = set(libraries.values())
    is_one_of_several = len(names) > 1 and not names.isdisjoint((NAME, OVER_MPI))
    return libraries if is_one_of_several or (as_gloo and "gloo" in names) else {}
