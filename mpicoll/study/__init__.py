"""Allreduce in one call or in two: which form is fastest, and why."""
