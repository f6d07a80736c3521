"""Pairs of ranks: fits, classes, outliers, matrices, plots, and whole runs."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_nvml import FOUR_GPUS, pair
from hypothesis import assume, given
from hypothesis import strategies as some
from launcher import QUIRKS, ROOT, mpirun, python, ranks
from rich.console import Console

from mpicoll.errors import ArgumentError
from mpicoll.machine.gpu_links import gpu_link
from mpicoll.machine.links import SELF, LinkClass
from mpicoll.measurement.checking import Wrong, compare
from mpicoll.measurement.huge_pages import huge_pages
from mpicoll.measurement.ping_pong import (
    BOTH_WAYS,
    COPY,
    LATENCY,
    ONE_WAY,
    PairCase,
    PairFindings,
    PairSamples,
    pattern,
)
from mpicoll.p2p import heatmap, matrix
from mpicoll.p2p.fan_out import fan_out, spread_line
from mpicoll.p2p.options import parse
from mpicoll.p2p.outliers import class_lines, mark, outlier_lines, rank_lines
from mpicoll.p2p.record import Context, fit_records, pair_records
from mpicoll.p2p.survey import wrongs
from mpicoll.records.lines import FitRecord, PairRecord, Run, RunRecord
from mpicoll.records.reading import load, only

needs_mpi = pytest.mark.skipif(mpirun() is None, reason="no mpirun here")
SIZES = (8, 65536, 1 << 20)


# -- outliers -----------------------------------------------------------------------------


def finding(us: float, visits: int = 4) -> PairSamples:
    """Return samples within 2 per cent of a time."""
    return PairSamples(1, [[us * (0.98 + 0.01 * n) for n in range(4)] for _ in range(visits)], True)


def context(size: int, given: dict[tuple[int, int], LinkClass], device: str = "cpu") -> Context:
    world: Any = SimpleNamespace(size=size, library="a library", nodes=(tuple(range(size)),))
    gpus = [str(rank) if device == "cuda" else None for rank in range(size)]
    return Context(Run(), {"mpi4py": world}, device, ["host"] * size, gpus, given)


def findings(size: int, time: Callable[[int, int, int], float], visits: int = 4) -> PairFindings:
    """Return all cases of `size` ranks; n bytes from a to b take ``time(a, b, n)``."""
    found = {}
    for a in range(size):
        found[PairCase("mpi4py", SELF, COPY, a, a, SIZES[-1])] = finding(20.0, visits)
        for b in range(size):
            if a < b:
                found[PairCase("mpi4py", "symmetric", LATENCY, a, b, 8)] = finding(
                    time(a, b, 8), visits
                )
            for nbytes in SIZES[1:] if a != b else ():
                both = time(a, b, nbytes)
                found[PairCase("mpi4py", "symmetric", ONE_WAY, a, b, nbytes)] = finding(
                    both, visits
                )
                if a < b:
                    case = PairCase("mpi4py", "symmetric", BOTH_WAYS, a, b, nbytes)
                    found[case] = finding(2 * both, visits)
    return found


def alike(size: int, name: str = "same node") -> dict[tuple[int, int], LinkClass]:
    return {(a, b): LinkClass(name) for b in range(size) for a in range(b)}


def records(
    size: int, found: dict[PairCase, PairSamples], joined: Any = None, device: str = "cpu"
) -> Any:
    made = pair_records(found, context(size, joined or alike(size), device))
    mark(made)
    return made


def usual(a: int, b: int, nbytes: int) -> float:
    return 1 + nbytes / 1e4 + 0.03 * ((3 * a + b) % 3)


def test_pairs_that_are_alike_are_no_outliers() -> None:
    made = records(6, findings(6, usual))
    assert outlier_lines(made) == [] and rank_lines(made) == [] and class_lines(made) == []


@given(some.integers(0, 5), some.integers(0, 5), some.floats(2, 50), some.booleans())
def test_an_outlier_is_named_and_only_it(low: int, high: int, factor: float, fast: bool) -> None:
    assume(low != high)
    factor = 1 / factor if fast else factor

    def time(a: int, b: int, nbytes: int) -> float:
        odd = (a, b, nbytes) == (low, high, 1 << 20)
        return usual(a, b, nbytes) * (factor if odd else 1)

    made = [each for each in records(6, findings(6, time)) if each.quantity == ONE_WAY]
    odd = [(each.source, each.target, each.bytes) for each in made if each.outlier]
    assert odd == [(low, high, 1 << 20)]
    (line,) = outlier_lines(made)
    assert f"rank {low} -> rank {high} moves" in line and "mpi4py symmetric, one way, 1M" in line
    assert line.endswith("times faster" if fast else "times slower")


def test_a_sentence_says_ratio_and_sizes() -> None:
    slow = records(4, findings(4, lambda a, b, n: (1 + n / 1e4) * (12 if (a, b) == (0, 2) else 1)))
    lines = outlier_lines(slow)
    assert len(lines) == 3
    assert any("latency, 8 B: rank 0 <-> rank 2 takes 11.9 us" in each for each in lines)
    one_way = next(each for each in lines if "one way" in each)
    assert "12 times slower" in one_way and "(also at " in one_way


def test_noise_of_one_visit_names_nobody() -> None:
    found = findings(4, usual)
    odd = found[PairCase("mpi4py", "symmetric", ONE_WAY, 0, 2, 1 << 20)]
    odd.visits = [[900.0] * 4, [900.0] * 4, [901.0] * 4, [106.0] * 4]
    assert outlier_lines(records(4, found)) == []
    odd.visits[-1] = [900.0] * 4
    assert len(outlier_lines(records(4, found))) == 1


def test_one_visit_is_no_proof() -> None:
    slow = findings(4, lambda a, b, n: 12.0 if (a, b) == (0, 2) else 1.0, visits=1)
    assert outlier_lines(records(4, slow)) == []


def test_a_rank_that_is_slow_to_all_is_named() -> None:
    slow = records(6, findings(6, lambda a, b, n: (1 + n / 1e4) * (3 if a == 2 and n > 8 else 1)))
    lines = rank_lines(slow)
    assert len(lines) == 2
    assert all("rank 2 stands out to every other rank" in each for each in lines)


def test_classes_answer_why() -> None:
    """GPU 0 to GPU 2 twelve times slower than to GPU 1: the sockets' bus, not NVLink."""
    joined = {
        (a, b): gpu_link(FOUR_GPUS, f"GPU-{a}", f"GPU-{b}") for b in range(4) for a in range(b)
    }
    near = (pair(0, 1), pair(2, 3))
    found = findings(4, lambda a, b, n: (2 + n / 25e3) * (1 if pair(a, b) in near else 12))
    made = records(4, found, joined, "cuda")
    assert outlier_lines(made) == []
    (line,) = [each for each in class_lines(made) if "one way" in each]
    assert "PCIe across sockets (SYS) moves" in line and "NVLink x2 moves" in line
    assert "12 times slower" in line and "(as rank 0 (GPU 0) -> rank 2 (GPU 2))" in line
    assert "; 2 of 8: no peer access" in line


