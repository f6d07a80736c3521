"""Say what the ranks of a job did when it hung or died: ``python -m mpicoll.postmortem``."""
