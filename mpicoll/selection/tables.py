"""Decision tables: which algorithm was fastest on a machine, by collective and payload.

A table is a JSON file that `mpicoll.tune` writes::

    {"schema": "mpicoll.table/1", "entries": [{
        "backend": "mpi4py", "ranks_per_node": [4], "collective": "allreduce", "device": "host",
        "fingerprint": {"processor": "...", "cores": 2, "library": "...", ...},
        "ranges": [{"upto": 65536, "algorithm": "one_shot@symmetric", "ratio": 2.4},
                   {"upto": null, "algorithm": "two_shot@cma", "ratio": 1.7}]}]}

A range serves payloads (total bytes) above the one before it and up to its own end; ``ratio``
is the time of the native call to the algorithm's. An entry serves the machine whose
fingerprint it carries, and no other; one that names no device is for arrays on the host, and one
of a GPU names its model in the fingerprint.
"""

from __future__ import annotations

import operator
import os
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpicoll import defaults
from mpicoll.backend import TRANSPORTS
from mpicoll.errors import ArgumentError, UnknownName, brief
from mpicoll.notation.contract import collective

HOST, GPU = "host", "gpu"
SCHEMA = "mpicoll.table/1"
VARIABLE = "MPICOLL_TABLE"
NATIVES = "native", "native_persistent"


@dataclass
class Decision:
    """The ranges of one collective, in ascending order."""

    ranges: list[dict[str, Any]]

    def lookup(self, nbytes: int) -> str:
        """Return the algorithm for a payload of so many bytes."""
        last = bisect_left(self.ranges[:-1], nbytes, key=operator.itemgetter("upto"))
        return str(self.ranges[last]["algorithm"])


Decisions = dict[str, Decision]
"""One decision for each collective, by its name."""


def fingerprint(library: str, gpu: str = "") -> dict[str, Any]:
    """Return the properties that a table depends on: processor, cores, library, versions.

    Args:
        gpu: the model of the GPU on which the arrays lie; empty for the host.
    """
    import platform  # importing mpicoll is quicker without
    from importlib import metadata

    from mpicoll.machine.nodes import own_cores, processor_name, usable_cores

    return {
        "processor": processor_name(),
        "cores": usable_cores([own_cores()]),
        "library": library,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": metadata.version("numpy"),
        **({"gpu": gpu} if gpu else {}),
    }


