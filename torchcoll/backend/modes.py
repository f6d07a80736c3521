"""What a program sets for the operators of its thread: modes of torch, and autograd's.

They are for the calls that the program makes. A call may consist of other operators, and another
thread may run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils import _python_dispatch


@contextmanager
def unseen() -> Iterator[None]:
    """Hide operators from autograd and from all modes: default devices, counters, fake tensors."""
    with torch.no_grad(), torch._C.DisableTorchFunction(), _without_modes():
        yield


def _without_modes() -> AbstractContextManager[object]:
    """Return a context without modes of torch's; entering torch's own takes longer than a call."""
    if not torch._C._len_torch_dispatch_stack():
        return nullcontext()
    modes: Any = _python_dispatch
    context: AbstractContextManager[object] = modes._disable_current_modes()
    return context


def run_unseen(function: Callable[..., object], *arguments: Any) -> None:
    """Run a function whose operators are hidden."""
    with unseen():
        function(*arguments)


@contextmanager
def autograd_mode(*, enabled: bool, inference: bool) -> Iterator[None]:
    """Record operators, or not, as in the thread that has issued a call."""
    with torch.inference_mode(inference), torch.set_grad_enabled(enabled):
        yield
