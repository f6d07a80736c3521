"""Emulate hosts with real, shaped links on one machine: ``python -m mpicoll.hosts``."""
