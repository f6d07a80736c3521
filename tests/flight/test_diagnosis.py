"""What is said of a job: whose files are written here as its ranks would have written them."""

from __future__ import annotations

import importlib
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from browsing import Opened
from click.testing import CliRunner
from issuing import issue
from synthetic_job import dump

from mpicoll.engine import _compiled
from mpicoll.errors import RankLost
from mpicoll.flight import groups, listing
from mpicoll.flight.diagnosis import diagnose
from mpicoll.flight.layout import STATE, STATE_AT, State
from mpicoll.flight.reader import Dump, distinct, read_all
from mpicoll.flight.recorder import Recorder
from mpicoll.flight.records import Call, Group
from mpicoll.flight.summary import last_call
from mpicoll.flight.words import sentences
from mpicoll.postmortem.__main__ import main
from mpicoll.postmortem.page import page
from mpicoll.postmortem.torch_format import VERSION
from mpicoll.verdict.judging import judge

SUM = Call("allreduce", "float32 (8), sum", "ring", "symmetric")
JOB, NOW = "job-of-a-test", 1_700_000_000_000_000_000


class Written(NamedTuple):
    """A rank whose file is being written."""

    recorder: Recorder
    logs: dict[str, Any]

    def call(self, item: Call = SUM, group: str = "world") -> int:
        """Begin a call."""
        number: int = self.logs[group].begin(self.recorder.intern(item))
        return number

    def complete(self, times: int = 1, item: Call = SUM, group: str = "world") -> None:
        """Make calls."""
        for _ in range(times):
            self.logs[group].end(self.call(item, group))


