"""Tables for the libraries themselves: which of its own algorithms each should run, from a study.

``python -m mpicoll.tune export --to mpich study/launches/*.jsonl -o mpich.json``
"""
