"""The command: flags, the run, and its exit status.

0: every result was right; 1: some were wrong, or the run failed; 2: bad usage or a launch
that does not form one group; 3: a case hung.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import click

from mpicoll.bench import render
from mpicoll.bench.gpubound import copy_bandwidth
from mpicoll.bench.record import Record, records
from mpicoll.bench.resume import Ledger
from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, CollectiveError, UnknownName
from mpicoll.interfaces import TRANSPORTS
from mpicoll.machine.launchers import find_launch, is_first_process, is_terminal, singletons
from mpicoll.machine.nodes import RANKS_PER_NODE
from mpicoll.machine.processes import Process, other_load, oversubscription, own_process
from mpicoll.measurement import cases as choice
from mpicoll.measurement.cases import Group, Wanted
from mpicoll.measurement.description import describe, details
from mpicoll.measurement.measure import Bench, Settings
from mpicoll.notation.contract import collective
from mpicoll.records.journal import run_line
from mpicoll.text.names import split_names, swept_names, with_all
from mpicoll.text.sizes import parse_size, size_steps

Worlds = Mapping[str, Callable[[str | None], Collectives]]
"""For each backend what forms its group, given the network interface that was asked for."""

_BEGIN = time.monotonic()
_START_UP = 6.0
_GRACE = 1.5
_LEAST_PER_CASE = 0.05
_FORMATS = ("table", *render.LAYOUTS)
_TIMINGS = {"together": "together", "loop": "loop", "0": "loop", "1": "together"}
_ALIASES = {"mpi": "mpi4py", "mpicoll": "mpi4py", "gloo": "torch", "torchcoll": "torch"}


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    wanted: Wanted
    settings: Settings
    backends: tuple[str, ...]
    layout: str
    output: Path | None
    resume: bool
    timeout: float
    lists: bool
    dry: bool
    interface: str | None


def start(worlds: Worlds) -> NoReturn:
    """Run the benchmark over these backends and leave with its exit status."""
    command = click.Command("bench", callback=lambda **given: parse(given, worlds), help=_HELP)
    command.params += _PARAMETERS
    run_command(command, lambda options: run(options, worlds))


def run_command(command: click.Command, then: Callable[[Any], int]) -> NoReturn:
    """Parse the command line on every rank, go on with what its callback returned, and leave."""
    sys.excepthook = _fail
    if not is_first_process():
        command.get_help = lambda ctx: ""  # type: ignore[method-assign]
    command.context_settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    # Every process parses, and only one of them is_root: the launcher tells which.
    try:
        options = command.main(standalone_mode=False)
        status = options if isinstance(options, int) else then(options)
    except click.ClickException as error:
        status = _complain(error.format_message(), 2)
    except ArgumentError as error:
        status = _complain(str(error), 2)
    except (KeyboardInterrupt, click.Abort):
        _leave(130)
    sys.exit(status)


def _complain(text: str, status: int) -> int:
    if is_first_process():
        print(f"Error: {text}", file=sys.stderr, flush=True)
    else:
        # The launcher ends all ranks when one leaves so: let the first one speak.
        time.sleep(_GRACE)
    return status


def _fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report an unforeseen error, and end the job."""
    launch = find_launch()
    print(f"rank {launch.rank if launch else 0} failed on {os.uname().nodename}:", file=sys.stderr)
    traceback.print_exception(kind, error, trace)
    _leave(1)


def _leave(status: int) -> NoReturn:
    """End at once: others may wait for this rank, and the launcher must end them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


# -- the command line -------------------------------------------------------------------


_HELP = """Measure collectives: every backend, algorithm and size, side by side, and checked.

Without arguments: all collectives, both backends, a few algorithms and sizes, in under a
minute. COLLECTIVES are names in any spelling of the field: allreduce, all_reduce, bcast.

Sizes are total bytes as nccl-tests counts them; K, M and G are powers of 1024.
"""


def option(*names: str, **keywords: Any) -> click.Option:
    """Return an option of the command line; `shown`: its default stands in the help."""
    return click.Option(names, show_default=keywords.pop("shown", False), **keywords)


def named(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Return a list of names as it is, unless it is empty, as from a variable that is not set."""
    if value is not None and not split_names(value):
        raise click.BadParameter(f"{value!r} names nothing: leave it out for its default")
    return value


