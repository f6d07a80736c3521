"""Measure a decision table for ``auto`` on this machine: ``mpirun -n 4 python -m mpicoll.tune``."""
