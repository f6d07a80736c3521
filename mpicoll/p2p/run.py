"""One run over all pairs: check the command line, measure, and print on rank 0."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from mpicoll.backend import DIRECT, IPC, STAGED
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.machine.gpu_links import gpu_links, own_gpu
from mpicoll.machine.links import Core, LinkClasses, host_links, physical_cores
from mpicoll.measurement.capacity import weigh_bytes
from mpicoll.measurement.description import describe_run, full_description
from mpicoll.measurement.ping_pong import PairSettings
from mpicoll.measurement.ranks import Ranks, form_ranks
from mpicoll.measurement.worlds import Worlds
from mpicoll.p2p import heatmap
from mpicoll.p2p.fan_out import CudaCopies, Spread, fan_out, spread_line
from mpicoll.p2p.options import Options
from mpicoll.p2p.outliers import mark
from mpicoll.p2p.output import Results, announcement, publish, title
from mpicoll.p2p.record import Context, fit_records, pair_records
from mpicoll.p2p.survey import Survey, wrongs
from mpicoll.records.journal import check_ours
from mpicoll.records.lines import FanOutRecord, RunRecord
from mpicoll.text.files import writable
from mpicoll.text.sizes import size_text

_ENDED = 128 + signal.SIGTERM


def run(options: Options, makers: Worlds) -> int:
    """Measure every pair, then print, write and draw on rank 0; return the exit status."""
    ranks = form_ranks(
        options.backends, makers, options.timeout, options.interface,
        on_gpu=options.device == "cuda",
    )  # fmt: skip
    worlds, everyone = ranks.worlds, ranks.everyone
    ranks.check_alike(options)
    transports = _transports(ranks)
    _refuse(options, everyone, transports)
    remarks = [*ranks.left_out, *ranks.busy]
    for remark in remarks:
        ranks.log(f"warning: {remark}")
    context = _context(options, ranks)
    names = options.transports or tuple(transports)
    settings = PairSettings(options.sizes, names, options.device, options.budget, options.seed)
    # A buffer for two messages, and the slots of shared memory for them.
    nbytes = 4 * options.sizes[-1] * len(worlds)
    if options.device == "cpu" and (
        why := weigh_bytes(nbytes, everyone, options.sizes[-1]).refusal
    ):
        raise ArgumentError(f"messages of {size_text(options.sizes[-1])}: {why}")
    if options.dry:
        ranks.print("\n".join(announcement(context, settings)))
        return 0
    survey = Survey(worlds, settings, ranks.watchdog)
    # A batch system sends SIGTERM before it ends a job: then print the results so far.
    signal.signal(signal.SIGTERM, survey.end)
    everyone.barrier()  # the announcement below then holds for every rank
    ranks.log(f"{title(context)}: measuring for about {options.budget:g} s")
    findings = survey.measure()
    pairs = pair_records(findings, context)
    mark(pairs)
    copies, of_copies = _fan_outs(options, context, everyone, survey)
    failed, is_written = wrongs(findings), True
    if ranks.is_root:
        early = ["ended early by SIGTERM"] * survey.is_ended
        remarks += [*early, *of_copies, f"every pair was visited {survey.blocks} times"]
        whole = RunRecord(run=full_description(context.run, ranks.processes, settings))
        results = Results(whole, pairs, fit_records(pairs, context), copies)
        is_written = publish(options, context, results, [*failed, *remarks])
    is_written = everyone.exchange(is_written)[0]
    return _ENDED if survey.is_ended else int(bool(failed) or not is_written)


def _transports(ranks: Ranks) -> list[str]:
    """Return the transports of all backends for arrays on the requested device."""
    every = [
        [name for name, why in ranks.gpu_ways[backend].items() if not why]
        if ranks.gpu_ways
        else world.transports
        for backend, world in ranks.worlds.items()
    ]
    return list(dict.fromkeys(name for transports in every for name in transports))


# -- what cannot be measured ----------------------------------------------------------------


def _refuse(options: Options, everyone: Collectives, transports: Sequence[str]) -> None:
    """Raise the error of any rank on every rank.

    Raises:
        ArgumentError: too few ranks, no such transport, or a file that cannot be written.
    """
    message = ""
    try:
        _check_transports(options, everyone, transports)
        # Only rank 0 writes files.
        if everyone.rank == 0:
            _check_files(options)
    except ArgumentError as error:
        message = str(error)
    for rank, text in enumerate(everyone.exchange(message)):
        if text:
            raise ArgumentError(text if everyone.size == 1 else f"rank {rank}: {text}")


def _check_transports(options: Options, everyone: Collectives, transports: Sequence[str]) -> None:
    if everyone.size < 2:
        raise ArgumentError("a pair needs two ranks: start this command with mpirun -n 2 or more")
    for name in options.transports:
        if name in transports:
            continue
        if options.device == "cuda" or name in (IPC, DIRECT, STAGED):
            there_is = ", ".join(transports)
            raise ArgumentError(f"no {name} transport for these buffers: there is {there_is}")
        transport = everyone.transport
        why = transport.shared.no_cma if transport.shared else transport.unshared
        raise ArgumentError(f"no {name} transport: {why}")


def _check_files(options: Options) -> None:
    if options.plot:
        if why := heatmap.complaint(options.plot):
            raise ArgumentError(why)
        writable(options.plot)
    if options.output:
        writable(options.output)
        check_ours(options.output)


# -- where it runs ------------------------------------------------------------------------


def _context(options: Options, ranks: Ranks) -> Context:
    """Return the ranks' places and the links between them; collective."""
    everyone = ranks.everyone
    numbers: list[str | None] = [None] * everyone.size
    if options.device == "cpu":
        links = host_links(everyone.nodes, everyone.exchange(physical_cores(), list[Core]))
    else:
        gpu = own_gpu(ranks.worlds)
        numbers = everyone.exchange(str(gpu.number))
        identities = everyone.exchange(gpu.identity)
        local_links = gpu_links(everyone.nodes, everyone.rank, identities)
        parts = everyone.exchange(local_links, LinkClasses)
        links = {pair: link for part in parts for pair, link in part.items()}
    described = describe_run(options.seed, ranks)
    hosts = [process.host for process in ranks.processes]
    return Context(described, ranks.worlds, options.device, hosts, numbers, links)


# -- copies to several GPUs -----------------------------------------------------------------


def _fan_outs(
    options: Options, context: Context, everyone: Collectives, survey: Survey
) -> tuple[list[FanOutRecord], list[str]]:
    """Time each rank's copies to all GPUs that it sees; return records and remarks."""
    if options.device != "cuda":
        return [], []
    if "torch" not in context.worlds:
        return [], ["no copies to several GPUs at once: they need torch"]
    local_spreads: list[Spread] = []
    # One rank copies at a time, while the others sleep.
    for rank in range(everyone.size):
        if rank == everyone.rank:
            local_spreads = fan_out(CudaCopies())
        survey.assemble()
    records, remarks = [], []
    for rank, spreads in enumerate(everyone.exchange(local_spreads, list[Spread])):
        records += [_fan_out_record(context, rank, spread) for spread in spreads]
        remarks += [spread_line(spread, spreads[0], rank) for spread in spreads[1:]]
        if not spreads:
            remarks.append(f"rank {rank} sees one GPU: no copies to several at once from it")
    return records, remarks


def _fan_out_record(context: Context, rank: int, spread: Spread) -> FanOutRecord:
    return FanOutRecord(
        **context.common("torch", "streams"), source=rank, peers=spread.peers,
        bytes=spread.nbytes, time_us=spread.time_us, GBps=spread.GBps,
    )  # fmt: skip
