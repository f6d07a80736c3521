"""Schedules in the formats that other software reads: GOAL, Chakra execution traces, MSCCL.

``python -m mpicoll.explain allreduce ring --ranks 64 -o ring.goal``
"""