def _state_nodes(_context: click.Context, _option: click.Parameter, value: int | None) -> None:
    if value is not None:
        os.environ[RANKS_PER_NODE] = str(value)


def ranks_per_node() -> click.Option:
    """Return the flag that states the nodes, for every command that forms groups."""
    return option(
        "--ranks-per-node", type=click.IntRange(1), metavar="N", expose_value=False,
        callback=_state_nodes,
        help=f"So many ranks in a row are a node, whatever MPI believes ({RANKS_PER_NODE}).",
    )  # fmt: skip


_PARAMETERS: list[click.Parameter] = [
    click.Argument(["collectives"], nargs=-1, metavar="[COLLECTIVES]..."),
    option("--collectives", "--collective", "listed", callback=named, metavar="A,B",
           help="Which collectives."),
    option("--backends", "--backend", callback=named, metavar="A,B",
           help="mpi4py, torch, or both (default)."),
    option(
        "--algorithms", "--algorithm", callback=named, metavar="A,B|all",
        help="Names as --list prints them, or all; auto, mpich_default, openmpi_default; sweeps: "
        "'knomial(radix=2:8)', 'chain(segments=1:64:*2)', 'bruck(radix=2|4)'. Native calls always "
        "run as the baseline.",
    ),
    option(
        "--transports", "--transport", callback=named, metavar="A,B|all",
        help="Run schedules over each of these: point-to-point, symmetric (shared memory), cma "
        "(and cross-memory attach). By default over the fastest that reaches a rank.",
    ),
    option("-b", "--minbytes", metavar="SIZE", help="Smallest size."),
    option("-e", "--maxbytes", metavar="SIZE", help="Largest size."),
    option("-f", "--stepfactor", type=float, help="Multiply sizes by this (default 2)."),
    option("-i", "--stepbytes", metavar="SIZE", help="Add this between sizes instead."),
    option("--sizes", callback=named, metavar="4,1K,1M", help="An explicit list of sizes."),
    option(
        "-n", "--iters", type=click.IntRange(1),
        help="Samples of each case, of a few calls if these are short (adaptive when absent).",
    ),
    option(
        "-w", "--warmup-iters", type=click.IntRange(0), default=2, shown=True,
        help="Calls before the first sample.",
    ),
    option(
        "-c", "--check", type=click.IntRange(0), default=1, shown=True,
        help="Check this many times before timing, and once after; 0 checks nothing.",
    ),
    option("-o", "--op", callback=named, default="sum", shown=True, metavar="A,B|all",
           help="Operators."),
    option("-d", "--datatype", callback=named, default="float32", shown=True, metavar="A,B|all",
           help="dtypes."),
    option("-r", "--root", callback=named, default="0", shown=True, metavar="0,1|all",
           help="Roots."),
    option(
        "-z", "--timing", "--blocking", type=click.Choice(list(_TIMINGS)), default="together",
        shown=True, help="Start samples at a common deadline, or when each rank gets there.",
    ),
    option(
        "-T", "--timeout", type=click.FloatRange(0), default=60.0, shown=True,
        help="Seconds after which a case counts as hung; 0 waits for ever.",
    ),
    option(
        "-J", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
        help="Write JSON lines there, each as soon as it is measured.",
    ),
    option(
        "--resume", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
        help="The same, but keep what is there and measure only what is missing.",
    ),
    option("--format", "layout", type=click.Choice(_FORMATS), default="table", shown=True),
    option(
        "--time", "budget", type=click.FloatRange(0, min_open=True), default=40.0, shown=True,
        help="Seconds for the whole run, start-up included.",
    ),
    option("--precision", type=click.FloatRange(0, 100, min_open=True), default=5.0, shown=True,
            help="Stop at a median known to this many per cent."),
    option("--in-place", is_flag=True, help="Input and output share memory."),
    option(
        "--device", type=click.Choice([choice.CPU, choice.CUDA]), default=choice.CPU, shown=True,
        help="Arrays on the host, or on each rank's GPU.",
    ),
    option("--allocate", is_flag=True, help="Arrays from c.allocate(), in shared memory."),
    option("--interface", metavar="NAME",
            help="Network interface of torch.distributed (loopback on one host)."),
    ranks_per_node(),
    option("--seed", type=int, default=0, shown=True, help="Of the order of the blocks."),
    option("--list", "lists", is_flag=True, help="Print every algorithm, and what refuses."),
    option("--dry-run", "dry", is_flag=True, help="Print the cases and how long they take."),
]  # fmt: skip


