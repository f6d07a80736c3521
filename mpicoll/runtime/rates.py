"""The cost of moving bytes among the ranks of a node, by which `auto` prices schedules.

The rates of the reference machine were fitted to measured schedules. Those of another machine
follow from what a probe reads there (`mpicoll.runtime.probe`) and reads on the reference machine.
"""

from __future__ import annotations

from math import inf, log2
from typing import NamedTuple

NEVER = 1 << 62
"""As many bytes as no message has."""


class Rates(NamedTuple):
    """Nanoseconds: per round waited, per instruction, per byte copied and folded.

    Attributes:
        fetch: per message that is fetched from another rank's private memory.
        clean: per byte read of another rank's input, more than for its own.
        dirty: per byte read of what another rank has just written, which lies in its cache.
        joined: of the time of a fold, what one takes that adds an operand to the fold before it.
    """

    wait: float
    step: float
    copy: float
    fold: float
    fetch: float = 0
    clean: float = 0
    dirty: float = 0
    joined: float = 1


class Fetched(NamedTuple):
    """From how many bytes of a vector or row CMA is the default.

    Attributes:
        rows: where every rank fetches rows of its own.
        others: where all fetch the same, one fetches for all, or what is fetched is folded.
        pair: as `rows` between two ranks; 0 where it is the same.
    """

    rows: int
    others: int
    pair: int = 0

    def own(self, size: int) -> int:
        """Where each of so many ranks fetches rows of its own."""
        return self.pair or self.rows if size == 2 else self.rows

    def scattered(self, size: int) -> int:
        """Where each of so many ranks fetches its row of the root's, or a part of it.

        Through slots the root copies all rows, else its own alone.
        """
        rows = self.own(size)
        if size == 2 and rows <= _UNCACHED:
            return min(rows, PARTED)
        return rows if rows < _UNCACHED else max(rows, 2 * _UNCACHED)

    @property
    def gathered(self) -> int:
        """Where every rank fetches the rows of all.

        Large ones are, as the caches do not hold slots beside so large results.
        """
        return min(self.others, max(self.rows, _GATHERED))


class Readings(NamedTuple):
    """The probe's readings in nanoseconds; None for those that it does not take.

    Attributes:
        copy: of a copy of `PROBED` bytes of a rank's own.
        fetch: of a read of another rank's private memory, whatever its size.
        fetched: of `PROBED` bytes of it.
        flag: of a round in which each rank raises a flag and waits for one.
        passed: of `PROBED` bytes that another rank has copied into shared memory, into one of two
            slots, as it was when the rates were fitted.
        windowed: the same through a window of slots, as large rows pass.
    """

    copy: float
    fetch: float | None = None
    fetched: float | None = None
    flag: float | None = None
    passed: float | None = None
    windowed: float | None = None

    def __str__(self) -> str:
        found = [f"copy {PROBED / self.copy:.2g} GB/s"]
        if self.flag and self.passed:
            found.insert(0, f"flag {self.flag:,.0f} ns")
            rate = f"{PROBED / (self.windowed or self.passed):.2g} GB/s"
            found.append(f"read of shared memory {rate}")
        if self.fetch and self.fetched:
            rate = f"{PROBED / self.fetched:.2g} GB/s"
            found.append(f"read of private memory {self.fetch:,.0f} ns and {rate}")
        return ", ".join(found)


class Costs(NamedTuple):
    """The rates of a group of ranks, and where they are from."""

    rates: Rates
    fetched: Fetched
    origin: str


_UNCACHED, _GATHERED = 2 << 20, 4 << 20
"""From how many bytes on caches do not hold a row, and the rows of all, beside their slots: then
what is fetched moves the fewest bytes from and to memory."""
PARTED = 1 << 20
"""From how many bytes on a root hands a part of a row to the only other rank, which fetches the
rest."""
PROBED = 128 * 1024
"""Bytes of the probe's larger messages."""

JOINED = 1 / 3
"""Where folds onto one target are done in one pass: a fold moves three vectors of its length, one
operand more a fourth."""

