"""Compare the records of two runs: ``python -m mpicoll.compare A B``."""
