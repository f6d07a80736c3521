"""Lists of hosts for Slurm, MPICH and Open MPI."""

from __future__ import annotations

import pytest

from mpicoll.p2p.host_lists import counted_list, hostfile, slurm_list


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ("", ""),
        ("login", "login"),
        ("node3", "node3"),
        ("node01 node02 node03 node07", "node[01-03,07]"),
        ("node8 node9 node10", "node[8-10]"),
        ("node08 node09 node10", "node[08-10]"),
        ("node099 node100", "node[099-100]"),
        ("n1 n01 n2", "n[1-2,01]"),
        ("r1-n1 r1-n2 r2-n1", "r1-n[1-2],r2-n1"),
        ("n1x n2x n2", "n[1-2]x,n2"),
        ("b2 a1 b1", "b[1-2],a1"),
        ("n1 n1", "n1"),
    ],
)
def test_slurm_joins_numbers_to_ranges(hosts: str, text: str) -> None:
    assert slurm_list(hosts.split()) == text


def test_launchers_get_the_ranks_of_each_host() -> None:
    assert counted_list({"a": 2, "b": 1}) == "a:2,b:1"
    assert hostfile({"a": 2, "b": 1}) == "a\na\nb\n"
