"""The mpi4py backend; its counterpart, file by file, is `torchcoll`."""