# -- records ------------------------------------------------------------------------------


def test_records_and_fits_of_each_class() -> None:
    joined = alike(4) | {(0, 3): LinkClass("network")}
    found = findings(4, lambda a, b, n: 2 + n / 1e4 if {a, b} != {0, 3} else 30 + n / 1e3)
    made = records(4, found, joined)
    fits = {each.link: each for each in fit_records(made, context(4, joined))}
    assert set(fits) == {"same node", "network"}
    for name, alpha, beta in (("same node", 2, 0.1), ("network", 30, 1)):
        assert fits[name].alpha_us == pytest.approx(alpha, rel=0.05)
        assert fits[name].beta_ns_per_byte == pytest.approx(beta, rel=0.05)
    assert fits["network"].pairs == 2 and fits["network"].sizes == [8, 1 << 20]


@pytest.mark.parametrize("quantity", [ONE_WAY, BOTH_WAYS])
def test_bandwidth_counts_what_moves(quantity: str) -> None:
    found = {PairCase("mpi4py", "cma", quantity, 0, 1, 4000): PairSamples(1, [[2.0]])}
    (made,) = records(2, found)
    assert made.GBps == pytest.approx(2.0 if quantity == ONE_WAY else 4.0)
    assert made.correct is None


@given(some.integers(0, 40), some.integers(0, 40), some.integers(1, 1000))
def test_patterns_tell_sender_and_place(own: int, other: int, count: int) -> None:
    assume(own != other)
    good = pattern(own, count)
    assert (good != 255).all()
    assert (good != pattern(other, count)).all()
    assert count == 1 or (good[1:] != good[:-1]).all()
    assert compare(0, np.full(count, 255, "uint8"), good) is not None