Write = Callable[..., list[Written]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Make the files of the ranks of a job; each group has a name, and ranks as text."""
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path))
    monkeypatch.setattr(RankLost, "found_in", "")

    def write_ranks(size: int, **groups: str) -> list[Written]:
        ranks = []
        for rank in range(size):
            recorder = Recorder(JOB, (rank, size), writers=_compiled)
            logs = {}
            for name, members in {"world": f"0-{size - 1}", **groups}.items():
                place = recorder.intern(Group(f"id of {name}", name, 0, members))
                logs[name] = recorder.writers.Log(recorder.ring, place)
            ranks.append(Written(recorder, logs))
        return ranks

    return write_ranks


def report(directory: Path, ranks: list[Written] = []) -> list[str]:  # noqa: B006
    """Return what is said when all ranks have been killed."""
    for rank in ranks:
        rank.recorder.close()
    return list(sentences(diagnose(read_all(directory)[0], time.time_ns())))


def test_a_rank_that_is_elsewhere_is_named(write: Write, tmp_path: Path) -> None:
    ranks = write(4)
    for rank in ranks:
        rank.complete(5)
    for rank in (0, 2, 3):
        ranks[rank].call()
    stacks = 'Thread 0x1 (most recent call first):\n  File "/u/train.py", line 7 in load\n'
    ranks[1].recorder.stacks.write_text(f"noise\n{stacks}")
    first, call, come, absent, *_ = report(tmp_path, ranks)
    assert first == "Rank 1 keeps the others waiting."
    assert call.startswith(
        "Call 6 of group world (4 ranks), allreduce of float32 (8), sum by ring over symmetric"
    )
    assert come.startswith(f"Ranks 0,2-3 have come, from {__file__}:")
    assert absent.startswith("Rank 1 has not come: it was in no call: its last, call 5 of")
    assert "and its stack says /u/train.py:7 in load" in absent
    assert "is gone" in absent


IALLREDUCE = Call("iallreduce", "", "native", "MPI")


@pytest.mark.parametrize("issuing", [(0, 2), (0, 1, 2)])
def test_a_rank_that_has_not_issued_what_others_have_is_named(
    write: Write, tmp_path: Path, issuing: tuple[int, ...]
) -> None:
    """Where all have, nothing is known of their requests."""
    ranks = write(3)
    for rank in ranks:
        rank.complete(2)
    for index in issuing:
        issue(ranks[index].logs["world"], ranks[index].recorder.intern(IALLREDUCE))
    lines = report(tmp_path, ranks)
    if len(issuing) == 3:
        assert not any("Call 3" in text for text in lines)
        return
    assert lines[0] == "Rank 1 keeps the others waiting."
    assert lines[1] == (
        "Call 3 of group world (3 ranks), iallreduce by native over MPI, was under way when its "
        "ranks ended."
    )
    assert lines[2].startswith("Ranks 0,2 have come, from ")


def test_ranks_that_ask_for_different_things_are_named(write: Write, tmp_path: Path) -> None:
    ranks = write(3)
    for rank, item in enumerate((SUM, Call("broadcast", "int64 (4), root 0"), SUM)):
        ranks[rank].call(item)
    lines = report(tmp_path, ranks)
    assert lines[0] == "The ranks ask for different things in one call."
    assert "Ranks 0,2 ask for allreduce float32 (8), sum." in lines
    assert "Rank 1 asks for broadcast int64 (4), root 0." in lines


def test_ranks_that_are_in_one_call_by_different_algorithms_are_named(
    write: Write, tmp_path: Path
) -> None:
    """As where a method, which compares the call first, meets a plan, which does not."""
    ranks = write(3)
    method = Call(SUM.collective, SUM.signature, "auto")
    for rank, item in enumerate((method, SUM, SUM)):
        ranks[rank].call(item)
    lines = report(tmp_path, ranks)
    assert "Rank 0 is in it by auto, ranks 1-2 by ring over symmetric." in lines


def test_a_rank_that_does_not_know_the_array_agrees_with_all(write: Write, tmp_path: Path) -> None:
    ranks = write(2)
    ranks[0].call(Call("broadcast", "int64 (4), root 0"))
    ranks[1].call(Call("broadcast"))
    assert not any("ask" in text for text in report(tmp_path, ranks))


def test_ranks_that_wait_for_each_other_in_two_groups(write: Write, tmp_path: Path) -> None:
    ranks = write(2, other="0-1")
    ranks[0].call()
    ranks[1].call(group="other")
    lines = report(tmp_path, ranks)
    assert lines[0] == "Ranks wait for each other, in different groups."
    assert any("Rank 1 has not come: it was in call 1 of group other" in text for text in lines)


def test_a_rank_that_has_left_no_file_is_named(write: Write, tmp_path: Path) -> None:
    ranks = write(3)
    for rank in ranks:
        rank.call()
    ranks[2].recorder.close()
    ranks[2].recorder.path.unlink()
    lines = report(tmp_path, ranks)
    assert lines[0] == "Rank 2 keeps the others waiting."
    assert "Rank 2 has not come: it has left no file." in lines


def test_how_ranks_have_ended_is_said(write: Write, tmp_path: Path) -> None:
    ranks = write(4)
    for rank in ranks:
        rank.complete()
    number = ranks[0].call()
    ranks[0].logs["world"].end(number, RankLost("rank 0 waits for rank 1, which has ended"))
    memory = ranks[1].recorder.memory
    assert memory is not None
    STATE.pack_into(memory, STATE_AT, State.ENDED, time.monotonic_ns())
    ranks[2].recorder.end(ValueError("not this way"))
    ranks[3].recorder.stacks.write_text("Fatal Python error: Segmentation fault\n")
    lines = report(tmp_path, ranks)
    assert lines[0] == "Ranks 1-3 keep the others waiting."
    assert "was given up after" in lines[1]
    assert "Rank 1 has not come: it has ended: its program was over." in lines
    assert any("by an error: ValueError: not this way" in text for text in lines)
    assert any("was killed" in text and "Segmentation fault" in text for text in lines)
    assert any(text.startswith("Rank 0 has left it: RankLost: rank 0 waits") for text in lines)


def test_a_rank_that_dies_in_the_call_is_named(write: Write, tmp_path: Path) -> None:
    ranks = write(2)
    for rank in ranks:
        rank.complete(2)
        rank.call()
    ranks[1].recorder.close()
    dumps, _ = read_all(tmp_path)
    assert [dump.is_alive for dump in dumps] == [True, False]
    assert diagnose(dumps, time.time_ns()).waits_for == [1]
    ranks[0].recorder.close()


def test_a_job_that_goes_on_is_not_called_stuck(write: Write, tmp_path: Path) -> None:
    ranks = write(2)
    for rank in ranks:
        rank.complete(3)
    ranks[0].call()
    diagnosis = diagnose(read_all(tmp_path)[0], time.time_ns(), threshold=60)
    assert not diagnosis.stuck and list(sentences(diagnosis)) == ["No call waits."]
    assert diagnose(read_all(tmp_path)[0], time.time_ns()).waits_for == [1]
    report(tmp_path, ranks)


@pytest.mark.parametrize("gives_up", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("ago", [0.0, 0.5, 60.0], ids=["marked", "killed", "dead"])
def test_a_call_that_a_rank_has_given_up_is_stuck_though_others_were_killed_in_it(
    write: Write, tmp_path: Path, gives_up: tuple[int, ...], ago: float
) -> None:
    """The launcher kills all ranks at the first error: only a rank that died before is to blame."""
    ranks = write(3)
    for rank in ranks:
        rank.complete(3)
    rows = {index: ranks[index].call() for index in (1, 0)}
    time.sleep(0.02)
    for index in gives_up:
        error = RankLost("rank 2 did not come", rank=2)
        ranks[index].logs["world"].end(rows[index], error)
    for rank in ranks:
        rank.recorder.close()
    sign = time.time_ns() - int(ago * 1e9)
    dumps = [dump._replace(beat=sign) for dump in read_all(tmp_path)[0]]
    if ago == 60:
        dumps = [
            dump if rank in gives_up else
            dump._replace(entries=[row._replace(start=sign, end=0) for row in dump.entries[-1:]])
            for rank, dump in enumerate(dumps)
        ]  # fmt: skip
    to_blame = [2] if ago < 60 else sorted({0, 1, 2} - {*gives_up})
    assert diagnose(dumps, time.time_ns(), threshold=60).waits_for == to_blame


def test_the_command_prints_and_writes_a_page_of_64_ranks_soon(
    write: Write, tmp_path: Path
) -> None:
    """Under 2 s in all; most of a limit would be the machine's."""
    ranks = write(64)
    hostile = Call("<script>alert(1)</script>", "\x1b[2J", "ring", "symmetric")
    for rank in ranks:
        rank.complete(40, hostile)
    for rank in ranks[:-1]:
        rank.call(hostile)
        rank.recorder.close()
    ranks[-1].recorder.close()
    target = tmp_path / "page.html"
    (tmp_path / "\udcff.flight").touch()
    start = time.process_time()
    result = CliRunner().invoke(main, [str(tmp_path), "-o", str(target)], catch_exceptions=False)
    assert result.exit_code == 0 and time.process_time() - start < 2
    assert "Rank 63 keeps the others waiting." in result.output
    assert "\x1b[2J" not in result.output and r"\x1b[2J" in result.output
    text = target.read_text()
    assert "<script" not in text and "&lt;script&gt;" in text
    assert r"\udcff.flight: no name of a flight file" in text
    assert text.count("<rect") > 64 * 40


def test_without_a_directory_the_only_job_is_told_and_several_are_listed(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--steps", "3"])
    ranks = write(2)
    report(tmp_path, ranks)
    monkeypatch.delenv("MPICOLL_FLIGHT_DIR")
    monkeypatch.setattr(listing, "home", lambda: tmp_path)
    only = CliRunner().invoke(main, [], catch_exceptions=False)
    assert only.exit_code == 0 and only.output.startswith(f"{tmp_path}, 2 ranks\n")
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path / "newer"))
    recorder = write(1)[0].recorder
    monkeypatch.delenv("MPICOLL_FLIGHT_DIR")
    (tmp_path / "empty").mkdir()
    listed = CliRunner().invoke(main, [], catch_exceptions=False)
    recorder.close()
    _, newer, older, _, command = listed.output.splitlines()
    job = f"'train.py' '--steps' '3'  {{}}      {os.getpid()}"
    assert listed.exit_code == 0
    assert newer.startswith(job.format(1)) and f"runs     {tmp_path}/newer" in newer
    assert older.startswith(job.format(2)) and f"is over  {tmp_path}" in older
    assert command == f"python -m mpicoll.postmortem {tmp_path}/newer"
    refused = CliRunner().invoke(main, ["-o", str(tmp_path / "page.html")])
    assert refused.exit_code == 2 and "name one DIR: 2 jobs have left files" in refused.output


