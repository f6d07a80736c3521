"""Measure every pair of ranks: ``torchrun -m torchcoll.p2p``."""
