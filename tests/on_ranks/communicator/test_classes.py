"""Communicators as objects: those made from others, handles, attributes, names, and freed ones."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from communicator_calls import allreduce, check, state_of

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Comm  # noqa: E402


def test_other_communicators_are_of_its_kind(comm: Any) -> None:
    cart = comm.Create_cart([comm.size])
    made = [comm.Dup(), comm.Clone(), comm.Split(0, -comm.rank), cart, cart.Sub([True]),
            comm.Split_type(MPI.COMM_TYPE_SHARED), comm.Create(comm.group),
            comm.Create_group(comm.group)]  # fmt: skip
    for each in made:
        assert isinstance(each, Comm)
        assert isinstance(each, MPI.Intracomm)
        check(each, allreduce)
    assert isinstance(cart, MPI.Cartcomm)
    for each in made:
        each.Free()
        assert each == MPI.COMM_NULL
    color = MPI.UNDEFINED if comm.rank else 0
    assert (comm.Split(color) == MPI.COMM_NULL) == bool(comm.rank)


def test_objects_with_one_handle_are_one_communicator(comm: Any) -> None:
    same = Comm(comm)
    assert same == comm
    # In turn on even and odd ranks: both find the same channel.
    for turn in range(4):
        check(comm if turn % 2 == comm.rank % 2 else same, allreduce)
    assert state_of(comm) is state_of(same)


def test_users_attributes_are_not_copied(comm: Any) -> None:
    seen: list[str] = []
    keyval = MPI.Comm.Create_keyval(
        lambda comm, keyval, value: seen.append("copied"), lambda *given: seen.append("deleted")
    )
    comm.Set_attr(keyval, "mine")
    check(comm, allreduce)
    assert state_of(comm) or comm.size == 1
    assert not seen
    comm.Delete_attr(keyval)
    MPI.Comm.Free_keyval(keyval)


@pytest.mark.usefixtures("served_at_once")
def test_mpis_own_communicators_travel_by_name() -> None:
    world = Comm(MPI.COMM_WORLD)
    found = pickle.loads(pickle.dumps(world))
    assert isinstance(found, Comm)
    assert found == MPI.COMM_WORLD


@pytest.mark.usefixtures("served_at_once")
def test_a_freed_communicator_says_so() -> None:
    made = Comm(MPI.COMM_WORLD.Dup())
    check(made, allreduce)
    made.Free()
    with pytest.raises(MPI.Exception, match="communicator"):
        made.Barrier()


class Counting(Comm):
    """A program's own class, with a method of its own."""

    calls_of_barrier = 0

    def Barrier(self) -> None:
        self.calls_of_barrier += 1
        super().Barrier()


def test_mpi_serves_a_communicator_without_a_detour() -> None:
    """A method that a program has overridden stays that one."""
    comm, out = Counting(MPI.COMM_SELF.Dup()), np.zeros(3)
    for number in range(1, 4):
        comm.Allreduce(np.full(3, float(number)), out)
        comm.Barrier()
        assert out.tolist() == [number] * 3
    assert "Allreduce" in vars(comm)
    assert comm.calls_of_barrier == 3
    comm.Free()
    assert "Allreduce" not in vars(comm)
    with pytest.raises(MPI.Exception, match="communicator"):
        comm.Allreduce(np.ones(3), out)
