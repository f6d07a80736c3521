"""Threads of ours that are inside torch when the interpreter ends."""

from __future__ import annotations

import pytest
from launcher import python

pytest.importorskip("torch")

TESTED = """
import sys, time
import torch.distributed as dist
from torchcoll.requests import Works

store = dist.HashStore()

class Work:
    def wait(self):
        store.get("sent")  # inside torch, without the interpreter's lock

class Sender:
    def __del__(self, store=store, sleep=time.sleep):
        store.set("sent", "")
        sleep(0.5)  # in which the thread asks for the interpreter

class Waits:
    def wait(self, work, place):
        work.wait()

works = Works([Work], polls=False, waits=Waits()).start()
assert not works.test()
sys.modules["sender"] = Sender()  # goes once the interpreter has begun to end
sys.exit(3)
"""


def test_a_message_that_comes_too_late_does_not_abort_the_process() -> None:
    """The request was tested, and never waited for."""
    done = python("-c", TESTED, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")
