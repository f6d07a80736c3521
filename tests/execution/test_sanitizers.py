"""The C files of the compiled executor under the address, behaviour and thread sanitizers.

The drivers beside this file run them without Python. Ranks are threads there, which run in an
order drawn by chance, the same in every run.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "mpicoll" / "execution"
COMPILER = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
FLAGS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}
PROGRAMS = ("one_shot", "ring", "broadcast")

needs_programs = pytest.mark.skipif(
    not (SOURCES / "program.c").exists(), reason="there is no compiled loop over instructions"
)


def run(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)


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


def driver(built, loop=SOURCES / "program.c"):
    kernels, programs = SOURCES / "kernels.c", HERE / "sanitize_programs.c"
    return built.link(f"programs_over_{loop.stem}", kernels, loop, programs)


@address
def test_kernels_stay_within_their_areas(built):
    done = run(built.link("kernels", SOURCES / "kernels.c", HERE / "sanitize_kernels.c"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "baseline" in done.stdout or "neon" in done.stdout


@needs_programs
@both
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_are_clean(built, program, ranks):
    done = run(driver(built), program, ranks)
    assert (done.returncode, done.stderr) == (0, "")


@needs_programs
@thread
@pytest.mark.parametrize("fault", ["slot", "await"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_finds_programs_that_wait_too_little(built, program, fault):
    done = run(driver(built), program, 2, fault)
    assert done.returncode
    assert "data race" in done.stderr


@needs_programs
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


@needs_programs
@address
@pytest.mark.parametrize("program", ["one_shot", "ring"])
def test_finds_folds_beyond_the_end(built, program):
    done = run(driver(built), program, 2, "count")
    assert done.returncode
    assert "heap-buffer-overflow" in done.stderr
