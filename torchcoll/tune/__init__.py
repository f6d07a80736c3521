"""Measure for ``auto``, which then runs the fastest: ``torchrun -m torchcoll.tune``."""
