"""Signals that ask a rank for its stacks, beside the handlers of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher import python

HANDLED = """
import ctypes, faulthandler, os, signal, sys
from pathlib import Path
from mpicoll.engine import _compiled
from mpicoll.flight import signals

folder, owner, moment = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
file, calls, ending = open(folder / "file", "w+"), [], memoryview(bytearray(64))
of_library = ctypes.CFUNCTYPE(None, ctypes.c_int)(calls.append)

def install():
    if owner == "faulthandler":
        faulthandler.register(signal.SIGUSR1, file=file)
        faulthandler.enable(file=file)
    elif owner == "python":
        signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
    else:
        ctypes.CDLL(None).signal(signal.SIGUSR1, of_library)

if moment == "before":
    install()
signals.watch(_compiled, ending, folder / "stacks")
if moment == "after":
    install()
    signals.unwatch()  # as a forked child does, and the end of the process
os.kill(os.getpid(), signal.SIGUSR1)
if owner == "faulthandler":
    assert "in <module>" in (folder / "file").read_text() and faulthandler.is_enabled()
else:
    assert calls == [signal.SIGUSR1]
assert (folder / "stacks").exists() == (owner == "library" or moment == "after")
if moment == "before":
    signal.signal(signal.SIGTERM, lambda *given: None)
    signals.unwatch()
    signals.watch(_compiled, ending, folder / "again")
    os.kill(os.getpid(), signal.SIGTERM)
    assert ending.cast("I")[1] == signal.SIGTERM
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("owner", ["faulthandler", "python", "library"])
def test_a_handler_that_others_install_stays(tmp_path: Path, owner: str, moment: str) -> None:
    """Installed before the first group or after it; MPICH is a library that has one."""
    process = python("-c", HANDLED, str(tmp_path), owner, moment)
    assert process.returncode == 0, process.stdout


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from mpicoll.engine import _compiled
from mpicoll.flight import signals

signal.signal(signal.SIGTERM, lambda *given: os.write(end, b"x"))
signals.watch(_compiled, memoryview(bytearray(64)), Path(sys.argv[1]))
start, end = os.pipe()
if not os.fork():
    while Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        pass
    os.kill(os.getppid(), signal.SIGTERM)
    os._exit(0)
os.read(start, 1)  # ends by what the handler writes
"""


def test_a_handler_of_python_interrupts_a_system_call_as_before(tmp_path: Path) -> None:
    process = python("-c", INTERRUPTED, str(tmp_path / "stacks"), timeout=60)
    assert process.returncode == 0, process.stdout


REQUESTED_STACKS = """
import ctypes, os, pathlib, signal, sys, threading, time
from mpicoll.engine import _compiled
from mpicoll.flight import signals

path = pathlib.Path(sys.argv[1])
signals.watch(_compiled, memoryview(bytearray(64)), path)
assert path.exists()

def begin_and_end():
    while True:
        threads = [threading.Thread(target=os.getpid) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

threading.Thread(target=begin_and_end, daemon=True).start()
if not os.fork():
    while path.read_text().count("in <module>") <= 500:
        ctypes.CDLL(None).sigqueue(os.getppid(), signal.SIGUSR1, None)
        time.sleep(0.001)
    os._exit(0)
os.wait()
os._exit(0)
"""


def test_a_rank_whose_threads_end_while_it_is_asked_for_their_stacks_lives(tmp_path: Path) -> None:
    process = python("-c", REQUESTED_STACKS, str(tmp_path / "stacks"))
    assert process.returncode == 0, process.stdout