def parse(given: dict[str, Any], worlds: Worlds) -> Options:
    """Check the command line on its own; every process comes to the same result.

    Raises:
        ArgumentError: a value cannot be meant.
    """
    wanted = Wanted(
        collectives=tuple(
            each if each == "all" else collective(each).name
            for each in (*given["collectives"], *split_names(given["listed"] or ""))
        ),
        algorithms=swept_names(given["algorithms"] or ""),
        sizes=_sizes(given),
        dtypes=split_names(given["datatype"]),
        ops=split_names(given["op"]),
        roots=split_names(given["root"]),
        in_place=given["in_place"],
        transports=_transports(given["transports"]),
        allocate=given["allocate"],
        device=given["device"],
    )
    if wanted.allocate and wanted.device == choice.CUDA:
        raise ArgumentError("GPU arrays are read where they are: leave out --allocate")
    choice.dtypes(wanted), choice.ops(wanted)
    settings = Settings(
        budget=given["budget"], samples=given["iters"], warmup=given["warmup_iters"],
        checks=given["check"], timing=_TIMINGS[given["timing"]], seed=given["seed"],
        precision=given["precision"] / 100,
    )  # fmt: skip
    if given["output"] and given["resume"]:
        raise ArgumentError("-J begins a file anew and --resume goes on with one: give one of them")
    return Options(
        wanted, settings, backends(given["backends"], worlds), given["layout"],
        given["output"] or given["resume"], bool(given["resume"]), given["timeout"],
        given["lists"], given["dry"], given["interface"],
    )  # fmt: skip


def _transports(text: str | None) -> tuple[str, ...]:
    names = with_all(split_names(text or ""), TRANSPORTS)
    for name in names:
        if name not in TRANSPORTS:
            raise UnknownName("transport", name, TRANSPORTS)
    return names


def _sizes(given: dict[str, Any]) -> tuple[int, ...]:
    asked = [given[key] is not None for key in ("minbytes", "maxbytes", "stepfactor", "stepbytes")]
    if given["sizes"] is not None:
        if any(asked):
            raise ArgumentError("--sizes lists every size: leave out -b, -e, -f and -i")
        return tuple(dict.fromkeys(map(parse_size, split_names(given["sizes"]))))
    if not any(asked):
        return choice.DEFAULT_SIZES
    if given["stepfactor"] is not None and given["stepbytes"] is not None:
        raise ArgumentError("-f multiplies and -i adds: give one of them")
    least, most, add = (
        None if given[key] is None else parse_size(given[key])
        for key in ("minbytes", "maxbytes", "stepbytes")
    )
    least = 64 if least is None else least
    most = max(least, 1 << 20) if most is None else most
    return size_steps(least, most, given["stepfactor"], add)


def backends(text: str | None, worlds: Worlds) -> tuple[str, ...]:
    """Return the backends that `text` names, all by default."""
    names = split_names(text.lower()) if text else tuple(worlds)
    names = with_all([_ALIASES.get(name, name) for name in names], tuple(worlds))
    for name in names:
        if name not in worlds:
            raise UnknownName("backend", name, worlds)
    return names


# -- the run ------------------------------------------------------------------------------


def run(options: Options, makers: Worlds) -> int:
    """Build the worlds, then list, estimate or measure; return the exit status."""
    watchdog = Watchdog(options.timeout)
    worlds, remarks = launch(options.backends, options.interface, makers, watchdog)
    gpus: dict[str, dict[str, str]] = {}
    if options.wanted.device == choice.CUDA:
        worlds, gpus = with_gpus(worlds, remarks)
    everyone = next(iter(worlds.values()))
    processes = everyone.exchange(own_process())
    oversubscribed = oversubscription(everyone.nodes, processes)
    choice.check_algorithms(options.wanted, worlds)
    groups = list(choice.groups(options.wanted, everyone.size))
    remarks += [*oversubscribed, *other_load(everyone.nodes, processes)]
    remarks += [*(f"skipped {each}" for each in options.wanted.skipped)]
    session = _Session(options, worlds, groups, watchdog, [*remarks], bool(oversubscribed))
    if options.lists:
        return session.list_algorithms()
    if options.dry:
        return session.estimate()
    run = describe(options.settings.seed, worlds, processes, oversubscribed)
    if gpus:
        copies = copy_bandwidth(everyone, everyone.gpu())
        run |= {"gpu_transports": gpus, "gpu_copy_GBps": round(copies, 1)}
    return session.measure(run, processes)


