"""Measure what ``auto`` should run on this machine: ``mpirun -n 4 python -m mpicoll.tune``."""