def test_wrong_bytes_are_said_once_for_a_pair() -> None:
    wrong = Wrong(1, 4, 0, 7, 255, "message")
    found = findings(2, usual)
    for each in found.values():
        each.wrong = wrong
    lines = wrongs({case: each for case, each in found.items() if case.quantity != COPY})
    assert lines == [f"WRONG between ranks 0 and 1 (mpi4py, symmetric): {wrong}"]
    assert all(each.correct is False for each in records(2, found) if each.quantity != COPY)


# -- matrices -----------------------------------------------------------------------------


def printed(size: int, encoding: str = "utf-8") -> str:
    made = records(size, findings(size, lambda a, b, n: usual(a, b, n) * (9 if a == 1 < n else 1)))
    raw = BytesIO()
    stream = TextIOWrapper(raw, encoding)
    matrix.print_pairs(made, fit_records(made, context(size, alike(size))), stream)
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("size", [2, 4, 9, 16])
def test_matrices_fit_the_terminal(size: int, encoding: str) -> None:
    text = printed(size, encoding)
    assert "\x1b" not in text and "\N{HORIZONTAL ELLIPSIS}" not in text and "..." not in text
    assert max(map(len, text.splitlines())) <= 120
    for name in ("latency of 8 B, us", "one way of 1M, GB/s", "both ways of 1M, GB/s"):
        assert text.count(name) == 1


def test_cells_are_where_they_belong() -> None:
    made = records(3, findings(3, lambda a, b, n: n / (1000 * (10 * a + b + 1))))
    (_, latency), (_, one_way), (_, both) = matrix.matrices(made, "mpi4py", "symmetric")
    assert latency[2, 0] is latency[0, 2]
    assert one_way[2, 1].GBps == pytest.approx(22, rel=0.02)
    assert one_way[1, 2].GBps == pytest.approx(13, rel=0.02)
    assert one_way[1, 1].quantity == COPY
    assert set(both) == {(a, b) for a in range(3) for b in range(3) if a != b}


def test_many_ranks_are_summed_up() -> None:
    text = printed(17)
    assert "--plot" in text and "latency of 8 B" not in text
    assert "same node" in text


def test_outliers_are_marked_and_red() -> None:
    slow = records(4, findings(4, lambda a, b, n: (1 + n / 1e4) * (12 if (a, b) == (0, 2) else 1)))
    out = StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system="standard")
    matrix.report(slow, [], console, unicode=True)
    assert "\x1b[1;31m" in out.getvalue()
    one_way = dict(matrix.matrices(slow, "mpi4py", "symmetric"))["one way of 1M, GB/s"]
    marked = {ends for ends, each in one_way.items() if each.outlier}
    assert marked == {(0, 2)}