def with_gpus(
    worlds: dict[str, Collectives], remarks: list[str]
) -> tuple[dict[str, Collectives], dict[str, dict[str, str]]]:
    """Return the worlds whose ranks have GPUs, and how their arrays travel; collective.

    Raises:
        ArgumentError: there is none.
    """
    found = {name: world.gpu_transports() for name, world in worlds.items()}
    for name, ways in found.items():
        if all(ways.values()):
            remarks.append(f"{name} is left out: {next(iter(ways.values()))}")
    kept = {name: world for name, world in worlds.items() if not all(found[name].values())}
    if not kept:
        raise ArgumentError("; ".join(remarks))
    lacking = {
        f"no {each} transport: {why}" for name in kept for each, why in found[name].items() if why
    }
    remarks += sorted(lacking)
    return kept, {name: found[name] for name in kept}


def launch(
    names: Sequence[str], interface: str | None, makers: Worlds, watchdog: Watchdog
) -> tuple[dict[str, Collectives], list[str]]:
    """Form each backend's group; one that is not here, on some rank, is left out, and that is said.

    Raises:
        ArgumentError: there is none, or the launcher is not that of the MPI library.
    """
    worlds: dict[str, Collectives] = {}
    remarks: list[str] = []
    for name in names:
        watchdog.starting(name)
        try:
            world = makers[name](interface)
        except (ImportError, CollectiveError) as error:
            remarks.append(f"{name} is left out: {error}")
            continue
        if complaint := singletons(world.size, world.library):
            raise ArgumentError(complaint)
        worlds[name] = world
    if not worlds:
        raise ArgumentError("; ".join(remarks))
    first = next(iter(worlds.values()))
    common = set.intersection(*map(set, first.exchange(list(worlds))))
    watchdog.started()
    watchdog.rank = first.rank
    remarks += [f"{name} is left out: some ranks lack it" for name in worlds if name not in common]
    return {name: world for name, world in worlds.items() if name in common}, remarks


