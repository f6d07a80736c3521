"""Who may take part: ranks that know the run's secret, and nobody else who reaches the store."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from forked import Forked, forked
from joining import CHILD, forget_launcher, together, told
from launcher import LIMIT, ROOT, SUPPORT, free_port

pytest.importorskip("torch")

import torch.distributed as dist

from torchcoll import LaunchError
from torchcoll.place import ARGUMENTS, Place
from torchcoll.rendezvous.meeting import Met, exchange_members
from torchcoll.rendezvous.sealed import SealedStore
from torchcoll.rendezvous.secret import VARIABLE, own_secret, private_directory, seal, unseal
from torchcoll.rendezvous.store import server
from torchcoll.rendezvous.url import open_url

STRANGER = str(SUPPORT / "stranger.py")
KEY = b"k" * 32
SOON = 100.0
"""Seconds: less than the 300 for which ranks wait for each other."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the secret be of this test, whatever launched it."""
    forget_launcher(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "state" / "mpicoll" / "secret"


# -- the secret ---------------------------------------------------------------------


def test_a_secret_is_made_once_and_is_private(home: Path) -> None:
    made: list[bytes] = []
    threads = [threading.Thread(target=lambda: made.append(own_secret())) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(made) == 8 and len(set(made)) == 1 and len(made[0]) == 64
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    assert [each.name for each in home.parent.iterdir()] == ["secret"]


def test_the_variable_comes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sixteen or more characters")
    assert own_secret() == b"sixteen or more characters"
    assert not home.exists()


def test_a_secret_that_can_be_guessed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "short")
    with pytest.raises(LaunchError, match="needs 16 characters"):
        own_secret()


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_secret_that_others_read_is_refused(home: Path, mode: int) -> None:
    own_secret()
    home.chmod(mode)
    with pytest.raises(LaunchError, match="nobody else reads: chmod 600"):
        own_secret()


def test_a_linked_secret_is_not_followed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home.parent.mkdir(parents=True)
    (tmp_path / "planted").write_text("x" * 64)
    home.symlink_to(tmp_path / "planted")
    assert own_secret() != b"x" * 64


def test_without_a_home_the_temporary_folder_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    assert own_secret() == own_secret()
    assert (private_directory() / "secret").exists()


# -- what is sealed -----------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"x", bytes(1000)])
def test_sealed_data_comes_back(data: bytes) -> None:
    assert unseal(KEY, "name", seal(KEY, "name", data)) == data


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: (b"other" * 8, "name", sealed),
        lambda sealed: (KEY, "another name", sealed),
        lambda sealed: (KEY, "name", sealed + b"!"),
        lambda sealed: (KEY, "name", sealed[:-1]),
        lambda sealed: (KEY, "name", bytes(32) + sealed[32:]),
        lambda sealed: (KEY, "name", sealed[:20]),
        lambda sealed: (KEY, "name", b""),
    ],
    ids=["key", "name", "longer", "shorter", "proof", "cut", "empty"],
)
def test_changed_data_is_refused(change: Callable[[bytes], Any]) -> None:
    assert unseal(*change(seal(KEY, "name", b"data"))) is None


def test_ranks_that_never_connect_are_not_waited_for() -> None:
    store = SealedStore(dist.HashStore(), KEY)
    with pytest.raises(LaunchError, match=r"^1 of 3 ranks have connected in 0\.1 s$"):
        store.wait_for_all("world", 3, 0.1)
    store.wait_for_all("world", 2, 0.1)


def test_an_overwritten_value_is_refused() -> None:
    plain = dist.HashStore()
    store = SealedStore(plain, KEY)
    store.set("address", "here")
    assert store.get("address") == b"here" and store.check(["address"])
    plain.set("address", "there")
    with pytest.raises(LaunchError, match=r"writer of 'address'.*does not know this run's secret"):
        store.get("address")
    plain.set("address", plain.get("address"))
    store.set("other", "there")
    plain.set("address", plain.get("other"))
    with pytest.raises(LaunchError, match="does not know"):
        store.get("address")


# -- the meeting --------------------------------------------------------------------


def meeting(
    secrets: list[bytes], store: Any = None, places: list[tuple[int, int]] | None = None
) -> list[Met | LaunchError]:
    """Let threads meet on one store, each with its rank and size; return what each found."""
    store = store or dist.HashStore()
    places = places or [(rank, len(secrets)) for rank in range(len(secrets))]

    def join(secret: bytes, rank: int, size: int) -> Met | LaunchError:
        try:
            return exchange_members(store, secret, Place(rank, size, ARGUMENTS), [], 5.0)
        except LaunchError as error:
            return error

    with ThreadPoolExecutor(len(secrets)) as threads:
        return [*threads.map(join, secrets, *zip(*places, strict=True))]