# -- plots and memory -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 17])
def test_a_plot_shows_its_cells(tmp_path: Path, size: int) -> None:
    image = pytest.importorskip("matplotlib.image")
    file = tmp_path / "pairs.png"
    made = records(size, findings(size, usual))
    heatmap.draw(made, [range(size // 2), range(size // 2, size)], "title", file)
    seen = image.imread(file)
    assert min(seen.shape[:2]) > 200
    assert len(np.unique(seen.reshape(-1, seen.shape[2]), axis=0)) > 100
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(("name", "fits"), [("a.png", True), ("a.SVG", True), ("a.txt", False)])
def test_the_suffix_of_a_plot_is_checked(name: str, fits: bool) -> None:
    pytest.importorskip("matplotlib")
    text = heatmap.complaint(Path(name))
    assert text is None if fits else text is not None and "ends in .png" in text


def test_a_plot_without_matplotlib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heatmap, "find_spec", lambda name: None)
    assert "mpicoll[plots]" in (heatmap.complaint(Path("a.png")) or "")


@pytest.mark.parametrize("nbytes", [1, 4096, 5 << 20])
def test_buffers_begin_a_huge_page(nbytes: int) -> None:
    memory = huge_pages(nbytes)
    whole = np.frombuffer(memory, "uint8")
    assert whole.size == nbytes and whole.ctypes.data % (2 << 20) == 0
    whole[-1] = 7
    assert memory[nbytes - 1] == 7


# -- several copies at once -----------------------------------------------------------------


class Wire:
    """A stand-in for a device: copies share wires, each of one byte per nanosecond."""

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
def test_fan_out_tells_shared_wires(wires: int, gain: int) -> None:
    device = Wire(3, wires)
    found = fan_out(device, repeats=2, now=lambda: device.clock)
    assert [each.peers for each in found] == [1, 2, 3]
    assert device.log == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert found[0].GBps == pytest.approx(1)
    assert found[-1].GBps == pytest.approx(gain)
    assert f"{gain} times one copy" in spread_line(found[-1], found[0], 5)


def test_no_peers_no_fan_out() -> None:
    assert fan_out(Wire(0, 1), now=lambda: 0) == []


# -- flags --------------------------------------------------------------------------------


def flags(**given: Any) -> Any:
    plain = dict.fromkeys(("backends", "transports", "sizes", "output", "plot", "interface")) | {
        "device": "cpu", "budget": 30.0, "layout": "table", "seed": 0, "timeout": 60.0,
        "dry": False,
    }  # fmt: skip
    worlds: Any = {"mpi4py": None, "torch": None}
    return parse(plain | given, worlds)


def test_sizes_are_sorted_and_unique() -> None:
    assert flags(sizes="4K,8,4096").sizes == (8, 4096)


@pytest.mark.parametrize(
    "given", [{"sizes": "0,8"}, {"sizes": "ten"}, {"transports": "smymetric"}, {"backends": "x"}],
    ids=str,
)  # fmt: skip
def test_bad_flags_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        flags(**given)


# -- whole runs ---------------------------------------------------------------------------

P2P = ("-m", "mpicoll.p2p", "-T", "60")
TINY = ("--sizes", "8,4K,64K", "--budget", "1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One run of three ranks on two stated nodes, over both backends and all transports."""
    if mpirun() is None:
        pytest.skip("no mpirun here")
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("pairs")
    done = ranks(
        3, *P2P, *TINY, "-o", str(folder / "pairs.jsonl"), "--plot", str(folder / "pairs.png"),
        environment={"MPICOLL_RANKS_PER_NODE": "2"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    described, *records = load(folder / "pairs.jsonl")
    assert isinstance(described, RunRecord)
    return SimpleNamespace(
        text=done.stdout, folder=folder, run=described.run, records=records,
        pairs=only(PairRecord, records), fits=only(FitRecord, records),
    )  # fmt: skip


@pytest.mark.parametrize("backend", ["mpi4py", "torch"])
@pytest.mark.parametrize("transport", ["point-to-point", "symmetric", "cma"])
def test_every_pair_is_measured_over_each_transport(run: Any, backend: str, transport: str) -> None:
    own = [
        each for each in run.pairs if (each.backend, each.transport) == (backend, transport)
    ]  # fmt: skip
    assert len(own) == 3 * (1 + 2 * 3)
    refused = [each for each in own if each.message]
    measured = [each for each in own if each.time_us]
    if transport == "cma" and not measured:
        pytest.skip("this kernel refuses cross-memory attach")
    assert len(refused) + len(measured) == len(own)
    assert all(each.correct is True and each.samples >= 3 for each in measured)
    assert all(each.GBps > 0 for each in measured if each.quantity != LATENCY)
    far = [each for each in own if each.link == "network"]
    assert {frozenset((each.source, each.target)) for each in far} == {pair(0, 2), pair(1, 2)}
    everywhere = transport == "point-to-point"
    assert {each.link == "network" for each in refused} == (set() if everywhere else {True})


def test_a_run_has_its_own_copies_and_fits(run: Any) -> None:
    copies = [each for each in run.pairs if each.quantity == COPY]
    assert {(each.source, each.backend) for each in copies} == {
        (rank, name) for rank in range(3) for name in ("mpi4py", "torch")
    }
    fits = run.fits
    assert {(each.backend, each.link) for each in fits} >= {
        ("mpi4py", "network"), ("torch", "network"),
    }  # fmt: skip
    # A pair tells one latency, and two sizes in either direction.
    pairs = {"network": 2}
    assert all(each.points == 5 * pairs.get(each.link, 1) for each in fits)
    assert all(each.alpha_us >= 0 and each.error >= 0 for each in fits)
    assert all(each.run.versions["numpy"] for each in run.records)


def test_a_run_prints_and_draws(run: Any) -> None:
    assert run.text.count("one way of 64K, GB/s") >= 4
    assert "times" in run.text.split("# every pair was visited")[1]
    assert {each.name for each in run.folder.iterdir()} == {"pairs.jsonl", "pairs.png"}
    assert (run.folder / "pairs.png").stat().st_size > 20_000


@needs_mpi
def test_a_dry_run_tells_what_joins_the_ranks() -> None:
    done = ranks(3, *P2P, "--dry-run", "--backends", "mpi4py",
                 environment={"MPICOLL_RANKS_PER_NODE": "2"}, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "network: 0-2 1-2" in done.stdout and "latency of 8 B" in done.stdout


@needs_mpi
@pytest.mark.parametrize(
    ("count", "arguments", "text"),
    [
        (2, ("--transports", "symmetric"), "no symmetric transport: MPICOLL_SYMMETRIC"),
        (1, (), "two ranks"),
        (2, ("--device", "cuda", "--backends", "torch"), "no GPU"),
        (2, ("-o", "/nowhere/at/all.jsonl"), "is not a folder"),
    ],
    ids=str,
)
def test_bad_usage_is_said_once(count: int, arguments: tuple[str, ...], text: str) -> None:
    if "cuda" in arguments and pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is a GPU here")
    backends = () if "--backends" in arguments else ("--backends", "mpi4py")
    done = ranks(count, *P2P, *backends, *arguments, timeout=60,
                 environment={"MPICOLL_SYMMETRIC": "0"})  # fmt: skip
    assert done.returncode == 2, done.stdout
    assert done.stdout.count("Error:") == 1 and text in done.stdout


# A transport that loses the last byte of every message must not pass.
FAULTY = """
import sys
import mpicoll.p2p.survey as survey

class Faulty(survey.PingPong):
    def _message(self, root, nbytes):
        run, view = super()._message(root, nbytes), self.memory[nbytes - 1 : nbytes]
        plan, regions = self.plans.pop()
        def lossy():
            before = self.arrays.to_host(view).copy()
            run()
            if self.group.rank != root:
                self.arrays.from_host(view, before)

        methods = {"run": staticmethod(lossy), "free": plan.free}
        self.plans.append((type("Lossy", (), methods), regions))
        return lossy

survey.PingPong = Faulty
from mpicoll.p2p.command import main
from mpicoll.cli.worlds import BOTH
main(obj=BOTH)
"""


@needs_mpi
def test_wrong_bytes_fail_the_run(tmp_path: Path) -> None:
    script = tmp_path / "faulty.py"
    script.write_text(FAULTY)
    done = ranks(2, str(script), "--backends", "mpi4py", *TINY, timeout=60)
    assert done.returncode == 1, done.stdout
    assert "WRONG between ranks 0 and 1 (mpi4py, symmetric)" in done.stdout
    assert "got 255" in done.stdout


# Rank 0 waits before each large message to rank 2, and rank 1 before each small one to rank 3; all
# others wait for a millisecond, so that no noise of the machine widens what is usual.
SLOW = """
import time
import mpicoll.p2p.survey as survey

class Slow(survey.PingPong):
    def _message(self, root, nbytes):
        run = super()._message(root, nbytes)
        slow = (self.pair, nbytes) in (((0, 2), 4096), ((1, 3), 8)) and root == 0
        seconds = {seconds} if slow else 0.001

        def late():
            if self.group.rank == root:
                time.sleep(seconds)
            run()

        return late

survey.PingPong = Slow
from mpicoll.p2p.command import main
from mpicoll.cli.worlds import BOTH
main(obj=BOTH)
"""


@needs_mpi
def test_a_slow_pair_names_itself(tmp_path: Path) -> None:
    script, file = tmp_path / "slow.py", tmp_path / "pairs.jsonl"
    script.write_text(SLOW.format(seconds=0.1))
    done = ranks(4, str(script), "--backends", "mpi4py", "--transports", "symmetric",
                 "--sizes", "8,4K", "--budget", "1", "-o", str(file), timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stdout
    sentences = [each for each in done.stdout.splitlines() if "times slower" in each]
    assert any("one way, 4K: rank 0 -> rank 2 moves" in each for each in sentences), done.stdout
    assert any("latency, 8 B: rank 1 <-> rank 3 takes" in each for each in sentences), done.stdout
    times = {
        (each.quantity, each.source, each.target): each.time_us.min / 1000
        for each in only(PairRecord, load(file)) if each.time_us and each.time_us.min
    }  # fmt: skip
    # A message of 100 ms: half of it is half a round trip, and none of it comes back the other way.
    assert 100 <= times[ONE_WAY, 0, 2] < 150
    assert times[ONE_WAY, 2, 0] < 50
    assert 50 <= times[LATENCY, 1, 3] < 75


@needs_mpi
def test_a_pair_that_hangs_is_named(tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(SLOW.format(seconds=60))
    done = ranks(3, str(script), "--backends", "mpi4py", "--transports", "symmetric",
                 "--sizes", "8,4K", "--budget", "1", "-T", "2", timeout=60)  # fmt: skip
    assert done.returncode not in (0, 1, 2)
    assert "HUNG" in done.stdout and "ranks 0 and 2 (mpi4py, symmetric)" in done.stdout


@needs_mpi
def test_ranks_that_are_told_to_end_write_what_they_have(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    launcher = mpirun()
    assert launcher is not None
    process = subprocess.Popen(
        (launcher, "-n", "2", sys.executable, *P2P, "--backends", "mpi4py", "--sizes", "8,64K",
         "--time", "100", "-o", str(file)),
        cwd=ROOT, env={**os.environ, **QUIRKS}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        # The first line says that measuring begins.
        while "measuring for" not in process.stderr.readline():
            assert process.poll() is None
        for name in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (name / "cmdline").read_bytes().split(b"\0")
                if str(file).encode() in command and b"python" in command[0]:
                    os.kill(int(name.name), signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode != 0, said
    pairs = only(PairRecord, load(file))
    assert {(0, 1), (1, 0)} <= {(each.source, each.target) for each in pairs}


def test_torch_alone_needs_no_mpi() -> None:
    pytest.importorskip("torch")
    done = python("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "torchcoll.p2p",
                  *TINY, "--format", "csv", timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stdout
    head, *rows = [each for each in done.stdout.splitlines() if "," in each and each[0] in "s1"]
    assert head.startswith("schema,backend,") and rows
    assert all(each.startswith("1,torch,") for each in rows)
