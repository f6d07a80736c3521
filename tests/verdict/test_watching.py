"""Several readings of files that keep the last calls only, and what is printed of them."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from synthetic_job import Work, worked

from mpicoll.flight.reader import Dump
from mpicoll.verdict.findings import Kind
from mpicoll.verdict.judging import judge
from mpicoll.verdict.summary import show
from mpicoll.verdict.watching import History

CALLS = 100
DUMPS = worked([[Work(2), Work(2.1), Work(7), Work(2)]] * CALLS)


def part(dump: Dump, first: int, last: int) -> Dump:
    """Return a file with some of its calls, and their samples."""
    return dump._replace(
        entries=dump.entries[first:last], samples=dump.samples[2 * first : 2 * last]
    )


def test_readings_of_one_file_are_joined_and_a_gap_between_them_is_no_time() -> None:
    merged = []
    for dump in DUMPS:
        history = History()
        history.add(part(dump, 0, 40))
        history.add(part(dump, 30, 50))
        history.add(part(dump, 70, 100))
        merged.append(history.merged(part(dump, 70, 100)))
    assert [entry.number for entry in merged[0].entries] == [*range(1, 51), *range(71, 101)]
    assert len(merged[0].samples) == 160
    whole, verdict = judge(DUMPS), judge(merged)
    assert verdict.calls == 80
    [finding] = verdict.findings
    assert (finding.kind, finding.ranks) == (Kind.MORE_WORK, (2,))
    assert abs(finding.cost - whole.findings[0].cost) < 0.02
    assert 0.75 < verdict.observation.total / whole.observation.total < 0.82


def test_the_table_and_the_timeline_show_the_last_rank() -> None:
    text = StringIO()
    show(Console(file=text, width=200), judge(DUMPS), ["A remark."])
    lines = text.getvalue().splitlines()
    assert lines[1] == "A remark."
    [row] = [line for line in lines if line.startswith("allreduce at train.py:40 in step")]
    for cell in ("rank 2", "100 %", "more work"):
        assert cell in row
    ranks = [line for line in lines if line.startswith("rank ")]
    assert len(ranks) == 4
    assert "-" not in ranks[2] and all("-" in ranks[rank] for rank in (0, 1, 3))
