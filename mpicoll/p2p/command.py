"""The command ``mpicoll.p2p``: every pair of ranks, and why some are slow.

Exit status 0: every message arrived intact; 1: some did not, or the run failed; 2: bad usage;
3: a pair hung; 143: told to end, with what was measured until then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from mpicoll.bench import cli, render
from mpicoll.bench.record import Record
from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, UnknownName
from mpicoll.interfaces import DIRECT, IPC, STAGED, TRANSPORTS
from mpicoll.machine import gpu_links as gpulinks
from mpicoll.machine import gpus
from mpicoll.machine.links import Link, host_links, places
from mpicoll.machine.processes import Process, other_load, oversubscription, own_process
from mpicoll.measurement.description import describe, details
from mpicoll.measurement.ping_pong import Settings
from mpicoll.p2p import fan_out as fanout
from mpicoll.p2p import heatmap
from mpicoll.p2p.matrix import print_pairs
from mpicoll.p2p.outliers import class_lines, mark, outlier_lines, rank_lines
from mpicoll.p2p.record import Setting, fit_records, pair_records
from mpicoll.p2p.survey import Survey, wrongs
from mpicoll.records.journal import SCHEMA, run_line
from mpicoll.text.files import write_whole
from mpicoll.text.names import split_names, with_all
from mpicoll.text.sizes import bytes_text, parse_size

_MOST_LINES = 24
_ENDED = 128 + signal.SIGTERM
SIZES = (8, 65536, 1 << 20, 4 << 20)

_HELP = """Measure latency and bandwidth of every pair of ranks, and name those that stand out.

