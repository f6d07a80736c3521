"""Keep `torch.compile` out of the backend's functions, as gloo's are in C++.

torch calls these from C++ and from programs. While a compiled program runs, torch compiles each
Python frame that it meets, also those that DDP's broadcasts call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)


def uncompiled(function: Function) -> Function:
    """Leave a function, and all that it calls, as it is: a compiled program breaks its graph there.

    `torch.compiler.disable` does so, too, but its first call imports the compiler.
    """
    marked: Any = function
    marked._torchdynamo_disable = True
    dynamo: Any = sys.modules["torch"]._C._dynamo.eval_frame
    if hasattr(dynamo, "_FrameExecStrategy"):  # older versions of torch lack it
        skip = dynamo._FrameAction.SKIP
        strategy = dynamo._FrameExecStrategy(skip, skip)
        dynamo.set_code_exec_strategy(marked.__code__, strategy)
    return function


def uncompiled_methods(kind: Class) -> Class:
    """Leave all methods of a class as they are."""
    for method in vars(kind).values():
        if isinstance(method, FunctionType):
            uncompiled(method)
    return kind