def test_without_a_directory_and_a_job_the_place_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path / "none"))
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert f"no job has left flight files in {tmp_path}/none" in " ".join(result.output.split())


def test_the_main_thread_comes_first_and_a_long_wait_is_told(write: Write, tmp_path: Path) -> None:
    ranks = write(2)
    for rank in ranks:
        rank.complete(2)
    ranks[0].call()
    background_stack = (
        'Thread 0x2 (most recent call first):\n  File "/l/watch.py", line 7 in _watch\n'
    )
    users = 'Current thread 0x1 (most recent call first):\n  File "/u/train.py", line 9 in step\n'
    ranks[1].recorder.stacks.write_text(background_stack + users)
    for rank in ranks:
        rank.recorder.close()
    dumps, faults = read_all(tmp_path)
    now = time.time_ns() + 30_000_000_000
    alive = [dump._replace(is_alive=True) for dump in dumps]
    text = page(tmp_path, diagnose(alive, now), alive, faults, judge(alive))
    assert text.index("/u/train.py:9") < text.index("/l/watch.py:7")
    assert re.search(r"s, a line for each rank, and not the (29|30)(\.\d)? s of waiting", text)
    assert re.search(r"symmetric, under way for 30(\.\d)? s", text)
    output = CliRunner().invoke(main, [str(tmp_path), "--stacks"], catch_exceptions=False).output
    assert output.index("rank 1, the main thread") < output.index("rank 1, another thread")


