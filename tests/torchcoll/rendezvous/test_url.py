"""Addresses and files of a rendezvous: those that cannot serve, and those in use."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from forked import forked
from joining import CHILD, SOON, together, told
from launcher import free_port

pytest.importorskip("torch")
import torch.distributed as dist

from torchcoll import LaunchError
from torchcoll.place import ARGUMENTS, Place
from torchcoll.rendezvous.store import server
from torchcoll.rendezvous.url import open_url


def opened(init_method: str) -> Any:
    return open_url(Place(0, 2, ARGUMENTS), init_method, 5.0)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/nonexistent/folder/meet", "No such file or directory"),
        ("/", "Is a directory"),
        ("{tmp}", "Is a directory"),
        ("{tmp}/link", "symbolic links"),
        ("{tmp}/fifo", "it is no regular file"),
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
