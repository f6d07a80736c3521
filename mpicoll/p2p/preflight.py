"""Check hosts, ranks and links before a job, and name those that it should avoid."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from statistics import median
from typing import TypeVar

from mpicoll.backend import Nodes
from mpicoll.cli.ending import SICK, leave, say
from mpicoll.cli.progress import ProgressBar
from mpicoll.errors import ArgumentError, RankLost
from mpicoll.machine.settings import DEADLINE
from mpicoll.measurement.ranks import Ranks, form_ranks
from mpicoll.measurement.worlds import Worlds
from mpicoll.p2p.host_lists import counted_list, hostfile, slurm_list
from mpicoll.p2p.judging import (
    LINK_QUANTITIES,
    RANK_QUANTITIES,
    Figures,
    Finding,
    Part,
    costs_of,
    hosts_to_avoid,
    judge_links,
    judge_ranks,
    sentence,
)
from mpicoll.p2p.matchings import Pair, matchings
from mpicoll.p2p.options import Options
from mpicoll.p2p.probe import Probe, ranks_of_world
from mpicoll.p2p.smoke import wrong_results
from mpicoll.text.files import writable, write_whole
from mpicoll.text.numbers import count_text, number

_LINKS = 0.5
"""The share of the time for the first looks at the links."""
_ROUND = (0.1, 1.0)
"""The least and the most seconds of a round."""
_LOOKS = (4, 12)
"""The least and the most looks at each link and rank. Further looks tell a suspect from chance: of
two hosts, the slow one must be slower in almost all of twelve."""

L = TypeVar("L", dict[Pair, Figures], dict[int, Figures])
"""The figures of links, or of ranks, in one look."""


@dataclass(frozen=True)
class Hosts:
    """The hosts of a job, in the order of their first ranks.

    Attributes:
        names: as the hosts call themselves, without a domain; hosts of one name get a number.
    """

    nodes: Nodes
    names: Sequence[str]

    @classmethod
    def of(cls, ranks: Ranks) -> Hosts:
        """Return the hosts of these ranks."""
        nodes = ranks.everyone.nodes
        names = [ranks.processes[members[0]].host.partition(".")[0] for members in nodes]
        numbered = [
            name if names.count(name) == 1 else f"{name}#{index}"
            for index, name in enumerate(names)
        ]
        return cls(nodes, numbered)

    def slots(self, avoided: Iterable[int]) -> dict[str, int]:
        """Return the number of ranks of each host, but for the avoided hosts."""
        return {
            self.names[index]: len(members)
            for index, members in enumerate(self.nodes) if index not in avoided
        }  # fmt: skip


@dataclass
class Report:
    """The result of a check, equal on all ranks.

    Attributes:
        remarks: on what was tried, and what the figures were.
    """

    findings: list[Finding] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def run(options: Options, makers: Worlds) -> int:
    """Check all hosts, then print and write on rank 0; return the exit status."""
    if options.timeout:
        # A silent rank is named before the watchdog ends the run.
        os.environ.setdefault(DEADLINE, str(options.timeout / 2))
    ranks = form_ranks(options.backends, makers, options.timeout, options.interface)
    ranks.check_alike(options)
    _refuse(options, ranks)
    for remark in (*ranks.left_out, *ranks.busy):
        ranks.log(f"warning: {remark}")
    hosts = Hosts.of(ranks)
    check = Check(options, ranks, hosts)
    try:
        with check.bar:
            report = check.run()
    except RankLost as error:
        _end_without(error, options, ranks, hosts)
    is_written = publish(report, options, hosts) if ranks.is_root else True
    is_written = ranks.everyone.exchange(is_written)[0]
    status = SICK if report.findings else int(not is_written)
    if any(ranks.everyone.exchange(check.probe.is_cut, bool)):
        leave(status)  # the library would wait for the messages of a silent link
    return status


def _refuse(options: Options, ranks: Ranks) -> None:
    """Raise the error of rank 0, which writes the file, on every rank."""
    message = ""
    try:
        if ranks.everyone.size < 2:
            raise ArgumentError("a check needs two ranks: start it with mpirun -n 2 or more")
        if options.hostfile and ranks.is_root:
            writable(options.hostfile)
    except ArgumentError as error:
        message = str(error)
    if message := ranks.everyone.exchange(message, str)[0]:
        raise ArgumentError(message)


def _end_without(error: RankLost, options: Options, ranks: Ranks, hosts: Hosts) -> None:
    """Name the rank that does not answer, and end this process.

    Raises:
        RankLost: the rank is unknown.
    """
    if error.rank is None:
        raise error
    if ranks.everyone.rank != (1 if error.rank == 0 else 0):
        ranks.watchdog.step("")
        # The launcher ends all ranks when the first one leaves: let the one that prints do so.
        time.sleep(ranks.everyone.deadline)
        leave(SICK)
    host = next(index for index, members in enumerate(hosts.nodes) if error.rank in members)
    finding = Finding((host,), (error.rank,), fault=f"does not answer: {error.reason}")
    publish(Report([finding]), options, hosts)
    leave(SICK)


class Check:
    """One check of all hosts; its methods are collective."""

    def __init__(self, options: Options, ranks: Ranks, hosts: Hosts) -> None:
        self.options, self.ranks, self.hosts = options, ranks, hosts
        self.bar = ProgressBar(0, has_thread=False)
        self.probe = Probe(ranks, self.bar)
        self.report = Report()
        self.began = time.monotonic()

    def run(self) -> Report:
        """Return what is sick."""
        nodes = self.hosts.nodes
        share = _LINKS * self.options.budget / _LOOKS[0]
        rounds = matchings(len(nodes), int(share / _ROUND[0]))
        seconds = min(max(share / len(rounds), _ROUND[0]), _ROUND[1])
        turns = self.probe.turns()
        self.bar.total = 1
        self.probe.assemble()
        ranks, sick_ranks = self._looks(
            len(turns), lambda: self.probe.ranks(turns), partial(judge_ranks, nodes)
        )
        links, sick_links = self._looks(
            len(rounds), lambda: self.probe.links(rounds, seconds), judge_links
        )
        self._describe(links, ranks, rounds)
        if len(links[0]) == 1:
            self.report.remarks.append("the link is not judged: there is no other one")
        if self.ranks.oversubscribed:
            self.report.remarks.append("latencies are not judged: ranks wait for a core")
        self.report.findings = [*sick_ranks, *sick_links]
        self._check_results()
        self.report.findings = unexplained(self.report.findings)
        self.probe.assemble()
        elapsed = self.ranks.everyone.exchange(time.monotonic() - self.began, float)[0]
        self.report.remarks[0] += f", {elapsed:.0f} s"
        return self.report

    def _looks(
        self, steps: int, look: Callable[[], L],
        judge: Callable[[list[L], bool], list[Finding]],
    ) -> tuple[list[L], list[Finding]]:  # fmt: skip
        """Return the figures of several looks, and what is sick.

        Args:
            steps: those of the progress bar in one look.
            look: measures once.
        """
        looks: list[L] = []
        findings, suspects = list[Finding](), list[Finding]()
        while len(looks) < _LOOKS[0] or (len(looks) < _LOOKS[1] and findings != suspects):
            self.bar.total += steps
            looks.append(look())
            findings, suspects = judge(looks, True), judge(looks, False)
        return looks, findings

    # -- results --------------------------------------------------------------------------

    def _check_results(self) -> None:
        """Run collectives on each host, then on all hosts, and compare their results."""
        self.bar.step("results of collectives")
        everyone, nodes = self.ranks.everyone, self.hosts.nodes
        if any(len(members) > 1 for members in nodes) and len(nodes) > 1:
            group = everyone.split(self.probe.node)
            assert group is not None
            with ranks_of_world(nodes[self.probe.node]):
                wrong = wrong_results(group, everyone.rank, self.ranks.watchdog)
                group.free()
            lines = everyone.exchange(wrong, list[str])
            for index, members in enumerate(nodes):
                if text := next((lines[rank][0] for rank in members if lines[rank]), ""):
                    self.report.findings.append(Finding((index,), fault=f"wrong results: {text}"))
        for world in self.ranks.worlds.values():
            lines = everyone.exchange(
                wrong_results(world, everyone.rank, self.ranks.watchdog), list[str]
            )
            self._blame_results({rank: wrong[0] for rank, wrong in enumerate(lines) if wrong})

    def _blame_results(self, wrong: dict[int, str]) -> None:
        """Name the ranks that hold wrong results, unless a sick host explains these."""
        if not wrong or not all(finding.quantity for finding in self.report.findings):
            return
        if 2 * len(wrong) > self.ranks.everyone.size:
            text = f"wrong on {count_text(len(wrong), 'rank')}: {next(iter(wrong.values()))}"
            self.report.findings.append(Finding((), fault=text))
            return
        for rank, line in wrong.items():
            host = next(i for i, members in enumerate(self.hosts.nodes) if rank in members)
            finding = Finding((host,), (rank,), fault=f"wrong results: {line}")
            self.report.findings.append(finding)

    def _describe(
        self, links: Sequence[dict[Pair, Figures]], ranks: Sequence[dict[int, Figures]],
        rounds: Sequence[Sequence[Pair]],
    ) -> None:  # fmt: skip
        """Add what was tried, and the median and the worst of each figure."""
        nodes, names = self.hosts.nodes, self.hosts.names
        total = len(nodes) * (len(nodes) - 1) // 2
        measured = sum(map(len, rounds))
        self.report.remarks.append(
            f"{count_text(self.ranks.everyone.size, 'rank')} on {count_text(len(nodes), 'host')}: "
            f"{measured} of {count_text(total, 'link')} in {count_text(len(rounds), 'round')}"
        )
        titles: dict[Part, str] = {
            rank: f"rank {rank} on {names[index]}"
            for index, members in enumerate(nodes) for rank in members
        }  # fmt: skip
        titles |= {pair: f"{names[pair[0]]} {names[pair[1]]}" for pair in links[0]}
        for quantity in (*LINK_QUANTITIES, *RANK_QUANTITIES):
            is_rank = quantity in RANK_QUANTITIES
            costs = costs_of(quantity, ranks) if is_rank else costs_of(quantity, links)
            middles = {titles[part]: median(values) for part, values in costs.items()}
            if middles:
                worst = max(middles, key=lambda name: middles[name])
                typical, slowest = (
                    f"{number(quantity.amount(cost))} {quantity.unit}"
                    for cost in (median(middles.values()), middles[worst])
                )
                self.report.remarks.append(
                    f"{quantity.name:9}  median {typical}, worst {slowest} ({worst})"
                )


def unexplained(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without the links of sick hosts."""
    sick, _ = hosts_to_avoid(findings)
    return [
        finding for finding in findings if len(finding.hosts) != 2 or not sick & {*finding.hosts}
    ]