def test_ranks_that_meet_share_a_key_that_serves_once() -> None:
    first, again = meeting([KEY, KEY, KEY]), meeting([KEY, KEY, KEY])
    keys = [{each.key for each in found if isinstance(each, Met)} for found in (first, again)]
    assert [len(each) for each in keys] == [1, 1]
    assert keys[0] != keys[1]


def test_a_rank_with_another_secret_is_named() -> None:
    honest, foreign, other = meeting([KEY, b"another secret.." * 2, KEY])
    assert "rank 1 on host" in str(honest) and "does not know this run's secret" in str(honest)
    assert isinstance(foreign, LaunchError)
    assert isinstance(other, LaunchError)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("hello/1", "no json", "joined twice"),
        ("hello/1", b'{"size": 2, "host": "\xff", "random": "r"}', "joined twice"),
        ("hello/1", json.dumps({"size": 2, "host": "h", "random": "r"}), "joined twice"),
        ("member/1", bytes(32) + b"{}", ""),
        ("refused", "1", "another rank refused this launch"),
    ],
)
def test_what_lies_in_the_store_already_fools_nobody(key: str, value: Any, said: str) -> None:
    """Also what an earlier run has left."""
    store = dist.HashStore()
    store.set(key, value)
    began = time.monotonic()
    found = meeting([KEY, KEY], store)
    assert time.monotonic() - began < SOON
    assert said in " ".join(map(str, found))
    assert all(isinstance(each, LaunchError) for each in found) or key == "member/1"


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([(0, 3), (1, 3), (1, 3)], "rank 1 joined twice"),
        ([(0, 2), (1, 3)], "were given sizes [2, 3]"),
    ],
)
def test_ranks_that_cannot_be_are_named(places: list[tuple[int, int]], said: str) -> None:
    found = meeting([KEY] * len(places), places=places)
    assert said in " ".join(map(str, found))
    assert all(isinstance(each, LaunchError) for each in found)


def test_a_value_too_long_is_not_decoded() -> None:
    store = dist.HashStore()
    store.set("hello/1", "x" * (1 << 17))
    found = meeting([KEY, KEY], store)
    assert "has 131072 bytes" in str(found[0])


# -- another user -------------------------------------------------------------------


def on_two_ranks(folder: Path, code: str, *ports: int, **environment: str) -> list[Forked]:
    """Run code on two ranks, which meet at these ports."""
    (script := folder / "script.py").write_text(code)
    arguments = [str(port) for port in ports]
    started = [forked(script, str(rank), *arguments, environment=environment) for rank in range(2)]
    for each in started:
        each.wait()
    return started


