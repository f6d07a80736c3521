"""The documented name of the self-check's command: ``python -m mpicoll.bench.trust``."""

from __future__ import annotations

from mpicoll.bench.self_check import main

if __name__ == "__main__":
    main()