Pairs are measured one at a time. Sizes are the bytes of one message; the smallest tells the
latency, the others bandwidth, one way and both ways at once. The matrices show the largest.
"""
_FILE = click.Path(dir_okay=False, path_type=Path)
_PARAMETERS: list[click.Parameter] = [
    cli.option("--backends", "--backend", callback=cli.named, metavar="A,B",
               help="mpi4py, torch, or both (default)."),
    cli.option(
        "--transports", "--transport", callback=cli.named, metavar="A,B|all",
        help="point-to-point, symmetric, cma, ipc, ...; by default all that the ranks have.",
    ),
    cli.option("--sizes", callback=cli.named, metavar="8,64K,4M",
               help="Bytes of a message (default 8,64K,1M,4M)."),
    cli.option(
        "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", shown=True,
        help="Where the buffers are: in the host's memory, or each on its rank's GPU.",
    ),
    cli.option(
        "--time", "--budget", "budget", type=click.FloatRange(0, min_open=True), default=30.0,
        shown=True, help="Seconds of measuring; every pair is visited three times at least.",
    ),
    cli.option(
        "-J", "-o", "--output", type=_FILE, metavar="FILE",
        help="Write JSON lines there when all is measured: pairs, fits.",
    ),
    cli.option("--plot", type=_FILE, metavar="FILE.png", help="Draw heat maps there."),
    cli.option("--format", "layout", type=click.Choice(["table", "csv", "jsonl"]),
               default="table", shown=True),
    cli.option("--dry-run", "dry", is_flag=True,
               help="Print what joins the ranks and what would be measured."),
    cli.option("--seed", type=int, default=0, shown=True, help="Of the order of the visits."),
    cli.option(
        "-T", "--timeout", type=click.FloatRange(0), default=60.0, shown=True,
        help="Seconds after which a pair counts as hung; 0 waits for ever.",
    ),
    cli.option("--interface", metavar="NAME",
               help="Network interface of torch.distributed (loopback on one host)."),
    cli.ranks_per_node(),
]  # fmt: skip


@dataclass(frozen=True)
class Options:
    """The command line, checked; no `transports` are all that there are."""

    backends: tuple[str, ...]
    transports: tuple[str, ...]
    sizes: tuple[int, ...]
    device: str
    budget: float
    output: Path | None
    plot: Path | None
    layout: str
    seed: int
    timeout: float
    interface: str | None
    dry: bool


def start(worlds: cli.Worlds) -> NoReturn:
    """Run the command over these backends and leave with its exit status."""
    command = click.Command("p2p", callback=lambda **given: parse(given, worlds), help=_HELP)
    command.params += _PARAMETERS
    cli.run_command(command, lambda options: run(options, worlds))


def parse(given: dict[str, Any], worlds: cli.Worlds) -> Options:
    """Check the command line on its own; every process comes to the same result.

    Raises:
        ArgumentError: a value cannot be meant.
    """
    sizes = tuple(map(parse_size, split_names(given["sizes"]))) if given["sizes"] else SIZES
    if not sizes or min(sizes) < 1:
        raise ArgumentError("a message between two ranks has at least one byte: see --sizes")
    transports = with_all(split_names(given["transports"] or ""), TRANSPORTS)
    for name in transports:
        if name not in TRANSPORTS:
            raise UnknownName("transport", name, TRANSPORTS)
    return Options(
        cli.backends(given["backends"], worlds), transports, tuple(sorted(set(sizes))),
        given["device"], given["budget"], given["output"], given["plot"], given["layout"],
        given["seed"], given["timeout"], given["interface"], given["dry"],
    )  # fmt: skip


# -- the run ------------------------------------------------------------------------------


def run(options: Options, makers: cli.Worlds) -> int:
    """Measure every pair, then print, write and draw on rank 0; return the exit status."""
    watchdog = Watchdog(options.timeout)
    worlds, remarks = cli.launch(options.backends, options.interface, makers, watchdog)
    ways: dict[str, dict[str, str]] = {}
    if options.device == "cuda":
        worlds, ways = cli.with_gpus(worlds, remarks)
    everyone = next(iter(worlds.values()))
    known = _ways(worlds, ways)
    _refuse(options, worlds, everyone, known)
    processes = everyone.exchange(own_process())
    oversubscribed = oversubscription(everyone.nodes, processes)
    remarks += other_load(everyone.nodes, processes)
    is_root = everyone.rank == 0
    for remark in remarks:
        _tell(is_root, f"warning: {remark}")
    setting = _setting(options, worlds, everyone, processes, oversubscribed)
    chosen_ways = options.transports or tuple(known)
    settings = Settings(options.sizes, chosen_ways, options.device, options.budget, options.seed)
    if options.dry:
        if is_root:
            print("\n".join(_announced(setting, settings)), flush=True)
        return 0
    survey = Survey(worlds, settings, watchdog)
    # A batch system that ends a job says so before: what was measured until then is worth a table.
    signal.signal(signal.SIGTERM, survey.end)
    _tell(is_root, f"{_title(setting)}: measuring for about {options.budget:g} s")
    found = survey.measure()
    pairs = pair_records(found, setting)
    mark(pairs)
    spreads = _fan_outs(options, setting, everyone, survey)
    failed = wrongs(found)
    if is_root:
        remarks += [*spreads.remarks, f"every pair was visited {survey.blocks} times"]
        run = setting.run | details(processes, settings)
        records = [run_line(run), *pairs, *fit_records(pairs, setting), *spreads.records]
        _publish(options, setting, records, [*failed, *remarks])
    everyone.exchange("printed")
    return _ENDED if survey.is_ended else int(bool(failed))


def _tell(is_root: bool, text: str) -> None:
    if is_root:
        print(text, file=sys.stderr, flush=True)


def _ways(worlds: dict[str, Collectives], on_gpu: dict[str, dict[str, str]]) -> list[str]:
    """Return the transports that some backend has: those of GPU arrays, where these are given."""
    every = [
        [name for name, why in on_gpu[backend].items() if not why] if on_gpu else world.transports
        for backend, world in worlds.items()
    ]
    return list(dict.fromkeys(name for each in every for name in each))


def _refuse(
    options: Options, worlds: dict[str, Collectives], everyone: Collectives, known: Sequence[str]
) -> None:
    """Raise what is_root against this run on any rank, on all of them.

    Raises:
        ArgumentError: too few ranks, no GPU, or a file that cannot be written.
    """
    own = _complaint(options, worlds, everyone, known)
    for rank, text in enumerate(everyone.exchange(own)):
        if text:
            raise ArgumentError(text if everyone.size == 1 else f"rank {rank}: {text}")


def _complaint(
    options: Options, worlds: dict[str, Collectives], everyone: Collectives, known: Sequence[str]
) -> str | None:
    if everyone.size < 2:
        return "a pair needs two ranks: start it with mpirun -n 2 or more"
    if text := _impassable(options, worlds, known):
        return text
    if everyone.rank:
        return None
    if options.plot and (text := heatmap.complaint(options.plot)):
        return text
    unwritable = (_unwritable(path) for path in (options.output, options.plot) if path)
    return next(filter(None, unwritable), None)


def _impassable(
    options: Options, worlds: dict[str, Collectives], known: Sequence[str]
) -> str | None:
    """Return why a transport that was asked for joins no ranks here, None if all join some."""
    for name in options.transports:
        if name in known:
            continue
        if options.device == "cuda" or name in (IPC, DIRECT, STAGED):
            return f"no {name} transport for these buffers: there is {', '.join(known)}"
        transport = next(iter(worlds.values())).transport
        why = transport.shared.no_cma if transport.shared else transport.unshared
        return f"no {name} transport: {why}"
    return None


def _unwritable(path: Path) -> str | None:
    """Return why a file cannot be made, None if it can."""
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"{path} cannot be written: {folder} is not a folder"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{path} cannot be written: no permission to write in {folder}"
    return None


def _setting(
    options: Options, worlds: dict[str, Collectives], everyone: Collectives,
    processes: list[Process], oversubscribed: list[str],
) -> Setting:  # fmt: skip
    """Return where this runs, and what joins its ranks."""
    hosts = [each.host for each in processes]
    numbers: list[str | None] = [None] * everyone.size
    if options.device == "cpu":
        links = host_links(everyone.nodes, everyone.exchange(places()))
    else:
        numbers = everyone.exchange(str(gpus.index(worlds)))
        own = gpulinks.gpu_links(
            everyone.nodes, everyone.rank, everyone.exchange(gpus.identity(worlds))
        )
        links = _merged(everyone.exchange(own))
    described = describe(options.seed, worlds, processes, oversubscribed)
    return Setting(described, worlds, options.device, hosts, numbers, links)


def _announced(setting: Setting, settings: Settings) -> list[str]:
    """Return what joins which ranks, and what is measured between them."""
    classes: dict[Link, list[str]] = {}
    for (low, high), link in sorted(setting.links.items()):
        classes.setdefault(link, []).append(f"{low}-{high}")
    return [
        _title(setting),
        *(f"{link.name}: {' '.join(pairs)}" + (f" ({link.detail})" if link.detail else "")
          for link, pairs in classes.items()),
        f"over {', '.join(settings.transports)}; latency of {bytes_text(settings.sizes[0])}, "
        f"bandwidth of {', '.join(map(bytes_text, settings.large))}; about {settings.budget:g} s",
    ]  # fmt: skip


def _merged(parts: Sequence[dict[tuple[int, int], Link]]) -> dict[tuple[int, int], Link]:
    return {pair: link for part in parts for pair, link in part.items()}


def _title(setting: Setting) -> str:
    """Return one line on what is measured, for people and plots."""
    first = next(iter(setting.worlds.values()))
    libraries = ", ".join(" ".join(each.library.split()) for each in setting.worlds.values())
    nodes = len(first.nodes)
    memory = "GPU" if setting.device == "cuda" else "host"
    places = f"{nodes} nodes" if nodes > 1 else setting.hosts[0]
    return f"{first.size} ranks on {places}, {memory} buffers, {libraries}"


@dataclass
class _FanOuts:
    """What came of copies to several GPUs at once, and what to say of them."""

    records: list[Record]
    remarks: list[str]


def _fan_outs(
    options: Options, setting: Setting, everyone: Collectives, survey: Survey
) -> _FanOuts:
    """Measure each rank's copies to all GPUs that it sees, one rank after the other."""
    if options.device != "cuda":
        return _FanOuts([], [])
    if "torch" not in setting.worlds:
        return _FanOuts([], ["no copies to several GPUs at once: they need torch"])
    own: list[fanout.Spread] = []
    for rank in range(everyone.size):
        if rank == everyone.rank:
            own = fanout.fan_out(fanout.CudaCopies())
        survey.assemble()
    records, remarks = [], []
    for rank, spreads in enumerate(everyone.exchange(own)):
        common = setting.common("torch", "streams")
        records += [
            {"schema": SCHEMA, "kind": "fan_out", **common, "source": rank, "peers": each.peers,
             "bytes": each.nbytes, "time_us": each.time_us, "GBps": each.GBps}
            for each in spreads
        ]  # fmt: skip
        remarks += [fanout.line(each, spreads[0], rank) for each in spreads[1:]]
        if not spreads:
            remarks.append(f"rank {rank} sees one GPU: no copies to several at once from it")
    return _FanOuts(records, remarks)


