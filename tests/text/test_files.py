"""Files that several processes write, and what must not be written."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launcher import LIMIT

from mpicoll.errors import ArgumentError
from mpicoll.text import files
from mpicoll.text.files import content_of, locked, writable, write_whole
from mpicoll.text.lines import Lines
from mpicoll.text.opening import open_by_name

ADD = """
import json, sys
from pathlib import Path
from mpicoll.text.files import locked, write_whole
path = Path(sys.argv[1])
for each in range(int(sys.argv[3])):
    with locked(path):
        entries = json.loads(path.read_text()) if path.exists() else []
        text = json.dumps([*entries, sys.argv[2]])
        write_whole(path, lambda fresh: fresh.write_text(text))
"""


def test_two_processes_lose_no_entry_of_each_other(tmp_path: Path) -> None:
    path, count = tmp_path / "table.json", 100
    writers = [
        subprocess.Popen([sys.executable, "-c", ADD, path, name, str(count)]) for name in "ab"
    ]
    assert [writer.wait(timeout=LIMIT) for writer in writers] == [0, 0]
    entries = json.loads(path.read_text())
    assert [entries.count(name) for name in "ab"] == [count, count]
    assert os.listdir(tmp_path) == ["table.json"]


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_file_keeps_its_mode(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(mode)

    def save(fresh: Path) -> None:
        assert stat.S_IMODE(fresh.stat().st_mode) == mode
        fresh.write_text("new")

    write_whole(path, save)
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_mode_of_other_new_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write_whole(tmp_path / "a", Path.touch)
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_written(exists: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    if exists:
        target.write_text("old")
    link.symlink_to("folder/target")
    with locked(link):
        write_whole(link, lambda fresh: fresh.write_text("new"))
    assert link.is_symlink() and target.read_text() == "new"


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _null(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize("make", [_pipe, _folder, _loop, _null])
def test_only_regular_files_are_replaced(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "a"
    make(path)
    original = path.lstat()
    with pytest.raises(ArgumentError, match=f"cannot write {path}"):
        write_whole(path, lambda fresh: fresh.write_text("new"))
    assert os.path.samestat(path.lstat(), original) and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["", "missing/a", "file/a", "x" * 300])
def test_a_place_that_cannot_be_written_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / name
    for attempt in (writable, lambda path: write_whole(path, Path.touch)):
        with pytest.raises(ArgumentError, match="cannot write "):
            attempt(path)
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_may_not_be_written_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    # The superuser may write everything.
    monkeypatch.setattr(os, "access", lambda which, how: which != path)
    with pytest.raises(ArgumentError, match="denied"):
        write_whole(path, lambda fresh: fresh.write_text("new"))
    assert path.read_text() == "old"


def test_a_writer_that_is_killed_leaves_the_old_file_and_no_lock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    code = (
        "import sys, time; from pathlib import Path; from mpicoll.text.files import *\n"
        "path = Path(sys.argv[1])\n"
        "def save(fresh): fresh.write_text('n'); print(flush=True); time.sleep(60)\n"
        "with locked(path): write_whole(path, save)"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    assert path.read_text() == "old"
    monkeypatch.setattr(files, "_LOCK_WAIT", 0)
    with locked(path):
        write_whole(path, lambda fresh: fresh.write_text("new"))
    assert path.read_text() == "new"
    assert not list(tmp_path.glob("*.lock"))


def test_a_lock_that_another_keeps_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(files, "_LOCK_WAIT", 0.05)
    path = tmp_path / "a"
    busy = pytest.raises(ArgumentError, match=f"another process writes {path}")
    with locked(path), busy, locked(path):
        pass
    with locked(path):
        assert os.listdir(tmp_path) == [".a.lock"]
    assert not os.listdir(tmp_path)


# -- reading --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pipe", "nobody writes this pipe"), ("folder", "Is a directory"),
        ("/dev/zero", "no regular file"), ("missing", "No such file"), ("large", "more than 2 GiB"),
        ("x" * 300, "File name too long"), ("loop", "Too many levels"),
    ],
)  # fmt: skip
def test_what_has_no_end_is_not_read(name: str, why: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with (tmp_path / "large").open("w") as file:
        file.truncate(files.MOST_BYTES + 1)
    with pytest.raises(ArgumentError, match=f"cannot read .*{why}"):
        content_of(tmp_path / name)


def test_a_pipe_is_read_to_its_end() -> None:
    """As that of a shell's ``<(command)``, whose writer may begin late."""
    code = "import time; time.sleep(0.3); print('a' * 100_000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        content = content_of(Path(f"/proc/self/fd/{writer.stdout.fileno()}"))
    assert content == b"a" * 100_000 + b"\n"


