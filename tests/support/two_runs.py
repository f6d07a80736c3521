"""Records of two runs that are compared."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpicoll.compare.comparison import Comparison, compare, load

RUN = {
    "id": "a", "versions": {"numpy": "2"}, "libraries": {"mpi4py": "MPICH 5"}, "transports": {},
    "hosts": ["n1", "n1"], "cores": [[0], [1]], "quota": None, "stack": {}, "environment": {},
    "settings": {},
}  # fmt: skip


def times(median: float, seed: int = 0, count: int = 12, spread: float = 0.02) -> list[float]:
    dice = random.Random(seed)
    return [median * dice.lognormvariate(0, spread) for _ in range(count)]


def record(algorithm: str, samples: Sequence[float], **more: Any) -> dict[str, Any]:
    return {
        "schema": 1, "kind": "case", "run": RUN, "collective": "allreduce", "algorithm": algorithm,
        "executed": algorithm, "backend": "mpi4py", "library": "MPICH 5", "transport": "symmetric",
        "device": "cpu", "dtype": "float32", "op": "sum", "root": None, "in_place": False,
        "allocated": False, "ranks": 2, "nodes": 1, "bytes_total": 1024, "timing": "together",
        "samples": len(samples), "samples_us": list(samples), "undisturbed": True, "message": "",
        "time_us": dict.fromkeys(("median", "low", "high"), sorted(samples)[len(samples) // 2])
        if samples else None,
        "correct": True, **more,
    }  # fmt: skip


def write(path: Path, records: Sequence[dict[str, Any]], run: dict[str, Any] = RUN) -> Path:
    lines = [
        {"schema": 1, "kind": "run", "run": run},
        *({**fields, "run": {"id": run["id"]}} for fields in records),
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def compare_files(tmp_path: Path, a: Sequence[Any], b: Sequence[Any], **run: Any) -> Comparison:
    files = write(tmp_path / "a", a), write(tmp_path / "b", b, RUN | {"id": "b"} | run)
    return compare(*map(load, files))
