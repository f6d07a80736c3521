"""Communicators of mpi4py whose collectives are ours, for programs that are written for mpi4py."""

from mpicoll.mpi.communicator.classes import CartComm, Comm, DistgraphComm, GraphComm

__all__ = ["CartComm", "Comm", "DistgraphComm", "GraphComm"]
