"""Schedules and the calls of jobs in the formats that other software reads.

``python -m mpicoll.explain allreduce ring --ranks 64 -o ring.goal`` writes a schedule for GOAL,
Chakra or MSCCL, ``python -m mpicoll.postmortem DIR --export perfetto job.json`` the calls of a job.
"""