def test_a_writer_that_sigterm_ends_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    code = (
        "import sys, time, click; from pathlib import Path\n"
        "from mpicoll.cli.command import Command\n"
        "from mpicoll.text.files import write_whole\n"
        "def save(fresh): fresh.write_text('n'); print(flush=True); time.sleep(60)\n"
        "@click.command(cls=Command)\n"
        "def main(): write_whole(Path(sys.argv[1]), save)\n"
        "main([])"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdout and writer.stderr
        writer.stdout.readline()
        writer.terminate()
        assert b"ended by SIGTERM" in writer.stderr.read()
    assert os.listdir(tmp_path) == ["a"] and path.read_text() == "old"


# -- lines ----------------------------------------------------------------------------------

OPENING = b'{"schema": "mine/1"'
LINE = '{"schema": "mine/1", "a": 1}'


@pytest.mark.parametrize("keep", [False, True])
def test_lines_are_added_or_begun_anew_and_a_torn_one_is_cut_off(
    keep: bool, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_text(f"{LINE}\n{LINE[:9]}")
    lines = Lines(path, OPENING, keep=keep)
    lines.append([LINE])
    lines.close()
    assert path.read_text() == f"{LINE}\n" * (1 + keep)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "content", ["a letter", "a letter\n", '{"schema": 1}\n', f"{LINE}\na letter", f"\n{LINE}\n"]
)
def test_nothing_is_added_to_a_file_of_somebody_else(
    content: str, keep: bool, linked: bool, tmp_path: Path
) -> None:
    path, link = tmp_path / "notes.txt", tmp_path / "link"
    path.write_text(content)
    link.symlink_to(path)
    if not keep and content.startswith(LINE):
        pytest.skip("it begins as ours, and is begun anew")
    with pytest.raises(ArgumentError):
        Lines(link if linked else path, OPENING, keep=keep)
    assert path.read_text() == content


@pytest.mark.parametrize("most", [1 << 20, 3 << 20])
def test_a_regular_file_without_an_end_is_not_read(most: int) -> None:
    with pytest.raises(ArgumentError, match=f"it has more than {most >> 20} MiB"):
        content_of(Path("/proc/self/pagemap"), most)


def test_a_pipe_without_an_end_is_not_read() -> None:
    code = "while True: print('a' * 100_000)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as writer:
        assert writer.stdout
        path = Path(f"/proc/self/fd/{writer.stdout.fileno()}")
        with pytest.raises(ArgumentError, match="it has more than 3 MiB"):
            content_of(path, 3 << 20)
        writer.kill()


# -- files that are taken by their names ------------------------------------------------------


@pytest.mark.parametrize("make", [_pipe, _folder, _loop, _null])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT])
def test_only_a_regular_file_is_opened_by_its_name(
    make: Callable[[Path], None], flags: int, tmp_path: Path
) -> None:
    make(tmp_path / "a")
    with pytest.raises(OSError, match=r"regular|directory|levels"):
        open_by_name(tmp_path / "a", flags)


@pytest.mark.parametrize(
    ("mode", "owner", "is_opened"),
    [(0o755, 1, True), (0o775, 1, False), (0o777, 1, False), (0o1777, 1, False),
     (0o1777, 0, True)],
)  # fmt: skip
@pytest.mark.parametrize("any_owner", [False, True])
def test_another_users_file_is_opened_only_where_that_user_alone_writes(
    mode: int, owner: int, is_opened: bool, any_owner: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The owner of the file is user 1 above this one and above the owner of the folder."""
    path = tmp_path / "a"
    path.touch()
    tmp_path.chmod(mode)
    real = os.fstat

    def status_of(handle: int) -> os.stat_result:
        fields = [*real(handle)]
        fields[4] += owner
        return os.stat_result(fields)

    monkeypatch.setattr(files.os, "fstat", status_of)
    if is_opened or any_owner:
        os.close(open_by_name(path, any_owner=any_owner))
        return
    with pytest.raises(PermissionError, match="it belongs to another user"):
        open_by_name(path)


def test_a_file_that_the_user_names_may_be_a_link_and_anybodys(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("content")
    (tmp_path / "link").symlink_to("target")
    assert content_of(tmp_path / "link") == b"content"
    with pytest.raises(ArgumentError, match="symbolic links"):
        content_of(tmp_path / "link", is_of_user=False)
