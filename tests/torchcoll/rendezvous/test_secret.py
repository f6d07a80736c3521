"""The run's secret: made once, private, and the seal of data."""

from __future__ import annotations

import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joining import KEY

pytest.importorskip("torch")
from torchcoll import LaunchError
from torchcoll.rendezvous.secret import VARIABLE, own_secret, private_directory, seal, unseal


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
