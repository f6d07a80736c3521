"""The file that one rank writes: its rows, and the table that they refer to."""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic_ns, time_ns
from types import CodeType
from typing import Any

from mpicoll.errors import RankLost
from mpicoll.flight import layout
from mpicoll.flight.directory import opened, remove_ended
from mpicoll.flight.layout import STACKS, State
from mpicoll.flight.records import Location, Process, Record, Text, encode
from mpicoll.machine.nodes import stated_node

_PACKAGE = Path(__file__).parent.parent


def _library_folders(names: Iterable[str]) -> Iterator[str]:
    """Yield the folders of installed packages: they need not lie beside this interpreter's own."""
    for name in names:
        with suppress(ImportError, ValueError):
            spec = find_spec(name)
            for folder in (spec and spec.submodule_search_locations) or ():
                yield f"{folder}{os.sep}"


_LIBRARIES = (
    f"{_PACKAGE}{os.sep}", f"{_PACKAGE.with_name('torchcoll')}{os.sep}", "<frozen ",
    *_library_folders(("torch", "mpi4py")),
)  # fmt: skip
"""Lines of these files are nobody's own."""
_TESTS = re.compile(r"im?probe|test(all|any|some)?|get_status(_all|_any|_some)?", re.IGNORECASE)
"""Methods of mpi4py that look whether something has come."""
_WAITS = re.compile(
    r"[bsr]?send|m?(recv|probe)|sendrecv(_replace)?|wait(all|any|some)?"
    r"|(neighbor_)?(allgather|alltoall|gather|scatter)[vw]?|barrier|bcast|(all)?reduce"
    r"|reduce_scatter(_block)?|(ex)?scan|fence|(un)?lock(_all)?|flush(_all)?|complete",
    re.IGNORECASE,
)
"""Those that wait for other ranks. Recorded calls have rows instead."""
_MOST_TEXT = 2000
_CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"


