"""The C files of the compiled executor under the address, behaviour and thread sanitizers.

The drivers beside this file run them without Python: programs made by hand, and those that Python
makes of schedules. Ranks are threads there, which run in an order drawn by chance, the same in
every run.
"""

import os
import shutil
import subprocess
from array import array
from pathlib import Path

import numpy as np
import pytest
from launcher import LIMIT

from mpicoll.engine import compiled
from mpicoll.threads import threads

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "mpicoll" / "engine"
COMPILER = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
FLAGS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    # It knows no fences, of which gcc warns, and no other compiler knows that warning.
    "thread": ["-fsanitize=thread", "-Wno-unknown-warning-option", "-Wno-tsan"],
}
PROGRAMS = ("one_shot", "ring", "broadcast")
pytestmark = pytest.mark.exhaustive


def run(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=LIMIT)


class Built:
    """A folder of objects for one sanitizer."""

    def __init__(self, folder, flags):
        self.folder, self.flags = folder, flags

    def compile(self, source):
        target = self.folder / f"{source.stem}.o"
        if not target.exists():
            self._compiler("-c", source, "-o", target)
        return target

    def link(self, name, *sources):
        target = self.folder / name
        if not target.exists():
            self._compiler(*map(self.compile, sources), "-o", target, "-lpthread")
        return target

    def planted(self, source, name, right, wrong):
        """Return a copy of a source in which `right` is `wrong`."""
        text = source.read_text()
        assert right in text
        copy = self.folder / f"{name}.c"
        copy.write_text(text.replace(right, wrong))
        return copy

    def _compiler(self, *arguments):
        warnings = ("-Wall", "-Wextra", "-Werror")
        done = run(COMPILER, "-O1", "-g", *warnings, *self.flags, f"-I{SOURCES}", *arguments)
        assert not done.returncode, done.stderr


@pytest.fixture(scope="module")
def built(request, tmp_path_factory):
    """What is compiled for the sanitizer that the test names."""
    if not COMPILER:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp(request.param)
    trial = folder / "trial.c"
    trial.write_text("int main(void) { return 0; }\n")
    flags, trial_program = FLAGS[request.param], folder / "trial"
    for command in ([COMPILER, *flags, trial, "-o", trial_program], [trial_program]):
        done = run(*command)
        if done.returncode:
            pytest.skip(f"no {request.param} sanitizer runs here: {done.stderr.strip()[-200:]}")
    return Built(folder, flags)


address, thread, both = (
    pytest.mark.parametrize("built", sanitizers, indirect=True)
    for sanitizers in (["address"], ["thread"], list(FLAGS))
)


def driver(built, loop=SOURCES / "program.c", progress=SOURCES / "progress.c"):
    others = SOURCES / "kernels.c", HERE / "sanitize_programs.c"
    return built.link(f"programs_{loop.stem}_{progress.stem}", loop, progress, *others)


def channel_driver(built, channel=SOURCES / "channel.c", loop=SOURCES / "program.c"):
    others = SOURCES / "progress.c", SOURCES / "kernels.c", HERE / "sanitize_channel.c"
    return built.link(f"channel_{channel.stem}_{loop.stem}", channel, loop, *others)


