"""The documented name of the A/A test's command: ``python -m mpicoll.bench.twins``."""

from __future__ import annotations

from mpicoll.bench.aa_test import main
from mpicoll.measurement.worlds import ALL_BACKENDS

if __name__ == "__main__":
    main(obj=ALL_BACKENDS)
