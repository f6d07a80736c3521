"""Print the abilities of this machine, and why it lacks others: ``python -m mpicoll.doctor``."""