class Recorder:
    """The recorder of one rank's calls.

    Args:
        job: names the directory of the job, and the files in it.
        place: rank and size of the launch, or of the first group.
        writers: the extension module, whose types write rows.
        thread: the rank is a thread of this process, and one of several.

    Attributes:
        directory: where the file lies.
        path: of the file.

    Raises:
        OSError: there is no room, or no right to write.
    """

    def __init__(
        self, job: str, place: tuple[int, int], *, writers: Any, thread: bool = False
    ) -> None:
        self.job, self.place, self.thread = job, place, thread
        self.process = os.getpid()
        self.path, self.file = _created(
            job, f"rank-{place[0]:05}.{job}.{self.process}{layout.SUFFIX}"
        )
        self.directory = self.path.parent
        self.lock = threading.RLock()
        self.places: dict[tuple[object, ...], int] = {}
        self.used = layout.UNIT  # so that no record has the place 0
        self.writers, self.has_failed = writers, False
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Where the disk is full, that is an error now, and not a signal later.
            os.posix_fallocate(self.file, 0, layout.FILE_BYTES)
            self.memory: memoryview | None = memoryview(mmap.mmap(self.file, layout.FILE_BYTES))
        except OSError as error:
            os.close(self.file)
            with suppress(OSError):
                self.path.unlink()
            error.filename = self.path
            raise
        parts = (self.memory[part] for part in layout.RING_PARTS)
        self.ring = writers.Ring(*parts, self.locate, self.describe, _counts_steadily())
        self.memory[: len(layout.head())] = layout.head()
        self.intern(self._process(place))

    def _process(self, place: tuple[int, int]) -> Process:
        host, node = os.uname().nodename, stated_node(place[0])
        return Process(
            self.process, *place, host, _boot(), monotonic_ns(), time_ns(), self.thread,
            " ".join(map(ascii, sys.argv))[:500], host if node is None else str(node),
        )  # fmt: skip

    @property
    def ending(self) -> memoryview:
        """Where a signal that ends this rank leaves its number."""
        assert self.memory is not None
        return self.memory[layout.ENDING_AT : layout.ENDING_AT + layout.ENDING.size]

    @property
    def beat(self) -> memoryview:
        """Where the time goes once a second, as long as the process lives."""
        assert self.memory is not None
        return self.memory[layout.BEAT_AT : layout.BEAT_AT + layout.BEAT.size]

    @property
    def stacks(self) -> Path:
        """Where the stacks of this rank's threads go."""
        return self.path.with_suffix(STACKS)

    def time_messages(self) -> None:
        """Have the time in MPI's methods added up that wait for ranks, if mpi4py is imported."""
        kinds = vars(sys.modules["mpi4py.MPI"]) if "mpi4py.MPI" in sys.modules else {}
        for names in (_WAITS, _TESTS):
            self.ring.time_messages([
                getattr(method, "__func__", method)
                for kind in kinds.values() if isinstance(kind, type)
                for name, method in vars(kind).items() if names.fullmatch(name)
            ], names is _TESTS)  # fmt: skip

    # -- the table --------------------------------------------------------------------------

    def intern(self, item: Record) -> int:
        """Return the place of a record in the table, 0 where there is no room left."""
        # The garbage collector looks at no plain tuple of texts and numbers.
        key = type(item).__name__, *item
        known_place = self.places.get(key)
        if known_place is not None:
            return known_place
        data = layout.record(*encode(item))
        length = len(data)
        with self.lock:
            # A handler of a signal may come here meanwhile: first the place, then what lies there.
            place, memory = self.used, self.memory
            if memory is None or place + length > layout.TABLE_BYTES or length > layout.MOST_BYTES:
                return 0
            self.used = place + length
            memory[layout.TABLE_AT + place : layout.TABLE_AT + place + length] = data
            self.places[key] = place // layout.UNIT
        return place // layout.UNIT

    def locate(self, code: CodeType, instruction: int) -> int:
        """Return the place of the line of an instruction, 0 for a library's."""
        file = code.co_filename
        if file.startswith(_LIBRARIES):
            return 0
        line = next(
            (line for first, last, line in code.co_lines() if first <= instruction < last), None
        )
        return self.intern(Location(file, line or code.co_firstlineno, code.co_qualname))

    def describe(self, error: BaseException, location: str = "") -> int:
        """Return the place of an error's text, with a location unless a row has the text."""
        self.has_failed = self.has_failed or isinstance(error, RankLost)
        reason = error.reason if isinstance(error, RankLost) else error
        text = Text(f"{type(error).__name__}: {reason}"[:_MOST_TEXT])
        return self.intern(
            text if (Text.__name__, *text) in self.places else Text(text.text + location)
        )

    # -- the end ----------------------------------------------------------------------------

    def end(self, error: BaseException | None = None) -> None:
        """Say how the rank has ended; remove the files where all ranks have ended well."""
        if self.process != os.getpid():
            return
        if error is not None:
            self.describe(error, _raised_at(error))
        state = State.FAILED if self.has_failed or error else State.ENDED
        with self.lock:  # a thread may end the process while it comes to its end
            if self.memory is None:
                return
            layout.STATE.pack_into(self.memory, layout.STATE_AT, state, monotonic_ns())
            self.close()
        remove_ended(self.directory, self.job)

    def close(self) -> None:
        """Write no more; without the lock: a child may be forked while a thread holds it."""
        self.ring.close()
        if self.memory is not None:
            self.memory = None
            os.close(self.file)


def _raised_at(error: BaseException) -> str:
    """Return the line of the program that has raised an error, to follow its text."""
    location, step = "", error.__traceback__
    while step is not None:
        code, step_line, step = step.tb_frame.f_code, step.tb_lineno, step.tb_next
        if not code.co_filename.startswith(_LIBRARIES):
            location = f", at {code.co_filename}:{step_line} in {code.co_qualname}"
    return location


def _created(job: str, name: str, tries: int = 8) -> tuple[Path, int]:
    """Make a file in the directory of a job; return its path and its descriptor."""
    path = opened(job) / name
    try:
        return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # a rank that has ended already has removed the directory
        if tries == 1:
            raise
        return _created(job, name, tries - 1)


def _boot() -> str:
    """Return the identity of the monotonic clock: of this host's last boot and time namespace."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read(64).strip()
        with suppress(OSError):  # a kernel without time namespaces
            boot += f" {os.stat('/proc/self/ns/time').st_ino}"
        return boot
    return ""


def _counts_steadily() -> bool:
    """Whether the system itself reads its clock from the counter of the processor."""
    with suppress(OSError), open(_CLOCK_SOURCE) as file:
        return file.read(16).strip() == "tsc"
    return False
