"""The interfaces and addresses of this host."""

from __future__ import annotations

import pytest

from mpicoll import LaunchError
from mpicoll.machine import network


def test_interfaces() -> None:
    assert network.interfaces()["lo"] == "127.0.0.1"
    assert network.interface_of("127.0.0.1") == "lo"
    assert network.interface_of("203.0.113.1") is None


def test_the_hosts_address_lies_on_the_way() -> None:
    assert network.host_address(toward="127.0.0.1") == "127.0.0.1"
    assert network.host_address()


def test_a_listener_listens_on_one_address() -> None:
    with network.listener("127.0.0.1", 0) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"
        with pytest.raises(LaunchError, match="free port"):
            network.listener("127.0.0.1", bound.getsockname()[1])
