"""Tell torch.distributed the backend's names, and put ours in place once a name is asked for.

torch calls `register` at every ``import torch``, as the package's entry point in the group
``torch.backends``: so it imports nothing that is not there already, and never raises. Everything
of torch's stays as it is, for programs that do not ask for the backend.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
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


class _Name:
    """A name of the backend in torch's class of names, which reads it for every group.

    Args:
        text: what torch's class returns for it.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __get__(self, _instance: object, _owner: type) -> str:
        activate()
        return self.text


def register() -> None:
    """Register the names where torch has torch.distributed; once is enough, more do no harm.

    The backend follows when the program, or `python -m torchcoll.run`, asks for it. Until then it
    does not stand in torch's table of backends. While any backend stands there, torch leaves groups
    such as ``cpu:gloo`` without a default one.
    """
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None:
        return
    backend = c10d.Backend
    if NAME not in backend.backend_list:
        for name in (NAME, OVER_MPI):
            _register(c10d, name)
            del backend._plugins[name.upper()]
        for text in _names(backend.default_device_backend_map):
            setattr(backend, text.upper(), _Name(text))
    if os.environ.get(AS_GLOO) == "1":
        activate()


def activate() -> None:
    """Have torch make the backend's groups, however a program asks for them."""
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    if isinstance(c10d.Backend._plugins, _Plugins):
        return
    for attribute, value in list(vars(c10d.Backend).items()):
        if isinstance(value, _Name):
            delattr(c10d.Backend, attribute)
    c10d.Backend._plugins = _Plugins(c10d.Backend._plugins)
    for name in (NAME, OVER_MPI):
        _register(c10d, name)
    _meet_through_mpi(sys.modules.get("torch.distributed.rendezvous"))
    _tell_timeouts(c10d)
    _replace_groups(c10d, c10d._new_process_group_helper)


def _register(c10d: Any, name: str) -> None:
    # What asks for the device of a library would take a GPU where this torch can have none.
    devices = ["cpu", "cuda"] if c10d.torch.backends.cuda.is_built() else ["cpu"]
    make = partial(uncompiled(_make), name)
    c10d.Backend.register_backend(name, make, extended_api=True, devices=devices)


def _names(default_libraries: dict[str, str]) -> Iterator[str]:
    """Yield the names of the backend, alone and beside a library for GPUs."""
    for name in (NAME, OVER_MPI):
        yield from (name, f"cpu:{name}")
        for device, library in default_libraries.items():
            for beside in {library, "gloo", name}:
                if device != "cpu":
                    yield from (f"cpu:{name},{device}:{beside}", f"{device}:{beside},cpu:{name}")


def _make(name: str, options: Any, chosen: Any) -> Any:
    """Make a group where torch's maker has begun before `activate` has replaced it."""
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    size, rank, ranks = options.group_size, options.group_rank, options.global_ranks_in_group
    group, _ = c10d._new_process_group_helper(
        size, rank, ranks, name, options.store, options.group_id, chosen, options.timeout
    )
    c10d._unregister_process_group(options.group_id)  # which torch does once more
    return group


def _meet_through_mpi(rendezvous: Any) -> None:
    """Let ranks of an mpirun meet without RANK and MASTER_ADDR, which is an error otherwise."""
    handlers = getattr(rendezvous, "_rendezvous_handlers", {})
    plain = handlers.get("env")
    if plain is None:
        return

    def handle_env(url: str, **named: Any) -> Any:
        if "RANK" in os.environ or "?" in url:
            return plain(url, **named)
        from torchcoll.launch import meet_over_mpi

        return meet_over_mpi() or plain(url, **named)

    handlers["env"] = uncompiled(handle_env)


def _tell_timeouts(c10d: Any) -> None:
    """Tell our groups of a timeout that a program sets, which torch 2.13 tells gloo alone."""
    plain = getattr(c10d, "_set_pg_timeout", None)
    if plain is None or hasattr(c10d, "set_timeout"):
        return

    def set_timeout(timeout: Any, group: Any = None) -> None:
        from torchcoll.backend.group import Group

        group = c10d._get_default_group() if group is None else group
        plain(timeout, group)
        if isinstance(group, Group):
            group.set_timeout(timeout)

    c10d._set_pg_timeout = uncompiled(set_timeout)


def _replace_groups(c10d: Any, make: Any) -> None:
    """Make the groups that are ours, or over gloo where asked for.

    torch would give a library of Python's the whole group, and make no other beside it.
    """

    def helper(size: Any, rank: Any, ranks: Any, backend: Any, *extras: Any, **named: Any) -> Any:
        libraries = c10d.BackendConfig(backend).get_device_backend_map()
        our_names = {NAME, OVER_MPI} & {*libraries.values()}
        as_gloo = os.environ.get(AS_GLOO) == "1" and "gloo" in libraries.values()
        arguments, beneath = (size, rank, ranks, backend, *extras), backend
        if not our_names and not as_gloo:
            return make(*arguments, **named)
        from torchcoll.backend.making import make_group

        if our_names:
            beneath = ",".join(
                f"{device}:{'gloo' if name in our_names else name}"
                for device, name in libraries.items()
            )
        if our_names == {*libraries.values()}:
            beneath = "gloo"
        return make_group(make, beneath, arguments, named, over_mpi=OVER_MPI in our_names)

    c10d._new_process_group_helper = uncompiled(helper)
