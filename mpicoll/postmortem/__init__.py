"""Show where the ranks of a job were when it hung or died: ``python -m mpicoll.postmortem``."""
