"""Threads of ours that `threading` does not list."""

from __future__ import annotations

import logging
import os
import re
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest
from launcher import ROOT, python

from mpicoll.machine.hidden_threads import HiddenThread, forget_current_thread

LONG = 60.0


def test_a_program_does_not_list_it() -> None:
    release, listed = threading.Event(), threading.enumerate()
    thread = HiddenThread(release.wait, "hidden")
    assert thread.is_alive() and not thread.is_current
    assert threading.enumerate() == listed
    release.set()
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_join_returns_after_its_seconds() -> None:
    release = threading.Event()
    thread = HiddenThread(release.wait, "hidden")
    thread.join(0.01)
    assert thread.is_alive()
    release.set()
    thread.join()
    thread.join()
    assert not thread.is_alive()


def test_it_knows_itself() -> None:
    threads: SimpleQueue[HiddenThread] = SimpleQueue()
    answers: SimpleQueue[bool] = SimpleQueue()
    thread = HiddenThread(lambda: answers.put(threads.get(timeout=LONG).is_current), "hidden")
    threads.put(thread)
    assert answers.get(timeout=LONG)


@pytest.mark.parametrize("call", [threading.current_thread, lambda: logging.warning("a warning")])
def test_code_that_asks_for_the_current_thread_does_not_leave_it_in_the_list(call: object) -> None:
    assert callable(call)
    listed, during = threading.enumerate(), SimpleQueue[list[threading.Thread]]()
    goes_on, release = threading.Event(), threading.Event()

    def run() -> None:
        call()
        during.put(threading.enumerate())
        forget_current_thread()
        goes_on.set()
        release.wait(LONG)
        call()

    thread = HiddenThread(run, "hidden")
    assert len(during.get(timeout=LONG)) == len(listed) + 1, "the call asks for it"
    assert goes_on.wait(LONG)
    assert threading.enumerate() == listed
    release.set()
    thread.join(LONG)
    assert threading.enumerate() == listed


def test_its_error_goes_to_the_hook_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: SimpleQueue[tuple[object, str]] = SimpleQueue()
    monkeypatch.setattr(
        threading, "excepthook", lambda event: errors.put((event.exc_type, event.thread.name))
    )
    HiddenThread(lambda: 1 // 0, "hidden").join(LONG)
    assert errors.get(timeout=LONG) == (ZeroDivisionError, "hidden")


def test_the_hook_of_python_names_it(capfd: pytest.CaptureFixture[str]) -> None:
    done = python(
        "-c", "from mpicoll.machine.hidden_threads import HiddenThread\n"
        "HiddenThread(lambda: 1 // 0, 'mpicoll deadline').join()",
    )  # fmt: skip
    assert done.returncode == 0 and "Exception in thread mpicoll deadline:" in done.stdout
    assert "ZeroDivisionError" in done.stdout


def test_an_exit_ends_it_alone() -> None:
    thread = HiddenThread(lambda: exit(3), "hidden")
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_forked_child_has_none() -> None:
    release = threading.Event()
    thread = HiddenThread(release.wait, "hidden")
    child = os.fork()
    if not child:
        thread.join()  # it does not run here, so nobody waits for it
        os._exit(3 if thread.is_alive() else 0)
    _, status = os.waitpid(child, 0)
    release.set()
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("body", ["time.sleep(1e6)", "while True: threading.current_thread()"])
def test_a_process_ends_with_it_under_way(body: str) -> None:
    code = f"""
import threading, time
from mpicoll.machine.hidden_threads import HiddenThread
begun = threading.Event()
def run():
    begun.set()
    {body}
HiddenThread(run, "hidden")
begun.wait()
raise SystemExit(5)
"""
    done = python("-c", code)
    assert (done.returncode, done.stdout) == (5, "")


LISTED = {
    "mpicoll/cli/progress.py",  # of commands, which run no program
    "mpicoll/run/comparing.py",  # of the command that starts the runs
    "mpicoll/threads/launch.py",  # ranks, which run the program
}


def test_every_other_thread_is_hidden() -> None:
    starts = re.compile(r"\b(Thread|Timer|ThreadPoolExecutor)\(")
    modules = {
        str(path.relative_to(ROOT))
        for package in ("mpicoll", "torchcoll")
        for path in Path(ROOT, package).rglob("*.py")
        if starts.search(path.read_text())
    }
    assert modules == LISTED
