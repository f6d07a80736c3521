"""What a program sets for the operators of its thread: modes of torch, and autograd's.

They are for the calls that the program makes. A call may consist of other operators, and another
thread may run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _python_dispatch


@contextmanager
def unseen() -> Iterator[None]:
    """Hide operators from autograd and from all modes: default devices, counters, fake tensors."""
    modes: Any = _python_dispatch
    with torch.no_grad(), torch._C.DisableTorchFunction(), modes._disable_current_modes():
        yield


def run_unseen(function: Callable[..., object], *arguments: Any) -> None:
    """Run a function whose operators are hidden."""
    with unseen():
        function(*arguments)


@contextmanager
def autograd_mode(*, enabled: bool, inference: bool) -> Iterator[None]:
    """Record operators, or not, as in the thread that has issued a call."""
    with torch.inference_mode(inference), torch.set_grad_enabled(enabled):
        yield
