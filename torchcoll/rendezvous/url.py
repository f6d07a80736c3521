"""Rendezvous as asked for: ``env://``, ``tcp://host:port`` or ``file:///path``."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from mpicoll.errors import ArgumentError, LaunchError, brief
from mpicoll.text.files import lock
from mpicoll.text.numbers import whole
from mpicoll.text.opening import open_by_name
from torchcoll.place import Place
from torchcoll.rendezvous.secret import own_secret
from torchcoll.rendezvous.store import Rendezvous, Store, client, distributed, tcp_store

FORMS = "env://, tcp://host:port or file:///path"


def open_url(place: Place, init_method: str, timeout: float) -> Rendezvous:
    """Open the store that `init_method` names.

    Raises:
        LaunchError: it names none, or nobody is there.
    """
    secret = own_secret()
    return Rendezvous(_open(place, init_method, timeout), secret)


def _open(place: Place, init_method: str, timeout: float) -> Store:
    try:
        url = urlsplit(init_method)
        host = url.hostname
    except ValueError as error:
        raise LaunchError(f"init_method {init_method!r}: {error}") from None
    if url.scheme == "file" and url.path and not url.netloc:
        _check_file(url.path, timeout)
        return distributed().FileStore(url.path, place.size)
    if url.scheme == "tcp":
        port = _port(url.netloc.rpartition(":")[2], brief(init_method))
        if host:
            return tcp_store(place, host, port, timeout)
    if init_method == "env://":
        return _from_environment(place, timeout)
    raise LaunchError(f"init_method {init_method!r} is none of {FORMS}")


def _check_file(path: str, timeout: float) -> None:
    """Make the file if there is none: torch waits minutes for a folder, and takes any file.

    Raises:
        LaunchError: it cannot be written, others can write it, or a rank that is stopped has
            locked it.
    """
    try:
        file = open_by_name(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise LaunchError(
            f"file://{path} cannot be written ({error.strerror}): give a file that does not exist, "
            "in a folder where you can write"
        ) from None
    status = os.fstat(file)
    try:
        # torch would wait for ever, and keep Python's interpreter.
        lock(file, f"file://{path} is locked by a process that is stopped", timeout)
    except ArgumentError as error:
        raise LaunchError(str(error)) from None
    finally:
        os.close(file)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise LaunchError(f"file://{path} is not your own file: give one that does not exist")


def _port(text: str, source: str) -> int:
    port = whole(text, 65535)
    if not port:
        raise LaunchError(f"{source} has no port from 1 to 65535")
    return port


def _from_environment(place: Place, timeout: float) -> Store:
    """Open the store at MASTER_ADDR:MASTER_PORT, where torchrun has it open already."""
    try:
        host, text = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    except KeyError as missing:
        raise LaunchError(
            f"{missing.args[0]} is not set: set MASTER_ADDR and MASTER_PORT to rank 0's host and "
            f"a free port, start with torchrun or mpirun, or give init_method ({FORMS})"
        ) from None
    port = _port(text, f"MASTER_PORT={brief(text)}")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return tcp_store(place, host, port, timeout)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return distributed().PrefixStore(f"attempt {attempt}", client(place, host, port, timeout))