# -- output ---------------------------------------------------------------------------------


def publish(report: Report, options: Options, hosts: Hosts) -> bool:
    """Print the findings and the hosts to use, and write the host file; return whether it is."""
    print("\n".join(lines(report, hosts)), flush=True)
    if options.hostfile is None:
        return True
    slots = hosts.slots({*chain(*hosts_to_avoid(report.findings))})
    try:
        write_whole(options.hostfile, lambda fresh: fresh.write_text(hostfile(slots)))
    except ArgumentError as error:
        say(f"Error: {error}")
        return False
    return True


def lines(report: Report, hosts: Hosts) -> list[str]:
    """Return the lines of a report: figures, what is sick, and the hosts for a job."""
    sick, spared = hosts_to_avoid(report.findings)
    slots = hosts.slots(sick | spared)
    text = [*report.remarks, *(sentence(finding, hosts.names) for finding in report.findings)]
    if not report.findings:
        return [*text, "healthy: no host, rank or link is sick"]
    for title, group in (("sick hosts", sick), ("left out for their links", spared)):
        if group:
            text.append(f"{title}: {slurm_list(hosts.names[host] for host in sorted(group))}")
    if not slots:
        return [*text, "no host remains"]
    excluded = slurm_list(hosts.names[host] for host in sorted(sick | spared))
    return [
        *text,
        f"Slurm: --nodelist={slurm_list(slots)}" + f" or --exclude={excluded}" * bool(excluded),
        f"MPICH: -hosts {counted_list(slots)}",
        f"Open MPI: --host {counted_list(slots)}",
    ]
