"""Tables for the libraries themselves: each names the library's algorithms that won in a study.

``python -m mpicoll.tune export --to mpich study/launches/*.jsonl -o mpich.json``
"""
