"""The meeting of ranks: those that know the secret, and strangers who reach the store."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from forked import Forked, forked
from joining import KEY, SOON, together
from launcher import LIMIT, ROOT, SUPPORT, free_port

pytest.importorskip("torch")
import torch.distributed as dist

from torchcoll import LaunchError
from torchcoll.place import ARGUMENTS, Place
from torchcoll.rendezvous.meeting import Member, exchange_members

STRANGER = str(SUPPORT / "stranger.py")


def meeting(
    secrets: list[bytes], store: Any = None, places: list[tuple[int, int]] | None = None
) -> list[tuple[list[Member], bytes] | LaunchError]:
    """Let threads meet on one store, each with its rank and size; return what each found."""
    store = store or dist.HashStore()
    places = places or [(rank, len(secrets)) for rank in range(len(secrets))]

    def join(secret: bytes, rank: int, size: int) -> tuple[list[Member], bytes] | LaunchError:
        try:
            return exchange_members(store, secret, Place(rank, size, ARGUMENTS), [], 5.0)
        except LaunchError as error:
            return error

    with ThreadPoolExecutor(len(secrets)) as threads:
        return [*threads.map(join, secrets, *zip(*places, strict=True))]


def test_ranks_that_meet_share_a_key_that_serves_once() -> None:
    first, again = meeting([KEY, KEY, KEY]), meeting([KEY, KEY, KEY])
    keys = [{each[1] for each in found if isinstance(each, tuple)} for found in (first, again)]
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
