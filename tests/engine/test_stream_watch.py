"""The watch over runs that wait on a GPU: which of them it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mpicoll.engine import stream_watch
from mpicoll.engine.stream_watch import Awaited, StreamWatch
from mpicoll.errors import RankLost


def watch(words: list[int], numbers: list[int]) -> StreamWatch:
    """Return the watch over a run that waits for a word, from a rank that has left."""
    gone = RankLost("rank 1 has left", rank=1)
    policy = SimpleNamespace(lost=lambda context, why: gone, deadline=60.0)
    memory: Any = SimpleNamespace(wait_policy=policy, processes=[0, 0])
    resources: Any = SimpleNamespace(failed=False, fail=lambda error: None)
    context: Any = SimpleNamespace(peer=1, abort_reason=lambda: "which has left it")
    awaited = [[], [Awaited(words, 2, 1, context)]]  # type: ignore[arg-type]
    return StreamWatch(memory, resources, words, 0, awaited, numbers.append)  # type: ignore[arg-type]


def test_a_run_that_a_graph_records_has_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor have its repetitions, which are not watched; the runs after it have."""
    monkeypatch.setattr(stream_watch, "_watch", lambda each: None)
    numbers: list[int] = []
    found = watch([0, 0, 0], numbers)
    for capturing in (False, True, False, False):
        stream: Any = SimpleNamespace(is_capturing=lambda is_so=capturing: is_so)
        found.enter(stream)
    assert numbers == [1, 0, 1, 2]


@pytest.mark.parametrize(("run", "let_go"), [(1, 1), (0, 0)])
def test_a_stream_that_waits_in_vain_is_let_go(
    run: int, let_go: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a numbered run alone: the word of a graph's repetition stays as it is."""
    words = [run, 1, 0]
    found = watch(words, [])
    found.look()
    assert words[2] == let_go
    assert found.error is not None
    assert "the results of this call mean nothing: rank 1 has left" in capfd.readouterr().err
