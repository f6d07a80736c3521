"""Plain data between ranks: no code of the sender's runs, and all ranks refuse alike."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from mpicoll import ArgumentError, Collectives, Disagreement
from mpicoll.text.encoding import MAX_ITEM_BYTES, check_lengths, decode, encode

ROOT = Path(__file__).parents[2]


class Place(NamedTuple):
    rank: int
    host: str | None


@dataclass
class Sample:
    times: list[float]


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (None, Any), (True, Any), (-1, Any), (2**64 - 1, Any), (0.1, Any), (float("inf"), Any),
        ("é", Any), (b"\0\xff", Any), ([1, [2, None]], Any), ({"a": [1]}, Any), ({1: 2}, Any),
        ((1, "a"), tuple[int, str]), ({1, 2}, set[int]),
        ({(0, 1): Place(1, "b")}, dict[tuple[int, int], Place]),
        (Place(3, None), Place), ([Place(3, "a")], list[Place]), (Sample([1.5]), Sample | None),
    ],
)  # fmt: skip
def test_an_item_arrives_as_it_was(item: Any, kind: Any) -> None:
    assert decode([encode(item)], kind) == [item]


def test_numbers_of_numpy_become_python_s() -> None:
    (values,) = decode([encode([np.float64(0.5), np.int32(-1), np.bool_(True)])], Any)
    assert values == [0.5, -1, True]
    assert [type(value) for value in values] == [float, int, bool]


@pytest.mark.parametrize("item", [object(), lambda: 1, 1 << 70, [[ValueError("x")]]])
def test_what_is_no_plain_data_is_refused_on_every_rank(item: object) -> None:
    with pytest.raises(ArgumentError, match=r"^rank 1: "):
        decode([encode(1), encode(item)], Any)


class Trap:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("it was unpickled",)


@pytest.mark.parametrize(
    "data",
    [pickle.dumps(Trap()), b"\0" + pickle.dumps(Trap()), b"", b"\0", b"\0\xc1",
     b"\0" + b"\x91" * 10**5, encode("text"), encode([1, 2]), b"\0\x92\0\xa2\xff\xfe"],
    ids=["pickle", "marked pickle", "nothing", "no item", "invalid", "deep", "text", "list",
         "no UTF-8"],
)  # fmt: skip
def test_other_bytes_name_their_rank(data: bytes) -> None:
    with pytest.raises(Disagreement, match="rank 1 sent something unexpected"):
        decode([encode(Place(0, None)), data], Place)


@pytest.mark.parametrize("length", [0, -1, MAX_ITEM_BYTES + 1, 1 << 62])
def test_an_impossible_length_is_refused(length: int) -> None:
    with pytest.raises(Disagreement, match=f"rank 1 sends {length} bytes"):
        check_lengths([MAX_ITEM_BYTES, length])


@pytest.mark.ranks(2, 3)
def test_ranks_refuse_together_and_go_on(c: Collectives) -> None:
    with pytest.raises(ArgumentError, match="rank 1: ranks exchange plain data, not object"):
        c.exchange(object() if c.rank == 1 else 5)
    with pytest.raises(Disagreement, match="rank 0 sent something unexpected"):
        c.exchange(c.rank or "zero", int)
    assert c.exchange((c.rank,), tuple[int]) == [(rank,) for rank in range(c.size)]


def test_nothing_is_pickled() -> None:
    """Neither by us, nor by the methods of mpi4py that take any object.

    But for what a program gives to such methods of our communicator, and the files that torch's own
    analyser reads.
    """
    communicator = "mpicoll/mpi/communicator"
    allowed = (
        f"{communicator}/messages.py", f"{communicator}/in_order.py",
        "mpicoll/postmortem/torch_format.py",
    )  # fmt: skip
    sources = [path for name in ("mpicoll", "torchcoll") for path in (ROOT / name).rglob("*.py")
               if path not in {ROOT / name for name in allowed}]  # fmt: skip
    named = [
        str(path)
        for path in sources
        for word in ("import pickle\n", "from pickle ", "cloudpickle", "marshal",
                     "comm.allgather(", "comm.bcast(", "local.allreduce(",
                     "_object_list", "all_gather_object")
        if word in path.read_text()
    ]  # fmt: skip
    assert len(sources) > 200
    assert named == []
