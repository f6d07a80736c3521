"""The numbers that decide speed: few, in two files, each with unit, evidence and gain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = ROOT / "mpicoll" / "tuning.py"
HEADER = ROOT / "mpicoll" / "engine" / "tuning.h"
MOST, INDEX = 40, 3
FOLDERS = (
    *(f"mpicoll/{name}" for name in ("lowering", "memory", "engine", "threads", "gpu", "peers")),
    *(f"mpicoll/{name}" for name in ("calls", "selection", "mpi", "mpi/communicator")),
    "torchcoll", "torchcoll/backend", "torchcoll/rendezvous",
)  # fmt: skip
"""All numbers of these folders that are bound to a name stand in the two files."""
LAYOUT = "bytes and words of a format, numbers of another interface"
LIMIT = "memory that is reserved or held, entries that are kept"
PATIENCE = "seconds until an error, or until a rank asks what has become of another"
TABLE = "the table that `auto` reads"
VARIABLE = "the default of an environment variable that the documentation lists"
EXCEPTIONS = {
    "engine/compiled.py": {"_MOST_JOINED": LIMIT},
    "engine/stream_watch.py": {"_SECONDS": PATIENCE, "_MOST_RUNS": LAYOUT, "_LOW": LAYOUT},
    "gpu/driver.py": {"_HANDLE_BYTES": LAYOUT, "NO_CONTEXT": LAYOUT, "_MOST_OPERATIONS": LIMIT},
    "gpu/ipc.py": {"_PATTERN": LAYOUT, "_TEST_VALUE": LAYOUT, "_MOST_TILE": LIMIT},
    "gpu/nccl.py": {"_SINCE": LAYOUT, "_IN_PROGRESS": LAYOUT},
    "gpu/staging.py": {"MAX_PIECES": LIMIT, "MIN_PIECES": LIMIT},
    "memory/allocator.py": {"LINE": LAYOUT},
    "memory/mailbox.py": {"CAPACITY": LIMIT, "_SIZE": LAYOUT},
    "memory/notes.py": {"_CAPACITY": LIMIT, "_NOTE": LAYOUT},
    "memory/numpy_arrays.py": {"_WIDTHS": LAYOUT},
    "memory/segments.py": {"FIRST": LIMIT},
    "memory/slots.py": {"_SMALL_DATA": LAYOUT, "_ROOM": LIMIT, "_SHARE": LIMIT},
    "memory/waiting.py": {"_LOOK": PATIENCE},
    "communicator/buffers.py": {"_MOST_BYTES": LIMIT},
    "peers/contact.py": {
        **dict.fromkeys(("_NAME", "_NONCE", "_PROOF", "_MOST_TEXT"), LAYOUT),
        "_SECONDS": PATIENCE, "_PAUSE": PATIENCE, "_MOST_ENDED": LIMIT, "_AT_ONCE": LIMIT,
    },
    "peers/polling.py": {"_TRANSIT": PATIENCE, "_TURNS": PATIENCE},
    "peers/known.py": {"_MOST_LEFT": LIMIT, "_MOST_TOLD": LIMIT},
    "peers/survivors.py": {"_FIRST": LAYOUT, "_PAUSE": PATIENCE, "_GRACE": PATIENCE},
    "peers/watch.py": dict.fromkeys(("_SHARE", "_MAX_PAUSE", "_MIN_PAUSE", "GRACE"), PATIENCE),
    "lowering/fusing.py": {"MAX_OPERANDS": LIMIT},
    "threads/world.py": {"_LOOK": PATIENCE},
    "calls/method_calls.py": {"_MOST_GPU_BYTES": LIMIT, "_COUNTS": LAYOUT},
    "calls/plan_cache.py": {"MOST_PLANS": LIMIT},
    "calls/planner.py": {"_MOST_SCHEDULES": LIMIT, "_MOST_PROVED": LIMIT},
    "calls/point_to_point.py": {"_MOST_MESSAGES": LIMIT},
    "calls/recording.py": {"_MAX_PLACES": LIMIT},
    "calls/routes.py": {"NEVER": LAYOUT},
    "calls/tags.py": {"MOST_TAGS": LAYOUT},
    "selection/shipped.py": {
        "KIB": LAYOUT, "MIB": LAYOUT,
        **dict.fromkeys(
            ("BY_MESSAGES", "BETWEEN_NODES", "LEVELS", "GLOO_LEVELS", "SHARED_CORES", "OWN_CORES",
             "ON_GPU"), TABLE,
        ),
    },
    "mpi/gpu_trial.py": {"_SECONDS": PATIENCE},
    "mpi/exchange.py": {"_NAP": PATIENCE},
    "mpi/nccl.py": {"_OPS": LAYOUT, "_TYPES": LAYOUT},
    "mpi/serving.py": {"_PAUSE": PATIENCE, "_END": PATIENCE},
    "mpi/transport.py": {"_NUMBER": LAYOUT},
    "communicator/arenas.py": {"UNITS": LIMIT, "MOST_ARENAS": LIMIT},
    "communicator/state.py": {"_MOST_CLOSED": LIMIT},
    "torchcoll/kernels.py": {"_THREADS": LAYOUT, "_PACK_BYTES": LAYOUT, "_MAX_ELEMENTS": LAYOUT},
    "torchcoll/launch.py": {"_SECONDS": PATIENCE, "_LATER": PATIENCE},
    "torchcoll/messages.py": {"PLANS": LAYOUT},
    "torchcoll/requests.py": {"_MOST_SECONDS": LAYOUT},
    "torchcoll/symmetric.py": {"_ALIGNMENT": LAYOUT, "_UNROLLED": LAYOUT},
    "torchcoll/transport.py": {"_TORCH_MARGIN": PATIENCE},
    "backend/opening.py": {"_TAGS": LAYOUT, "_NAP": PATIENCE},
    "backend/order.py": {"_STUCK": PATIENCE},
    "backend/spanning.py": {"_MOST_COUNTS": LIMIT, "_REPEATS": LIMIT},
    "backend/works.py": {"_PATIENCE": PATIENCE},
    "rendezvous/meeting.py": {"_MAX_BYTES": LIMIT},
    "rendezvous/mpi.py": {"_PAUSE": PATIENCE},
    "rendezvous/sealed.py": {"_HEARD_WITHIN": PATIENCE, "_LOOKS": PATIENCE},
    "rendezvous/secret.py": {"_TAG": LAYOUT, "_MIN_CHARACTERS": LIMIT},
    "rendezvous/store.py": {"_ANSWERS_WITHIN": PATIENCE, "LONGEST_NAP": PATIENCE},
}  # fmt: skip


def in_python() -> dict[str, str]:
    """Return the text of each number of the Python file."""
    body = ast.parse(PYTHON.read_text()).body
    texts = {}
    for statement, text in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.Assign):
            assert isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            texts |= dict.fromkeys(names_of(statement), str(text.value.value))
    return texts


def in_c() -> dict[str, str]:
    """Return the comment before each number of the header, or before the first of several."""
    texts, comment = {}, ""
    for before, name in re.findall(
        r"(/\*.*?\*/)?\s*(\w+) = [^,;]+,", HEADER.read_text(), re.DOTALL
    ):
        comment = before or comment
        texts[name] = comment
    return texts


def names_of(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that an assignment binds."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else []
    for target in targets:
        yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def is_number(node: ast.expr) -> bool:
    """Whether an expression has a number other than an index: what `range` counts, and 0 to 3."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        return False
    if isinstance(node, ast.Constant):
        return type(node.value) is float or (type(node.value) is int and node.value > INDEX)
    parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
    return not isinstance(node, ast.Lambda) and any(map(is_number, parts))


def numbers(path: Path) -> set[str]:
    """Return the names at the top of a module that are bound to numbers."""
    return {
        name
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
        and is_number(statement.value)
        for name in names_of(statement)
    }  # fmt: skip


TEXTS = [*in_python().items(), *in_c().items()]


def test_there_are_at_most_forty() -> None:
    assert len(in_c()) > 10 and len(in_python()) > 10
    assert len(TEXTS) <= MOST


@pytest.mark.parametrize(("name", "text"), TEXTS, ids=[name for name, _ in TEXTS])
def test_each_has_a_unit_evidence_and_a_gain(name: str, text: str) -> None:
    assert [part for part in ("Unit:", "Evidence:", "Gain:") if part in text] == [
        "Unit:", "Evidence:", "Gain:"
    ]  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_other_module_has_a_number_that_decides_speed(folder: str) -> None:
    for path in (ROOT / folder).glob("*.py"):
        allowed = set(EXCEPTIONS.get(f"{path.parent.name}/{path.name}", {}))
        assert numbers(path) - allowed == set(), path