@pytest.mark.browser
def test_on_a_phone_the_timeline_fits_and_headers_stay_whole(
    write: Write, tmp_path: Path, browser: Any
) -> None:
    ranks = write(3)
    for rank in ranks:
        rank.complete(5)
    for rank in ranks[:2]:
        rank.call()
    for rank in ranks:
        rank.recorder.close()
    target = tmp_path / "page.html"
    CliRunner().invoke(main, [str(tmp_path), "-o", str(target)], catch_exceptions=False)
    opened = Opened(browser, target, 400, "main", "svg")
    rights = opened.tab.evaluate(
        "() => [...document.querySelectorAll('.timeline rect')]"
        ".map(bar => bar.getBoundingClientRect().right)"
    )
    assert len(rights) == 17 and max(rights) <= 400
    heights = opened.tab.evaluate(
        "() => [...document.querySelectorAll('#ranks thead th')].map(cell => cell.offsetHeight)"
    )
    assert len(heights) == 6 and max(heights) < 40, "a header has one line"
    assert opened.tab.evaluate("() => document.documentElement.scrollWidth") <= 400
    assert opened.complaints == []


def test_a_group_without_a_name_is_named_by_its_ranks(place: Path) -> None:
    members = [groups._Member(True, False, JOB, rank, "1", ("h", 1)) for rank in (4, 5)]
    flight = groups.join(lambda item, kind: members, 0, 2, threads=True, writers=_compiled)
    assert flight is not None
    flight.log.end(flight.log.begin(flight.call("barrier", "", "", "")))
    (dump,) = read_all(place)[0]
    groups.end_thread(None)
    assert [group.name for group in dump.groups] == ["ranks 4-5", "messages of ranks 4-5"]
    assert last_call(dump.entries[-1]) == "barrier 1 of ranks 4-5"


@pytest.mark.parametrize("argument", ["nothing", "."])
def test_a_directory_without_files_is_refused(tmp_path: Path, argument: str) -> None:
    result = CliRunner().invoke(main, [str(tmp_path / argument)])
    assert result.exit_code == 2 and "Error" in result.output
    assert "Traceback" not in result.output


