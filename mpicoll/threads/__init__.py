"""Ranks as threads of one process: for notebooks, teaching, debugging and tests."""

from mpicoll.threads.launch import Threads, threads

__all__ = ["Threads", "threads"]
