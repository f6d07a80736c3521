"""Run an unmodified mpi4py program with our collectives: ``python -m mpicoll.run program.py``."""
