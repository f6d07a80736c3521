"""The kernels that are chosen at load time are the best that this processor runs."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from mpicoll.engine import _compiled

AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have one kind")
def test_the_best_kernels_are_chosen() -> None:
    text = Path("/proc/cpuinfo").read_text()
    flags = set(re.findall(r"\w+", text[text.index("\nflags") :].splitlines()[1]))
    has_avx2 = flags >= {"avx2", "f16c"}
    best = "avx512" if has_avx2 and flags >= AVX512 else "avx2" if has_avx2 else "baseline"
    assert _compiled.target() == best
