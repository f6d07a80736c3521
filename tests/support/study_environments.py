"""Environments of a study, and interpreters and launchers that stand for real ones."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mpicoll.study.description import Environment
from mpicoll.study.environments import Facts, LaunchEnvironment

MPICH = LaunchEnvironment("mpich", Environment(name="mpich"), "multiple", "MPICH", "MPICH 5", True)
OMPI = LaunchEnvironment(
    "openmpi", Environment(name="openmpi", bind="cores"), "single", "Open MPI", "Open MPI 5", True
)


def write_program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def write_interpreter(folder: Path, vendor: str = "MPICH") -> Path:
    """Write an interpreter that counts its starts in a file beside it and reports an MPI."""
    facts = Facts(vendor, f"{vendor} 5", mpicoll=True, torch=False)
    answer = msgspec.json.encode(facts).decode()
    return write_program(folder / "python", f"echo >> {folder / 'starts'}\necho '{answer}'")


def small_study(environment: str, seconds: float) -> str:
    """Return the description of a study of one launch on two nodes, one rank on each."""
    return f"""
launches = 1
seconds = {seconds}
environments = [{{ name = "{environment}", algorithms = ["none"] }}]
[factors]
collectives = ["allreduce"]
algorithms = ["ring"]
sizes = ["64"]
ranks = [2]
ranks_per_node = [1]
pairs = false
"""
