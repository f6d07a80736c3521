"""Tests that run for minutes or hours: random faults, long runs, and measured costs.

``python -m mpicoll.selftest.chaos --help``
"""