@pytest.mark.launches
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_cannot_join(tmp_path: Path) -> None:
    """It lists and writes the keys of a store, as anybody can, and is refused by name."""
    port = free_port()
    trap = tmp_path / "trap"
    tmp_path.chmod(0o777)
    stranger = subprocess.Popen(
        [sys.executable, STRANGER, str(port), str(trap)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        ((code, output),) = together(
            [{"init_method": f"tcp://127.0.0.1:{port}", "rank": 0, "size": 2}]
        )
    finally:
        said = stranger.communicate(timeout=LIMIT)[0]
    assert "joined as user 65534" in said
    assert code == 1 and "does not know this run's secret" in output, output
    assert "rank 1 on host '\\x1b[31mhere'" in output
    assert not trap.exists()


@pytest.mark.launches
def test_a_rank_that_takes_a_place_in_gloo_is_refused(tmp_path: Path) -> None:
    """gloo's connections are plain TCP: what comes over them is checked before it is decoded."""
    code = """
import sys, torchcoll
rank, port = int(sys.argv[1]), sys.argv[2]
c = torchcoll.world(init_method=f"tcp://127.0.0.1:{port}", rank=rank, size=2)
c.exchange("honest")
if rank == 1:
    c.transport.store.key = b"guessed"
try:
    c.exchange("forged")
except torchcoll.LaunchError as error:
    print(error)
"""
    outputs = on_two_ranks(tmp_path, code, free_port(), MPICOLL_SYMMETRIC="0")
    assert outputs[0].output == (
        "rank 1 does not know this run's secret: another process is in its place\n"
    )
    assert "rank 0 does not know" in outputs[1].output


@pytest.mark.launches
def test_an_overwritten_address_of_gloo_ends_every_rank(tmp_path: Path) -> None:
    """Rank 0 waits in gloo for rank 1, which has refused; the store of a freed group is gone."""
    code = """
import gc, sys, weakref, torchcoll
from torchcoll.rendezvous.sealed import SealedStore
rank, first, second = map(int, sys.argv[1:])
with torchcoll.world(init_method=f"tcp://127.0.0.1:{first}", rank=rank, size=2) as c:
    c.split(c.rank).free()
    store = weakref.ref(c.transport.store)
del c
gc.collect()
print("freed" if store() is None else "kept")
get = SealedStore.get
if rank == 1:
    SealedStore.get = lambda self, key: self._store.set(key, b"forged") or get(self, key)
try:
    torchcoll.world(init_method=f"tcp://127.0.0.1:{second}", rank=rank, size=2)
except torchcoll.LaunchError as error:
    print(error)
"""
    found = on_two_ranks(tmp_path, code, free_port(), free_port())
    assert [each.returncode for each in found] == [0, 0], found
    waited, refuses = (each.output.splitlines() for each in found)
    said = r"the writer of '.*' in the store does not know this run's secret"
    assert refuses[0] == waited[0] == "freed"
    assert re.match(said, refuses[1])
    # Which of them reads it first is a matter of time.
    assert re.match("(another rank has refused this launch: rank 1: )?" + said, waited[1])


# -- rendezvous that cannot be ------------------------------------------------------


def opened(init_method: str) -> Any:
    return open_url(Place(0, 2, ARGUMENTS), init_method, 5.0)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/nonexistent/folder/meet", "No such file or directory"),
        ("/", "Is a directory"),
        ("{tmp}", "Is a directory"),
        ("{tmp}/link", "symbolic links"),
        ("{tmp}/fifo", "not your own file"),
        ("{tmp}/open", "not your own file"),
        ("/proc/meet", "No such file"),
    ],
)
def test_a_file_that_cannot_serve_is_refused_at_once(path: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "open").touch()
    (tmp_path / "open").chmod(0o666)
    with pytest.raises(LaunchError, match=said):
        opened("file://" + path.format(tmp=tmp_path))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("tcp://no.such.host.invalid:29500", "there is no host 'no.such.host.invalid'"),
        ("tcp://[::1:29500", "Invalid IPv6 URL"),
        ("tcp://203.0.113.1:9999", "cannot listen on 203.0.113.1:9999"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_an_address_that_cannot_serve_is_refused_on_every_rank(
    rank: int, method: str, said: str
) -> None:
    """Of one host: rank 1 must not wait for a rank 0 that has failed."""
    began = time.monotonic()
    with pytest.raises(LaunchError, match=said):
        open_url(Place(rank, 2, "mpirun", 2), method, 300.0)
    assert time.monotonic() - began < SOON


@pytest.mark.exhaustive
@pytest.mark.parametrize("listens", ["silent", "foreign store"])
def test_a_port_in_use_is_refused_on_every_rank(
    listens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchcoll.rendezvous.store._ANSWERS_WITHIN", 1.0)
    with ExitStack() as open_until_then:
        if listens == "silent":
            listener = open_until_then.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = listener.getsockname()[1]
        else:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            port = store.port
        method = f"tcp://127.0.0.1:{port}"
        with pytest.raises(LaunchError, match="cannot listen on"):
            open_url(Place(0, 2, ARGUMENTS), method, 300.0)
        began = time.monotonic()
        with pytest.raises(LaunchError, match="is not rank 0: give a free port"):
            open_url(Place(1, 2, ARGUMENTS), method, 300.0)
        assert time.monotonic() - began < SOON


def test_ipv6() -> None:
    store, port = server("::1", 0)
    assert opened_by_client(f"tcp://[::1]:{port}").get("torchcoll") == b""
    del store


def opened_by_client(method: str) -> Any:
    return open_url(Place(1, 2, ARGUMENTS), method, 5.0).store


@pytest.mark.launches
def test_two_jobs_on_one_port_do_not_meet() -> None:
    """The second is refused on every rank, and the first runs on."""
    method = f"tcp://127.0.0.1:{free_port()}"
    first = forked(CHILD, json.dumps({"init_method": method, "rank": 0, "size": 2}))
    wait_for(method)
    second = together([{"init_method": method, "rank": 0, "size": 2}])
    assert second[0][0] == 1 and "cannot listen on" in second[0][1]
    ((code, output),) = together([{"init_method": method, "rank": 1, "size": 2}])
    assert code == 0, output
    assert told(first.wait())[0]["sum"] == 3


def wait_for(method: str) -> None:
    host, _, port = method.removeprefix("tcp://").rpartition(":")
    until = time.monotonic() + SOON
    while time.monotonic() < until:
        try:
            socket.create_connection((host, int(port))).close()
            return
        except OSError:
            time.sleep(0.05)
