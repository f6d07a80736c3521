"""A former name of ``python -m tests.selftest.chaos``."""

from __future__ import annotations

from mpicoll.cli.former import run_former

if __name__ == "__main__":
    run_former("selftest.chaos")