def test_torchs_analyser_finds_the_rank(write: Write, tmp_path: Path) -> None:
    components = "torch.distributed.flight_recorder.components"
    builder = pytest.importorskip(f"{components}.builder")
    loader = importlib.import_module(f"{components}.loader")
    config = importlib.import_module(f"{components}.config_manager")
    ranks = write(3)
    for rank in ranks:
        rank.complete(2)
        rank.complete(1, Call("scan", "float32 (8), sum"))
    for rank in ranks[1:]:
        rank.call()
    report(tmp_path, ranks)
    out = tmp_path / "torch"
    result = CliRunner().invoke(main, [str(tmp_path), "--torch", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    arguments = config.JobConfig().parse_args([str(out), "--prefix", "rank_"])
    collectives = builder.build_db(loader.read_dir(arguments)[0], arguments, VERSION).collectives
    assert [(record.collective_seq_id, record.missing_ranks) for record in collectives] == [
        (1, None), (2, None), (4, {0}),
    ]  # fmt: skip


def test_groups_of_one_name_are_told_apart() -> None:
    twins = [Group(name, "ranks 0-1", 0, "0-1") for name in ("first", "second")]
    names: dict[str, dict[str, int]] = {}
    for ranks_twins in (twins, twins[::-1]):
        by_id = {group.id: distinct(group, names).name for group in ranks_twins}
        assert by_id == {"first": "ranks 0-1", "second": "ranks 0-1 (2nd)"}


@pytest.mark.parametrize(("waited", "hung"), [(0.2, False), (6.0, True)])
def test_a_job_that_was_killed_while_it_worked_is_told_from_one_that_hung(
    write: Write, tmp_path: Path, waited: float, hung: bool
) -> None:
    ranks = write(2)
    for rank in ranks:
        rank.complete(3)
    ranks[0].call()
    for rank in ranks:
        rank.recorder.beat[:] = (time.monotonic_ns() + round(waited * 1e9)).to_bytes(8, "little")
        rank.recorder.close()
    dumps, _ = read_all(tmp_path)
    diagnosis = diagnose(dumps, time.time_ns(), 1.0)
    text = " ".join(sentences(diagnosis))
    assert text.startswith("Rank 1 keeps the others waiting.") is hung
    assert (
        text.startswith("The job did not hang: ranks 0-1 were killed while they worked") is not hung
    )
    if hung:
        assert re.search(r"was under way when its ranks ended, for 6\.0 s\.", text)


def in_message(rank: int, since: float, text: str) -> Dump:
    """Return the file of a rank that has been in a message for some seconds, at a line."""
    frame = f'  File "{__file__}", line {text} in f'
    stacks = f"Thread 0x{rank + 1:x} (most recent call first):\n{frame}\n"
    return dump(rank, [], size=3)._replace(
        state=State.RUNNING, is_alive=True, stacks=stacks, longest=500_000_000,
        message=NOW - round(since * 1e9) if since else 0,
    )  # fmt: skip


def test_messages_that_do_not_end_are_named_and_where_the_others_are() -> None:
    dumps = [in_message(0, 4, "1"), in_message(1, 5, "1"), in_message(2, 0, "3")]
    diagnosis = diagnose(dumps, NOW, 1.0)
    assert diagnosis.is_stuck and not diagnosis.stuck
    first, second = sentences(diagnosis)
    source = '"""What is said of a job: whose files are'
    assert first.startswith(f"Ranks 0-1 wait in a message for 5.0 s at {__file__}:1 in f: {source}")
    assert second == f"Rank 2 is at {__file__}:3 in f: from __future__ import annotations."


def test_a_message_that_is_no_longer_than_others_is_not_stuck() -> None:
    assert not diagnose([in_message(0, 0.9, "1")], NOW, 0.5).is_stuck
    assert not diagnose([in_message(0, 1.5, "1")], NOW, 2.0).is_stuck
