"""A secret that only one user's ranks know, and data that proves it (HMAC-SHA256, RFC 2104)."""

from __future__ import annotations

import hmac
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from platformdirs import user_state_path

from mpicoll.errors import LaunchError
from mpicoll.text.opening import open_by_name

VARIABLE = "TORCHCOLL_SECRET"
_MIN_CHARACTERS = 16
_TAG = 32


def own_secret() -> bytes:
    """Return this user's secret: a variable's, or a file's that is made when first needed.

    Raises:
        LaunchError: the variable is too short, or others can read the file.
    """
    text = os.environ.get(VARIABLE)
    if text is not None:
        if len(text) < _MIN_CHARACTERS:
            raise LaunchError(
                f"{VARIABLE} needs {_MIN_CHARACTERS} characters or more, which nobody guesses"
            )
        return os.fsencode(text)
    with suppress(OSError):
        return _read(user_state_path("mpicoll") / "secret")
    # No home folder, or a read-only one, as in containers: the ranks of one host can do.
    path = private_directory() / "secret"
    try:
        return _read(path)
    except OSError as error:
        raise LaunchError(f"cannot keep a secret in {path}: {error.strerror}") from None


def _create(path: Path) -> None:
    """Write a secret at once: ranks that start together all find the same one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{token_hex(8)}")
    write_private(fresh, token_hex(32))
    try:
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()


def private_directory() -> Path:
    """Return this user's folder in the temporary one.

    Raises:
        LaunchError: others can write there, or it cannot be made.
    """
    path = Path(tempfile.gettempdir()) / f"torchcoll-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise LaunchError(f"cannot make {path}: {error.strerror}") from None
    if path.is_symlink() or path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o077:
        raise LaunchError(f"{path} is not this user's own: remove it, or set TMPDIR")
    return path


def write_private(path: Path, text: str) -> None:
    """Write a new file that nobody else can read."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(file, "w") as out:
        out.write(text)


def _read(path: Path) -> bytes:
    """Return the secret in a file, made if there is none."""
    if not path.exists():
        _create(path)
    file = open_by_name(path)
    with open(file, "rb") as source:
        status = os.fstat(file)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise LaunchError(f"{path} must be your own file, which nobody else reads: chmod 600")
        text = source.read(4096)
    if len(text) < _MIN_CHARACTERS:
        raise LaunchError(f"{path} has no secret of {_MIN_CHARACTERS} characters: remove it")
    return text


def derive(secret: bytes, public: str) -> bytes:
    """Return the key of one run: its ranks' random texts are public, and serve one run only."""
    return hmac.digest(secret, public.encode(), "sha256")


def seal(key: bytes, name: str, data: bytes) -> bytes:
    """Return data with a proof that its writer knows the key, and meant it for this name."""
    return hmac.digest(key, f"{len(name)} {name} ".encode() + data, "sha256") + data


def unseal(key: bytes, name: str, sealed: bytes) -> bytes | None:
    """Return the data, None where the proof is wrong."""
    data = sealed[_TAG:]
    return data if hmac.compare_digest(sealed, seal(key, name, data)) else None
