"""The harness: every backend, algorithm and size, measured side by side and checked.

``mpirun -n 4 python -m mpicoll.bench --help``
"""