# Fitted to schedules that were measured on the reference machine, an Intel Xeon (Sapphire Rapids).
COMPILED = Rates(
    wait=120, step=15, copy=0.03, fold=0.04, fetch=700, clean=0.03, dirty=0.1, joined=JOINED
)
ALONE = Rates(wait=250, step=60, copy=0.025, fold=0.05)
OVERSUBSCRIBED = Rates(wait=2500, step=60, copy=0.05, fold=0.1, fetch=1000, joined=JOINED)
FETCHED = {
    COMPILED: Fetched(32 * 1024, 16 * 1024),
    ALONE: Fetched(32 << 20, 32 << 20),
    OVERSUBSCRIBED: Fetched(64 * 1024, 32 << 20),
}
"""Below 16 KiB two copies cost less than a system call, and rows that pass through many slots are
copied in less time than others. Ranks that share cores share a cache, too: what is folded, or read
by several, is best read there."""
ON_REFERENCE = {
    COMPILED: Readings(copy=3500, fetch=2130, fetched=5500, flag=195, passed=16_300),
    OVERSUBSCRIBED: Readings(copy=3750, fetch=3570, fetched=7400),
}
"""What the probe reads on the reference machine, over the compiled executor."""
_OF_WINDOWED = 0.8
"""What passes between two ranks through the window of a plan takes of the probe's time, beside what
is fetched: an alltoall of rows of 512 KiB takes 51 us and 54 where two L3 caches read 55 and 51."""
_LEAST, _MOST = -3, 4
"""Powers of two between which a machine's times are of the reference machine's."""
_FEWEST = 4096


def constants(*, compiled: bool, oversubscribed: bool) -> Costs:
    """Return the costs of the reference machine."""
    base = OVERSUBSCRIBED if oversubscribed else COMPILED if compiled else ALONE
    fetched = FETCHED[base]
    if oversubscribed and not compiled:
        fetched = FETCHED[ALONE]
    return Costs(base if compiled else base._replace(joined=1), fetched, "constants")


def costs_of(read: Readings, usual: Costs, *, oversubscribed: bool) -> Costs:
    """Return the costs of a machine from the probe's readings there.

    Each is the reference machine's times a power of two: readings that differ by less than a
    factor of 1.4, as those of one machine do, make the same choices.

    Args:
        usual: the constants, for what was not read, or cannot be.
    """
    base = OVERSUBSCRIBED if oversubscribed else COMPILED
    copies, fetch, fetched, flag, passed, _ = map(_times, read, ON_REFERENCE[base])
    # A rank that waits for one that has no core just now reads the scheduler, not the machine.
    waits = bool(read.flag) and flag < 2**_MOST and passed < 2**_MOST
    origin = str(read if waits else read._replace(flag=None, passed=None, windowed=None))
    if not waits:
        passed = 1.0
        if not oversubscribed:
            origin += "; waits were disturbed"
    copy = base.copy * copies
    rates = Rates(
        base.wait * flag if waits else usual.rates.wait,
        base.step * flag if waits else usual.rates.step,
        copy,
        base.fold * copies,
        base.fetch * fetch,
        max(0.0, (base.copy + base.clean) * fetched - copy),
        max(0.0, (base.copy + base.dirty) * passed - copy),
        usual.rates.joined,
    )
    more = _level(rates) / _level(base)
    rows, others = (_threshold(each, more) for each in FETCHED[base][:2])
    pair = 0
    if waits and read.fetch:
        rows = _level_of_rows(read)
        if read.windowed:
            pair = _level_of_rows(read._replace(windowed=_OF_WINDOWED * read.windowed))
    # What is folded is fetched into a buffer first, of which the probe reads nothing.
    others = NEVER if waits and fetched > passed else max(others, usual.fetched.others)
    return Costs(rates, Fetched(rows, others, pair), origin)


def _times(own: float | None, other: float | None) -> float:
    """Return the power of two that is the nearest to a ratio, 1 where nothing was read."""
    if not own or not other:
        return 1.0
    return float(2 ** min(_MOST, max(_LEAST, round(log2(own / other)))))


def _level(rates: Rates) -> float:
    """Return from how many bytes fetching costs less than copying twice."""
    saved = rates.copy + rates.dirty - rates.clean
    return (rates.wait + rates.fetch) / saved if saved > 0 else inf


def _threshold(nbytes: int, times: float) -> int:
    return NEVER if times == inf else max(_FEWEST, int(nbytes * 2 ** round(log2(times))))


def _level_of_rows(read: Readings) -> int:
    """Return from how many bytes a row costs less when it is fetched, to a power of two.

    By the readings themselves: where two rates are nearly the same, whether one is larger says
    little about the other costs, and that of a rate to a power of two says nothing. Twice as many,
    as hosts move cores: what a group does that began where they have two L3 caches takes up to 15 %
    longer through slots there, and where they have one, a quarter longer when it is fetched.
    """
    assert read.fetch and read.fetched and read.flag and read.passed
    passing = read.copy + (read.windowed or read.passed)
    saved = (passing - read.fetched) / PROBED
    level = 2 * (read.flag + read.fetch) / saved if saved > 0 else inf
    return _threshold(1, min(level, _UNCACHED) if read.fetched < 2 * passing else level)
