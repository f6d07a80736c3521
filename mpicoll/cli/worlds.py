"""How a command forms the group of each backend."""

from __future__ import annotations

from mpicoll.collectives import Collectives


def mpi4py_world(interface: str | None) -> Collectives:
    """Form the group over MPI."""
    from mpicoll.mpi.launch import world_with_warning

    return world_with_warning()


def torch_world(interface: str | None) -> Collectives:
    """Form the group over torch.distributed."""
    import torchcoll

    return torchcoll.world(interface=interface)


BOTH = {"mpi4py": mpi4py_world, "torch": torch_world}
TORCH = {"torch": torch_world}
