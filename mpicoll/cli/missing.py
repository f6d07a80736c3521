"""A command that does not start: one line that says why, as which library to install.

The package imports this module first. This module needs the standard library alone: any other
library may be missing. From its beginning on a command says itself why it fails.
"""

from __future__ import annotations

import sys
from types import TracebackType

from mpicoll.errors import BadFile
from mpicoll.machine.launchers import (
    PACKAGES,
    end_other_ranks,
    let_first_print,
    own_module,
    place,
)

_EXTRAS = {
    "torch": "torch", "matplotlib": "report", "plotly": "report", "pynvml": "nvml",
    "cupy": "cuda13", "cuda": "cuda13", "pyarrow": "arrow",
}  # fmt: skip
"""The extra that brings a library; `reference` brings all."""
_REFUSED, _INTERRUPTED = 2, 130


def advice(error: ImportError) -> str | None:
    """Return in one line what to install, None where a module of ours cannot be imported.

    >>> advice(ModuleNotFoundError("No module named 'plotly'", name="plotly.offline"))
    "No module named 'plotly': pip install 'mpicoll[report]'"
    """
    library = (error.name or "").partition(".")[0]
    if library in PACKAGES:
        return None
    if "pip install" in str(error):
        return str(error)
    return f"{error}: pip install 'mpicoll[{_EXTRAS.get(library, 'reference')}]'"


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        sys.stderr.write(f"Error: {place()}interrupted\n")
        raise SystemExit(_INTERRUPTED)
    text = advice(error) if isinstance(error, ImportError) else None
    text = str(error) if isinstance(error, BadFile) else text
    if text is None:
        _hook_before(kind, error, trace)
        return
    let_first_print()
    sys.stderr.write(f"Error: {place(is_for_all=True)}{text}\n")
    sys.stderr.flush()
    end_other_ranks(_REFUSED)
    raise SystemExit(_REFUSED)


def uninstall() -> None:
    """Restore the hook that was there before, as one of `sitecustomize`, for a user's program."""
    if sys.excepthook is _end:
        sys.excepthook = _hook_before


_hook_before = sys.excepthook
if own_module():
    sys.excepthook = _end