class _Session:
    """One run of the command on every rank; only rank 0 prints."""

    def __init__(
        self, options: Options, worlds: dict[str, Collectives], groups: list[Group],
        watchdog: Watchdog, remarks: list[str], oversubscribed: bool,
    ) -> None:  # fmt: skip
        self.options, self.worlds, self.groups = options, worlds, groups
        self.watchdog, self.remarks, self.oversubscribed = watchdog, remarks, oversubscribed
        self.control = next(iter(worlds.values()))
        self.is_first = self.control.rank == 0
        self.measured: list[Group] = []
        self.total = len(groups)

    def say(self, text: str = "") -> None:
        """Print on rank 0."""
        if self.is_first:
            print(text, flush=True)

    def tell(self, text: str) -> None:
        """Print progress and warnings on rank 0's standard error."""
        if self.is_first:
            print(text, file=sys.stderr, flush=True)

    # -- without measuring ------------------------------------------------------------

    def list_algorithms(self) -> int:
        """Print every algorithm by collective and backend, and why one is refused."""
        bench = Bench(self.worlds, self.options.settings, self.watchdog)
        wanted = Wanted(
            collectives=self.options.wanted.collectives, algorithms=("all",), sizes=(64,),
            dtypes=self.options.wanted.dtypes[:1], ops=self.options.wanted.ops[:1],
        )  # fmt: skip
        for group in choice.groups(wanted, self.control.size):
            self.say(f"{group.what.name} on {self.control.size} ranks")
            found = bench.probe(choice.cases(group, self.worlds, wanted))
            for name, same in groupby(found, lambda each: each.case.backend):
                self._list_backend(name, list(same))
        for remark in self.remarks:
            self.say(f"# {remark}")
        return 0

    def _list_backend(self, name: str, found: Sequence[Any]) -> None:
        good = [each.case.algorithm for each in found if not each.message]
        self.say(f"  {name}: {', '.join(good)}")
        for each in found:
            if each.message:
                self.say(f"    not {each.case.algorithm}: {each.message}")

    def estimate(self) -> int:
        """Print every case, and how long all of them take."""
        count = 0
        for group in self.groups:
            found = choice.cases(group, self.worlds, self.options.wanted)
            count += len(found)
            for name, same in groupby(found, lambda case: case.backend):
                self.say(f"{group}, {name}: {', '.join(case.algorithm for case in same)}")
        least = _START_UP + count * _LEAST_PER_CASE
        most = max(least, self.options.settings.budget)
        self.say(
            f"# {count} cases in {len(self.groups)} groups; estimated time: {least:.0f} s if all "
            f"medians are soon known, at most about {most:.0f} s (--time)"
        )
        for remark in self.remarks:
            self.say(f"# {remark}")
        return 0

    # -- measuring ----------------------------------------------------------------------

    def measure(self, run: Record, processes: Sequence[Process]) -> int:
        """Measure every group, write each record at once, and print the tables at the end."""
        bench = Bench(self.worlds, self.options.settings, self.watchdog, self.oversubscribed)
        full = run | details(processes, self.options.settings, bench.meeting.sync_error)
        ledger = Ledger(self.control, full, self.options.output, resume=self.options.resume)
        self.remarks += ledger.remarks
        for remark in self.remarks:
            self.tell(f"warning: {remark}")
        asked = [choice.cases(each, self.worlds, self.options.wanted) for each in self.groups]
        todo = [each for each in asked if ledger.missing(each)]
        self.total = len(todo)
        if len(todo) < len(asked):
            self.tell(f"{len(asked) - len(todo)} of {len(asked)} groups are measured already")
        # Ranks started at different times, and all must stop at the same block.
        spent = self.control.exchange(time.monotonic() - _BEGIN)[0]
        budget = self.options.settings.budget - spent
        until = bench.meeting.time + int(budget * 1e9)
        if self.options.layout == "jsonl":
            self.say(json.dumps(run_line(full)))
        found: list[Record] = []
        for cases in asked:
            fresh: list[Record] = []
            if ledger.missing(cases):
                left = (until - bench.meeting.time) / 1e9
                position = self._progress(cases[0].group, left)
                chosen, share = ledger.with_baselines(cases), left / (len(todo) - position)
                fresh = records(bench, bench.measure(chosen, max(share, 0.0)), run)
            rows = ledger.add(cases, fresh)
            found += rows
            self._publish(rows)
        self._finish(found)
        wrong = any(row["correct"] is False for row in found)
        return int(self.control.exchange(wrong)[0])

    def _progress(self, group: Group, left: float) -> int:
        """Say what begins, and return how many groups were measured before it."""
        done, total = len(self.measured), self.total
        if self.options.settings.samples is not None:
            spent = time.monotonic() - _BEGIN
            left = spent / done * (total - done) if done else 0.0
        text = f"[{done + 1:>3}/{total}] about {max(left, 0):3.0f} s left: {group}"
        if self.is_first and is_terminal(sys.stderr):
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif not done or self.measured[-1].what != group.what:
            self.tell(text)
        self.measured.append(group)
        return done

    def _publish(self, rows: list[Record]) -> None:
        if not self.is_first:
            return
        if self.options.layout == "jsonl":
            render.jsonl(rows, sys.stdout)
        for record in rows:
            if record["correct"] is False:
                self.tell(record["message"])

    def _finish(self, found: list[Record]) -> None:
        if not self.is_first:
            return
        if is_terminal(sys.stderr):
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        layout = self.options.layout
        if layout == "table":
            render.print_tables(found, sys.stdout)
        elif layout != "jsonl":
            render.LAYOUTS[layout](found, sys.stdout)
        # What a program reads must not be followed by what only people read.
        stream = sys.stderr if layout in ("csv", "jsonl") else sys.stdout
        for line in render.footer(found, self.remarks):
            print(line, file=stream)
        stream.flush()
