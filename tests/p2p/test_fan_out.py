"""Copies to several GPUs at once, on a fake device."""

from __future__ import annotations

import math

import pytest

from mpicoll.p2p.fan_out import fan_out, spread_line


class Wire:
    """A fake device whose copies share wires, each of one byte per nanosecond."""

    nbytes = 1000

    def __init__(self, peers: int, wires: int) -> None:
        self.peers, self.wires = peers, wires
        self.clock = self.ends = 0
        self.log: list[int] = []

    def start(self, count: int) -> None:
        self.log.append(count)
        self.ends = self.clock + self.nbytes * math.ceil(count / self.wires)

    def wait(self) -> None:
        self.clock = self.ends


@pytest.mark.parametrize(("wires", "gain"), [(1, 1), (3, 3)])
def test_the_bandwidth_of_all_shows_shared_wires(wires: int, gain: int) -> None:
    device = Wire(3, wires)
    spreads = fan_out(device, repeats=2, now=lambda: device.clock)
    assert [spread.peers for spread in spreads] == [1, 2, 3]
    assert device.log == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert spreads[0].GBps == pytest.approx(1)
    assert spreads[-1].GBps == pytest.approx(gain)
    assert f"{gain} times one copy" in spread_line(spreads[-1], spreads[0], 5)


def test_no_peers_no_fan_out() -> None:
    assert fan_out(Wire(0, 1), now=lambda: 0) == []
