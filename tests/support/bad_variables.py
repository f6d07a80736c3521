"""Values that an environment variable cannot have, and what is said of them."""

from __future__ import annotations

_HUGE = "9" * 5000
_SWITCHES = (
    "MPICOLL_FENCES", "MPICOLL_FLIGHT", "MPICOLL_GPU_AWARE", "MPICOLL_IPC",
    "MPICOLL_NCCL_BLOCKING_WAIT", "MPICOLL_REPRODUCIBLE", "MPICOLL_STREAM_ORDER",
    "MPICOLL_SYMMETRIC",
)  # fmt: skip
_BAD: dict[str, tuple[str, tuple[str, ...]]] = {
    "MPICOLL_DEADLINE": ("a number of seconds", ("", "soon", "-1", "nan", "0")),
    "MPICOLL_CORES": ("a number of cores", ("", "all", "-1", "nan", "0", _HUGE)),
    "MPICOLL_RANKS_PER_NODE": ("a number of ranks", ("", "all", "-1", "0", "\u0663", _HUGE)),
    "MPICOLL_IPC_TILE": ("no number of bytes", ("", "1K", "-1", "\u0663", _HUGE)),
    "MPICOLL_LOAD": ("cannot read", ("nowhere.py", "/proc/self/pagemap", _HUGE)),
    **dict.fromkeys(_SWITCHES, ("must be 1 or 0", ("maybe", "-1", "2", "٣", _HUGE))),
    "MPICOLL_FLIGHT": ("must be 1, keep or 0", ("maybe", "keeps", "2", "٣", _HUGE)),
}
"""For each variable what its error says, and values."""
CASES = [
    (name, value, text)
    for name, (text, values) in _BAD.items()
    for value in (*values, "\x1b[2Jx", "\u00e9", "\udcff")
]
FEW = [(name, values[0], text) for name, (text, values) in _BAD.items()]
"""One value of each variable."""
