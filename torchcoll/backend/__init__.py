"""A backend for torch.distributed: `init_process_group("torchcoll")`.

torch imports this package whenever it is imported itself, so its name is loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcoll.backend.describing import describe_group

__all__ = ["describe_group"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from torchcoll.backend import describing

    return getattr(describing, name)