# -- what comes of it -----------------------------------------------------------------------


def _publish(
    options: Options, setting: Setting, records: Sequence[Record], remarks: Sequence[str]
) -> None:
    pairs, fits = ([each for each in records if each["kind"] == kind] for kind in ("pair", "fit"))
    if options.layout == "table":
        print_pairs(pairs, fits, sys.stdout)
    elif options.layout == "csv":
        render.comma_separated([_without_lists(each) for each in pairs], sys.stdout)
    else:
        render.jsonl(records, sys.stdout)
    # What a program reads must not be followed by what only people read.
    stream = sys.stdout if options.layout == "table" else sys.stderr
    for text in [*_findings(pairs), *_refusals(pairs), *remarks]:
        print(f"# {text}", file=stream)
    stream.flush()
    if options.output:
        text = "".join(json.dumps(each) + "\n" for each in records)
        write_whole(options.output, lambda fresh: fresh.write_text(text))
    if options.plot:
        nodes = next(iter(setting.worlds.values())).nodes
        title = f"{_title(setting)}\n{time.strftime('%Y-%m-%d')}, medians"
        heatmap.draw(pairs, nodes, title, options.plot)


def _without_lists(record: Record) -> Record:
    return {key: cell for key, cell in record.items() if key != "visits_us"}


def _findings(pairs: Sequence[Record]) -> list[str]:
    """Return what stands out, in sentences."""
    names = outlier_lines(pairs)
    more = [f"and {len(names) - _MOST_LINES} more: see --output"] * (len(names) > _MOST_LINES)
    found = [*class_lines(pairs), *rank_lines(pairs), *names[:_MOST_LINES], *more]
    return found or ["no pair stands out from its class, and no class from the others"]


def _refusals(pairs: Sequence[Record]) -> list[str]:
    reasons: dict[tuple[str, str, str], set[tuple[int, int]]] = {}
    for each in pairs:
        if each["message"] and not each["time_us"]:
            key = each["backend"], each["transport"], each["message"]
            ends = sorted((each["source"], each["target"]))
            reasons.setdefault(key, set()).add((ends[0], ends[1]))
    return [
        f"refused, {len(ends)} pairs ({backend}, {transport}): {message}"
        for (backend, transport, message), ends in reasons.items()
    ]