def default_path() -> Path:
    """Return where `mpicoll.tune` writes, and ``auto`` reads."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    # The path of platformdirs, whose import would add 5 ms to a first call.
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return Path(cache if cache.strip() else Path.home() / ".cache", "mpicoll", "table.json")


def load(
    backend: str, library: str, ranks_per_node: list[int], path: Path | None = None,
    gpu: str = "",
) -> Decisions:  # fmt: skip
    """Return the decisions of a table for one backend, layout of ranks and device of the arrays.

    Args:
        gpu: as for `fingerprint`.

    Warns, and returns none, where the table is of another machine or cannot be read.
    """
    path = path or default_path()
    try:
        path.stat()
        table = read(path)
    except FileNotFoundError:
        if VARIABLE in os.environ:
            _warn(f"{VARIABLE}: there is no file {path}")
        return {}
    except (ArgumentError, OSError) as error:
        _warn(str(error))
        return {}
    here, decisions = fingerprint(library, gpu), {}
    for entry in table["entries"]:
        key = entry["backend"], entry["ranks_per_node"], _device(entry)
        if key != (backend, ranks_per_node, GPU if gpu else HOST):
            continue
        table_fingerprint = entry["fingerprint"]
        differing = [name for name in here if table_fingerprint.get(name) != here[name]]
        if differing:
            was, now = brief(table_fingerprint.get(differing[0])), here[differing[0]]
            _warn(f"{path} is of another machine ({differing[0]} was {was} and is {now!r})")
            return {}
        decisions[entry["collective"]] = Decision(entry["ranges"])
    return decisions


def _warn(text: str) -> None:
    import warnings

    warnings.warn(f"{text}: auto reads the shipped table; mpicoll.tune measures", stacklevel=4)


def read(path: Path) -> dict[str, Any]:
    """Return a table's content.

    Raises:
        ArgumentError: it cannot be read, or is not a table of this version.
    """
    import json

    from mpicoll.text.files import content_of

    try:
        table: dict[str, Any] = json.loads(content_of(path), parse_constant=_refuse)
        schema, entries = table["schema"], table["entries"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ArgumentError(f"{path} is not a decision table: {_why(error)}") from None
    if schema != SCHEMA:
        raise ArgumentError(f"{path} holds {brief(schema)}, but this version reads {SCHEMA!r}")
    try:
        for entry in entries:
            _check_entry(entry)
    except (LookupError, TypeError, AttributeError) as error:
        raise ArgumentError(f"{path} has an entry that cannot be read: {_why(error)}") from None
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None
    return table


def _why(error: Exception) -> str:
    """Return in words why JSON, or an item of it, cannot be read."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, TypeError | AttributeError):
        return "a value is of another type"
    return str(error)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _check_entry(entry: dict[str, Any]) -> None:
    """Raise ArgumentError, or as Python does, where an entry cannot be used."""
    kinds = {"backend": str, "ranks_per_node": list, "collective": str, "fingerprint": dict}
    for name, kind in kinds.items():
        if not isinstance(entry[name], kind):
            raise ArgumentError(f"{name} of an entry is {brief(entry[name])}")
    if not all(isinstance(count, int) for count in entry["ranks_per_node"]):
        raise ArgumentError(f"ranks_per_node of an entry is {brief(entry['ranks_per_node'])}")
    if _device(entry) not in (HOST, GPU):
        raise ArgumentError(f"device of an entry is {brief(entry['device'])}")
    limits = [payload_range["upto"] for payload_range in entry["ranges"]]
    if limits[-1:] != [None] or limits[:-1] != sorted(map(operator.index, limits[:-1])):
        raise ArgumentError(f"ranges must ascend in bytes to null, not end at {brief(limits)}")
    name = collective(entry["collective"]).name
    for payload_range in entry["ranges"]:
        text = payload_range["algorithm"]
        if text.partition("@")[0] == "auto":
            raise ArgumentError(f"an entry of {name} says {text!r}, which is what looks it up")
        check_algorithm(name, text)


def _device(entry: dict[str, Any]) -> Any:
    return entry.get("device", HOST)


def check_algorithm(of: str, text: str) -> None:
    """Raise UnknownName where a collective has no such algorithm, or a text no such transport."""
    name, sign, route = text.partition("@")
    if sign and route not in TRANSPORTS:
        raise UnknownName("transport", route, TRANSPORTS)
    if name not in ("auto", *defaults.NAMES, *NATIVES) and not name.startswith("native:"):
        from mpicoll.algorithms.registry import find

        find(of, name)


def check_output(path: Path) -> None:
    """Make the folder of a table, and check that `write` may write there.

    Raises:
        ArgumentError: it may not, or there is another file.
    """
    from mpicoll.text.files import locked, writable

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writable(path)
        with locked(path):
            _entries(path)
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}") from None


def write(path: Path, entries: list[dict[str, Any]]) -> None:
    """Write entries into a table, beside those it has for other backends, layouts and devices.

    Raises:
        ArgumentError: it cannot be written, or the file is no table.
    """
    from mpicoll.text.files import locked, write_whole

    def key(entry: dict[str, Any]) -> Any:
        return *machine(entry), entry["ranks_per_node"], entry["collective"]

    def machine(entry: dict[str, Any]) -> Any:
        return entry["backend"], _device(entry)

    check_output(path)
    new = [key(entry) for entry in entries]
    prints = {machine(entry): entry["fingerprint"] for entry in entries}
    with locked(path):
        remaining = [
            entry for entry in _entries(path)
            if key(entry) not in new and prints.get(machine(entry), entry["fingerprint"])
            == entry["fingerprint"]
        ]  # fmt: skip
        write_whole(path, lambda fresh: fresh.write_text(text([*remaining, *entries])))


def text(entries: list[dict[str, Any]]) -> str:
    """Return the file of a table of these entries."""
    import json

    return json.dumps({"schema": SCHEMA, "entries": entries}, indent=1) + "\n"


def _entries(path: Path) -> list[dict[str, Any]]:
    """Return the entries that a table has, none where there is no file or an empty one."""
    if not path.exists() or not path.stat().st_size:
        return []
    return list(read(path)["entries"])
