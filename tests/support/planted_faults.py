"""Faults that the tests must catch: each is planted in a copy of the tree, and tests must fail.

    python tests/support/planted_faults.py [NAME ...]

Prints for each fault which test caught it. Only those named `mpi` and `torch` start ranks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
_SECONDS = 600


class Fault(NamedTuple):
    """Text of a file, what it becomes, and the tests that must notice."""

    file: str
    right: str
    wrong: str
    tests: str


SHARED, EVERY = "tests/engine/test_shared_memory.py", "tests/test_collectives.py"
BINDING, PLANS = "tests/calls/test_binding.py", "tests/engine/test_plan.py"
SLOTS, CALLBACKS = "mpicoll/memory/slots.py", "tests/engine/test_program.py"
SANITIZED = "tests/engine/test_sanitizers.py"
COMPILED = "mpicoll/engine/compiled.py"
KEYS, KEY_TESTS = "mpicoll/calls/call_key.c", "tests/calls/test_call_key.py"
LEAVING, DIFFERENT = "tests/memory/test_notes.py", "tests/calls/test_agreement.py"
MESSAGES, LOWERED = "mpicoll/lowering/messages.py", "mpicoll/lowering/shared_memory.py"
METHODS, MAILBOX = "mpicoll/calls/method_calls.py", "mpicoll/memory/mailbox.py"

FAULTS = {
    # -- engine ------------------------------------------------------------------------------
    "nobody waits for readers": Fault(
        LOWERED, "        wait_for_readers(program)\n", "",
        "tests/lowering/test_shared_memory.py -k any_order",
    ),
    "all slots are one": Fault(
        COMPILED, "offset, stride), publication, tile)", "offset, 0), publication, tile)", BINDING,
    ),
    "cma reads from the start of a buffer": Fault(
        COMPILED, "start = Operand(INPUT, piece.start * self.width)", "start = Operand(INPUT, 0)",
        f"{SHARED} -k large_messages",
    ),
    "a wait for one started plan advances no other": Fault(
        "mpicoll/memory/waiting.py", "for run in list(started):", "for run in started[-1:]:",
        f"{EVERY} -k started_plans_overlap",
    ),
    "a started plan is not busy": Fault(
        "mpicoll/engine/runs.py", "resources.under_way = True",
        "resources.under_way = False", f"{PLANS} -k kept_run",
    ),
    # -- the compiled executor ---------------------------------------------------------------
    "compiled: a poll is complete at once": Fault(
        "mpicoll/engine/program_type.c", "row->code == CALL ? 1 : PyObject_IsTrue(result)",
        "1", CALLBACKS,
    ),
    "compiled: a callback gets the first of the slots": Fault(
        "mpicoll/engine/program_type.c", "address_of(&self->program, operands[count])",
        "self->program.registers[operands[count]->reg] + operands[count]->offset", CALLBACKS,
    ),
    "compiled: a callback may run a call of its group": Fault(
        "mpicoll/engine/active.c", "(call->program && call->program->calling))", "0)",
        CALLBACKS,
    ),
    "compiled: messages are not waited for": Fault(
        COMPILED, "self._row(POLL, NOWHERE, count=len(self.callbacks), extra=end.may_test)",
        "pass", "tests/engine/test_background.py",
    ),
    "compiled: a digest is not compared": Fault(
        "mpicoll/engine/digests.h", "line[LINE_DIGEST] != comparison->digest", "0", DIFFERENT,
    ),
    "compiled: any dtype is one": Fault(
        KEYS, "argument->kind = 1 + (int32_t)kind;", "argument->kind = 1;", KEY_TESTS,
    ),
    "compiled: any length is one": Fault(
        KEYS, "if (argument->shape[axis] != other->shape[axis])", "if (0)", KEY_TESTS,
    ),
    "compiled: any root is one": Fault(
        KEYS, "key->root = PyLong_AsLong(args[4]);", "key->root = 0 * PyLong_AsLong(args[4]);",
        KEY_TESTS,
    ),
    "compiled: overlaps are not looked at": Fault(
        KEYS, "key->overlap = 1 + (key->out.address - key->x.address);", "key->overlap = 0;",
        KEY_TESTS,
    ),
    "compiled: a chain of folds loses its last": Fault(
        "mpicoll/engine/program.c", "many = (size_t)row->extra + 2;",
        "many = (size_t)row->extra + 1;", f"{SHARED} -k random",
    ),
    "compiled: folds are joined whatever they write": Fault(
        COMPILED, "and goes_on(previous, combine)", "",
        f"{SHARED} -k 'random or large'",
    ),
    "compiled: a flag is raised for later runs, too": Fault(
        COMPILED, "self._row(RAISE, flag)\n", "self._row(RAISE, flag, extra=-8)\n", SANITIZED,
    ),
    "compiled: an acknowledgement is not sent": Fault(
        COMPILED, "        if word is not None:\n", "        if False:\n", f"{SHARED} -k large",
    ),
    "compiled: nobody waits for readers": Fault(
        COMPILED, "for reader, word in publication.acknowledge.items():",
        "for reader, word in publication.acknowledge.items() "
        "if isinstance(instruction, WaitForSlot) else ():",
        BINDING,
    ),
    "compiled: an array that its rank has taken back is a result": Fault(
        COMPILED, "            if publication.is_zero_copy:\n", "            if False:\n",
        f"{LEAVING} -k taken_back",
    ),
    "compiled: a call in a wait begins before the call that waits ends": Fault(
        "mpicoll/engine/active.c", "if (*under_way == NO_CALL)", "if (1)",
        "tests/engine/test_queue.py",
    ),
    "compiled: a slot is written a run too early": Fault(
        COMPILED, "(instruction.tile, publication.depth)",
        "(instruction.tile, 2 * publication.depth)", SANITIZED,
    ),
    "compiled: calls are compared after they have run": Fault(
        COMPILED, "if self.check < 0 and (not behind or publication.window):", "if False:",
        DIFFERENT,
    ),
    "compiled: a flag must be exact": Fault(
        "mpicoll/engine/program.c", "__ATOMIC_ACQUIRE) >= minimum;",
        "__ATOMIC_ACQUIRE) == minimum;", f"{SHARED} {BINDING}",
    ),
    "compiled: a program that failed runs again": Fault(
        "mpicoll/engine/program_type.c",
        "if (self->program.position < self->program.length) {", "if (0) {",
        "tests/engine/test_program_type.py",
    ),
    "nobody is told that a rank has left": Fault(
        "mpicoll/memory/notes.py", "words[self.first + _COUNT] = count + 1", "pass", LEAVING,
    ),
    "a group goes on out of step": Fault(
        MAILBOX, "if not alike and not self.ended:", "if False:", LEAVING,
    ),
    "an exchange takes what is not meant for it": Fault(
        "mpicoll/text/encoding.py", "if name != names[0]), 0)", "if False), 0)", DIFFERENT,
    ),
    # -- memory ------------------------------------------------------------------------------
    "readers share one word": Fault(
        SLOTS, "rank: words + index * LINE for", "rank: words for", BINDING,
    ),
    "one slot needs no acknowledgement": Fault(
        SLOTS, "if has_one_slot or rank not in self.replies", "if rank not in self.replies",
        f"{SHARED} -k large_messages",
    ),
    "lengths are not compared": Fault(SLOTS, "if sent != expected:", "if False:", BINDING),
    "areas overlap": Fault(
        "mpicoll/memory/allocator.py", "Area(segment, start + needed, length - needed)",
        "Area(segment, start + needed - LINE, length - needed)", f"{SHARED} -k random",
    ),
    "freed areas are lost": Fault(
        "mpicoll/memory/allocator.py", "returned.append(self.returned.popleft())",
        "self.returned.popleft()", f"{SHARED} -k used_again",
    ),
    "the mailbox has one slot": Fault(
        MAILBOX, "number % DEPTH", "0", "tests/memory/test_mailbox.py",
    ),
    "a long item loses its end": Fault(
        MAILBOX, "max(lengths)", "min(lengths)", "tests/memory/test_mailbox.py",
    ),
    "a rank that has ended is not noticed": Fault(
        "mpicoll/memory/waiting.py", "if is_gone and words[index] < minimum:",
        "if False:",
        "tests/memory/test_waiting.py",
    ),
    # -- lowering ----------------------------------------------------------------------------
    "folds are in reverse order": Fault(
        MESSAGES, 'if side == "left" else (local, part)', 'if side == "right" else (local, part)',
        f"{EVERY} -k rank_order",
    ),
    "a receive overwrites what is being sent": Fault(
        MESSAGES, "and len(runs) == 1 and not overlaps(runs[0], busy)", "and len(runs) == 1",
        "tests/lowering/test_messages.py -k lands_in_memory",
    ),
    "in place is out of place": Fault(
        MESSAGES, "        if in_place:\n", "        if False:\n", f"{SHARED} -k in_place",
    ),
    "blocks of uneven length overlap": Fault(
        MESSAGES, "(sizes[name] for name in names)", "(sizes[names[0]] for name in names)",
        f"{EVERY} -k uneven",
    ),
    "what is written in a round is read in place": Fault(
        LOWERED, "            and not overlaps(runs[0], self.busy)\n", "",
        "tests/lowering/test_shared_memory.py -k 'zero_copy or copied_out'",
    ),
    "fused folds change sides": Fault(
        "mpicoll/lowering/fusing.py", "(last, index) if is_left",
        "(last, index) if combine.right == previous.target", "tests/lowering",
    ),
    # -- runtime -----------------------------------------------------------------------------
    "ranks do not agree on a call": Fault(
        METHODS, "if differs or not self.matches(digest, plan):",
        "if False:", "tests/calls/test_arguments.py -k deviating",
    ),
    "a cached plan serves any dtype": Fault(
        "mpicoll/calls/arguments.py", "return (*signature.values(), self.in_place",
        'return (*(v for k, v in signature.items() if k != "dtype"), self.in_place',
        "tests/calls/test_plan_cache.py",
    ),
    "ranks run different plans for one call": Fault(
        "mpicoll/calls/arguments.py", "repr((plan, *self", "repr((None, *self",
        f"{PLANS} -k twins",
    ),
    "a broken plan is kept": Fault(
        "mpicoll/calls/plan_cache.py", "            self._failed.append(self._take(key))\n",
        "            return\n",
        f"{PLANS} -k may_be_made_again",
    ),
    "a tag in use is given again": Fault(
        "mpicoll/calls/tags.py", "for number in self.every if number not in held",
        "for number in self.every", "tests/calls",
    ),
    # -- arrays, natives and transports ------------------------------------------------------
    "an operator is another": Fault(
        "mpicoll/memory/numpy_arrays.py", '"bxor": "bitwise_xor"', '"bxor": "bitwise_or"',
        "tests/test_dtypes_and_operators.py",
    ),
    "a message takes any tag": Fault(
        "mpicoll/threads/transport.py", '("plan", tag)', '("plan", 0)', f"{EVERY} {PLANS}",
    ),
    "messages overtake each other": Fault(
        "mpicoll/threads/world.py", "queues[key].popleft()", "queues[key].pop()",
        "tests/threads",
    ),
    "a message is not copied": Fault(
        "mpicoll/threads/world.py", "append(copied(self.arrays, data))", "append(data)",
        "tests/threads",
    ),
    "a rank that failed is waited for": Fault(
        "mpicoll/threads/launch.py", "world.end(rank, how)", "pass", "tests/threads -k lost_rank",
    ),
    # -- checker, selection, simulator -------------------------------------------------------
    "the checker forgets a rank": Fault(
        "mpicoll/measurement/checking.py", "for part in parts[1:]:", "for part in parts[2:]:",
        "tests/measurement tests/bench -m 'not launches'",
    ),
    "a row of the table covers one rank less": Fault(
        "mpicoll/selection/shipped.py", "if place.ranks <= max_ranks and",
        "if place.ranks < max_ranks and", "tests/selection/test_shipped.py -k covers_a_call",
    ),
    # -- on real ranks -----------------------------------------------------------------------
    "mpi: displacements of uneven rows": Fault(
        "mpicoll/mpi/natives.py", "list(accumulate(counts, initial=0))[:-1]",
        "list(accumulate(counts, initial=0))[1:]",
        "tests/test_ranks.py::test_on_ranks[2-mpi4py]",
    ),
    "mpi: an operator is another": Fault(
        "mpicoll/mpi/natives.py", '"bor": MPI.BOR', '"bor": MPI.BAND',
        "tests/test_ranks.py::test_on_ranks[2-mpi4py]",
    ),
    "torch: splits are swapped": Fault(
        "torchcoll/natives.py", "received = [rows[call.rank]", "received = [rows[call.rank - 1]",
        "tests/test_ranks.py::test_on_ranks[2-torch]",
    ),
}  # fmt: skip


def plant(fault: Fault, tree: Path) -> None:
    """Write a copy of the project, with the fault in it."""
    for part in ("mpicoll", "torchcoll", "tests", "jobs", "README.md", "pyproject.toml"):
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, tree / part)
    text = (tree / fault.file).read_text()
    if fault.right not in text:
        raise SystemExit(f"{fault.file} has no {fault.right!r} any more: mend this list")
    (tree / fault.file).write_text(text.replace(fault.right, fault.wrong))
    if fault.file.endswith(".c"):
        compile_in(tree)


def compile_in(tree: Path) -> None:
    """Compile the extension of a tree, as quickly as possible."""
    engine = tree / "mpicoll" / "engine"
    for library in engine.glob("_compiled.*.so"):
        library.unlink()
    suffix, include = sysconfig.get_config_var("EXT_SUFFIX"), sysconfig.get_paths()["include"]
    sources = sorted((*tree.glob("mpicoll/**/*.c"), *tree.glob("torchcoll/**/*.c")))
    folders = {f"-I{path.parent}" for path in (tree / "mpicoll").rglob("*.h")}
    flags = ("-std=gnu11", "-O1", "-ffp-contract=off", "-fPIC", "-shared", f"-I{include}", *folders)
    subprocess.run(
        ["cc", *flags, *map(str, sources), "-o", f"{engine}/_compiled{suffix}"], check=True
    )


def caught(fault: Fault) -> str | None:
    """Return the first test that fails with the fault, None where all pass."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        plant(fault, tree)
        words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", fault.tests)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--timeout=120", *words],
            cwd=tree, capture_output=True, text=True, timeout=_SECONDS, check=False,
            env={**os.environ, "PYTHONPATH": str(tree), "MPICOLL_TEST_DEADLINE": "5"},
        )  # fmt: skip
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest says: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    # A launch shows its own summary first, in lines that pytest marks with an E.
    found = re.search(r"^(?:E +)?(?:FAILED|ERROR) (\S+?)(?:\[| -|$)", done.stdout, re.MULTILINE)
    return found[1] if found else "a timeout" if done.returncode else None


def main(names: list[str]) -> int:
    """Plant faults one by one; return how many were missed."""
    missed = 0
    for name in names or FAULTS:
        by = caught(FAULTS[name])
        missed += by is None
        sys.stdout.write(f"{name:46} {by or 'MISSED'}\n")
        sys.stdout.flush()
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
