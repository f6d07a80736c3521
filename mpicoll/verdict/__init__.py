"""The verdict on a job: which calls lose time, which rank, node or link they wait for, and why."""
