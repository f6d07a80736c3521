"""Print what this machine can run, and why not the rest: ``python -m mpicoll.doctor``."""
