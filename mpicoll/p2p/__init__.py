"""Measure every pair of ranks: ``mpirun -n 4 python -m mpicoll.p2p``."""
