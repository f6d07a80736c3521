"""What a program sets for the operators of its thread: modes of torch, and autograd's.

They are for the calls that the program makes. A call may consist of other operators, and another
thread may run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils import _python_dispatch


@contextmanager
def unseen() -> Iterator[None]:
    """Hide operators from autograd and from all modes: default devices, counters, fake tensors."""
    modes: Any = _python_dispatch
    # Leaving no modes by torch's context takes longer than a call.
    has_modes = torch._C._len_torch_dispatch_stack()
    without_modes = modes._disable_current_modes() if has_modes else nullcontext()
    with torch.no_grad(), torch._C.DisableTorchFunction(), without_modes:
        yield


def run_unseen(function: Callable[..., object], *arguments: Any) -> None:
    """Run a function whose operators are hidden."""
    with unseen():
        function(*arguments)
