"""Rendezvous as asked for: ``env://``, ``tcp://host:port`` or ``file:///path``."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from mpicoll.errors import LaunchError
from torchcoll.place import Place
from torchcoll.rendezvous.store import Rendezvous, Store, client, distributed, nothing, tcp_store

FORMS = "env://, tcp://host:port or file:///path"


def open_url(place: Place, init_method: str, timeout: float) -> Rendezvous:
    """Open the store that `init_method` names.

    Raises:
        LaunchError: it names none, or nobody is there.
    """
    url = urlsplit(init_method)
    if url.scheme == "file" and url.path and not url.netloc:
        return distributed().FileStore(url.path, place.size), nothing
    if url.scheme == "tcp":
        host, port = url.hostname, _port(url.netloc.rpartition(":")[2], init_method)
        if host:
            return tcp_store(place, host, port, timeout), nothing
    if init_method == "env://":
        return _from_environment(place, timeout), nothing
    raise LaunchError(f"init_method {init_method!r} is none of {FORMS}")


def _port(text: str, source: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise LaunchError(f"{source} has no port from 1 to 65535")
    return int(text)


def _from_environment(place: Place, timeout: float) -> Store:
    """Open the store at MASTER_ADDR:MASTER_PORT, where torchrun has it open already."""
    try:
        host, text = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    except KeyError as missing:
        raise LaunchError(
            f"{missing.args[0]} is not set: set MASTER_ADDR and MASTER_PORT to rank 0's host and "
            f"a free port, start with torchrun or mpirun, or give init_method ({FORMS})"
        ) from None
    port = _port(text, f"MASTER_PORT={text!r}")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return tcp_store(place, host, port, timeout)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return distributed().PrefixStore(f"attempt {attempt}", client(place, host, port, timeout))
