"""Measure what ``auto`` should run: ``torchrun -m torchcoll.tune``."""