@address
def test_kernels_stay_within_their_areas(built):
    done = run(built.link("kernels", SOURCES / "kernels.c", HERE / "sanitize_kernels.c"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "baseline" in done.stdout or "neon" in done.stdout


@both
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_are_clean(built, program, ranks):
    done = run(driver(built), program, ranks)
    assert (done.returncode, done.stderr) == (0, "")


@both
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("how", ["given", "called"])
def test_the_progress_thread_is_clean(built, how, program):
    done = run(driver(built), program, 3, how)
    assert (done.returncode, done.stderr) == (0, "")


@both
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_channels_are_clean(built, ranks):
    done = run(channel_driver(built), ranks)
    assert (done.returncode, done.stderr) == (0, "")


SIGNS = "data race", "a result is wrong", "a message does not fit", "a word does not come"
CHANNEL_FAULTS = {
    "reads_without_order": (
        "number = __atomic_load_n(&head->number, __ATOMIC_ACQUIRE)",
        "number = __atomic_load_n(&head->number, __ATOMIC_RELAXED)",
    ),
    "writes_without_order": (
        "channel->rank), __ATOMIC_ACQUIRE)",
        "channel->rank), __ATOMIC_RELAXED)",
    ),
    "marks_moves_early": (
        "    char *target = NULL;\n",
        "    char *target = NULL;\n    mark_read(channel, peer), channel->taken[peer]--;\n",
    ),
    "marks_folds_early": (
        "        fold_all(call, call->result + start, operands, call->end_peer, nbytes);\n"
        "        mark_all_read(channel, call->end_peer);\n",
        "        mark_all_read(channel, call->end_peer);\n"
        "        fold_all(call, call->result + start, operands, call->end_peer, nbytes);\n",
    ),
    "awaits_no_readers": ("if (channel->read[peer] < old)", "if (0)"),
    "awaits_newer_readers": ("old = next - SLOTS;", "old = next - SLOTS - 1;"),
    "reads_for_all": ("|| is_for(channel, &copy, peer)", "|| is_for(channel, &copy, peer) + 1"),
    "sends_more": (
        "parts_of(length_of(&move->source, 0), SLOT_BYTES);",
        "parts_of(length_of(&move->source, 0), SLOT_BYTES) + 1;",
    ),
    "sends_fewer_rows": (
        "parts_of(longest, row_bytes(channel));",
        "parts_of(longest, row_bytes(channel)) - 1;",
    ),
    "rounds_parts_down": ("(nbytes + part - 1) / part", "nbytes / part"),
    "gets_fewer": ("*is_last = part + 1 >=", "*is_last = part + 2 >="),
    "rows_overlap": ("rank * row_bytes(channel)", "rank * (row_bytes(channel) - 64)"),
    "rows_over_table": ("room_of(head) + LENGTHS_BYTES +", "room_of(head) +"),
}


@thread
@pytest.mark.parametrize("fault", CHANNEL_FAULTS)
def test_finds_faults_of_channels(built, fault):
    channel = built.planted(SOURCES / "channel.c", fault, *CHANNEL_FAULTS[fault])
    done = run(channel_driver(built, channel), 3, 2)
    assert done.returncode
    assert any(sign in done.stderr for sign in SIGNS)


@thread
def test_finds_channels_whose_words_have_no_order(built):
    loop = built.planted(
        SOURCES / "program.c",
        "stores",
        "word, value, __ATOMIC_SEQ_CST",
        "word, value, __ATOMIC_RELAXED",
    )
    done = run(channel_driver(built, loop=loop), 3)
    assert done.returncode
    assert "data race" in done.stderr


@thread
def test_finds_programs_that_two_threads_run(built):
    progress = built.planted(
        SOURCES / "progress.c", "takes_at_once", "given = running == job", "given = 0"
    )
    done = run(driver(built, progress=progress), "ring", 2, "given")
    assert done.returncode
    assert "data race" in done.stderr


@thread
@pytest.mark.parametrize("fault", ["slot", "await"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_finds_programs_that_wait_too_little(built, program, fault):
    done = run(driver(built), program, 2, fault)
    assert done.returncode
    assert "data race" in done.stderr


@thread
@pytest.mark.parametrize("order", ["RELEASE", "ACQUIRE"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_finds_words_without_order(built, program, order):
    loop = built.planted(
        SOURCES / "program.c", f"without_{order}", f"__ATOMIC_{order}", "__ATOMIC_RELAXED"
    )
    done = run(driver(built, loop), program, 2)
    assert done.returncode
    assert "data race" in done.stderr


@address
@pytest.mark.parametrize("program", ["one_shot", "ring"])
def test_finds_folds_beyond_the_end(built, program):
    done = run(driver(built), program, 2, "count")
    assert done.returncode
    assert "heap-buffer-overflow" in done.stderr


def ways(built, *given):
    """Return how runs write whose times are planted: `c`, through the cache, or `s`, past it."""
    done = run(built.link("ways", SOURCES / "program.c", HERE / "ways.c"), *given)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@address
@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([704] * 6, "sssccc"), ([705] * 6, "ssssss"), ([200, 200, 200, 900] * 2, "ssssssss"),
        ([200] * 5 + [900] + [200] * 5, "sssccsssscc"),
    ],
)  # fmt: skip
def test_adaptive_copies_stream_until_four_trials_on_end_are_fast(built, trials, expected):
    assert ways(built, *trials) == expected


class Recorded:
    """The tables that the ranks of one plan make, for the driver to run them."""

    def __init__(self, monkeypatch):
        self.tables = {}
        self.sizes = {}
        compile_program = compiled.Table.compile_program

        def record(table):
            for rank, segment in self.shared(table):
                nbytes = len(table.memory.memory[rank][segment])
                self.sizes.setdefault((rank, segment), nbytes)
            self.tables[table.memory.rank] = table
            return compile_program(table)

        monkeypatch.setattr(compiled.Table, "compile_program", record)

    @staticmethod
    def shared(table):
        """Yield the registers that hold a segment: its rank and its number there."""
        for key in table.registers:
            if isinstance(key, tuple) and isinstance(key[0], int):
                yield key

    def plan(self, c, collective, algorithm, count):
        """Make and run a plan on a rank; return the bytes of its input and output."""
        parts, whole = (c.size, count), (count,)
        shapes = {
            "allgather": (whole, parts),
            "alltoall": (parts, parts),
            "reduce_scatter": (parts, whole),
        }
        x, out = (np.zeros(each, "f4") for each in shapes.get(collective, (whole, whole)))
        if collective == "broadcast":
            out = x
        with c.plan(collective, x, out=out, algorithm=f"{algorithm}@symmetric") as plan:
            plan.run()
        return x.nbytes, out.nbytes

    def write(self, path, arrays, *, waits=True):
        """Write the tables as `sanitize_programs.c` reads them, on request without their waits."""
        order = list(self.sizes)
        words = array("q", [len(self.tables), len(order), *self.sizes.values()])
        for rank, table in sorted(self.tables.items()):
            words.extend([*arrays[rank], len(table.addresses) - 2])
            segments = {table.registers[key]: order.index(key) for key in self.shared(table)}
            # The first two registers have no owner.
            for register, owner in enumerate(table.keep[1:], 2):
                private = register not in segments
                words.extend([-1, owner.nbytes] if private else [segments[register], 0])
            words.append(table.length)
            rows = np.array(table.rows).reshape(table.length, -1)
            if not waits:
                rows[rows[:, 0] == compiled.AWAIT, :2] = compiled.COPY, 0
            words.extend(rows.ravel().tolist())
        path.write_bytes(words.tobytes())
        return path


LOWERED = [
    ("allreduce", "one_shot"), ("allreduce", "ring"), ("allreduce", "rabenseifner"),
    ("broadcast", "one_shot"), ("broadcast", "binomial"), ("allgather", "ring"),
    ("reduce_scatter", "ring"), ("alltoall", "pairwise"),
]  # fmt: skip


@both
@pytest.mark.parametrize(("ranks", "count"), [(2, 90), (3, 9000)])
@pytest.mark.parametrize(("collective", "algorithm"), LOWERED)
def test_lowered_schedules_are_clean(
    built, collective, algorithm, ranks, count, monkeypatch, tmp_path
):
    recorded = Recorded(monkeypatch)
    arrays = threads(ranks)(recorded.plan, collective, algorithm, count)
    assert len(recorded.tables) == ranks
    done = run(driver(built), recorded.write(tmp_path / "tables", arrays))
    assert (done.returncode, done.stderr) == (0, "")


@thread
@pytest.mark.parametrize(("collective", "algorithm"), LOWERED)
def test_finds_lowered_schedules_that_do_not_wait(
    built, collective, algorithm, monkeypatch, tmp_path
):
    recorded = Recorded(monkeypatch)
    arrays = threads(3)(recorded.plan, collective, algorithm, 90)
    done = run(driver(built), recorded.write(tmp_path / "tables", arrays, waits=False))
    assert done.returncode
    assert "data race" in done.stderr
