"""Answer which allreduce is fastest here, and why: ``python -m mpicoll.study``."""
