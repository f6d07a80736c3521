"""Check hosts, ranks and links before a job, and name those that it should avoid."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from mpicoll.backend import Nodes
from mpicoll.cli.ending import SICK, leave, say
from mpicoll.cli.progress import ProgressBar
from mpicoll.errors import ArgumentError, RankLost
from mpicoll.machine.settings import DEADLINE
from mpicoll.measurement.ranks import Ranks, form_ranks
from mpicoll.measurement.worlds import Worlds
from mpicoll.p2p.host_lists import counted_list, hostfile, slurm_list
from mpicoll.p2p.judging import (
    LATENCY,
    QUANTITIES,
    Figures,
    Finding,
    Part,
    confirm,
    hosts_to_avoid,
    is_disturbed,
    judge_links,
    judge_ranks,
    sentence,
    subject,
)
from mpicoll.p2p.matchings import Pair, matchings
from mpicoll.p2p.options import Options
from mpicoll.p2p.probe import Probe, ranks_of_world
from mpicoll.p2p.smoke import wrong_results
from mpicoll.text.files import writable, write_whole
from mpicoll.text.numbers import count_text, number

_LINKS, _AGAIN = 0.5, 0.3
"""Shares of the time: for the links, and for the second look at suspects."""
_ROUND = (0.1, 1.0)
"""The least and the most seconds of a round."""
_RATE_SAMPLES, _RATE_SAMPLES_AGAIN = 3, 4
_PASSES = (2, 6)
"""The least and the most passes of a second look, which goes on while healthy ones are slow."""
_REFERENCES, _LINKS_OF_HOST, _MOST_LINKS = 2, 3, 100

Looks = dict[Pair, Figures] | dict[int, Figures]
"""Figures of links or of ranks."""


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
        findings: of the second look.
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
        count = len(self.hosts.nodes)
        share = _LINKS * self.options.budget
        rounds = matchings(count, int(share / _ROUND[0]))
        seconds = min(max(share / len(rounds), _ROUND[0]), _ROUND[1])
        turns = self.probe.turns()
        self.bar.total = _RATE_SAMPLES * len(turns) + len(rounds) + 1
        self.probe.assemble()
        ranks = self.probe.ranks(turns, _RATE_SAMPLES)
        links = self.probe.links(rounds, seconds)
        self._describe(links, ranks, rounds)
        if links and self.ranks.oversubscribed:
            self.report.remarks.append("latencies are not judged: ranks wait for a core")
            for figures in links.values():
                figures.amounts.pop(LATENCY.name, None)
        self._confirm_ranks(turns, ranks, judge_ranks(ranks, self.hosts.nodes))
        self._confirm_links(links, judge_links(links), seconds)
        self._check_results()
        self.report.findings = unexplained(self.report.findings)
        self.probe.assemble()
        elapsed = self.ranks.everyone.exchange(time.monotonic() - self.began, float)[0]
        self.report.remarks[0] += f", {elapsed:.0f} s"
        return self.report

    # -- the second look ------------------------------------------------------------------

    def _confirm_links(
        self, links: dict[Pair, Figures], findings: list[Finding], seconds: float
    ) -> None:
        """Try suspicious links again, one at a time, between healthy ones."""
        # Noise makes no wrong results.
        self.report.findings += [finding for finding in findings if not finding.quantity]
        sick, _ = hosts_to_avoid(self.report.findings)
        suspects = [
            finding for finding in findings if finding.quantity and not sick & {*finding.hosts}
        ]
        if not suspects:
            return
        sick |= {finding.hosts[0] for finding in suspects if len(finding.hosts) == 1}
        chosen = [pair for finding in suspects for pair in sample(finding, links, sick)]
        bad = {pair for finding in suspects for pair in finding.parts}
        healthy = [pair for pair in links if pair not in bad and not sick & {*pair}]
        references = healthy[:: max(1, len(healthy) // _REFERENCES)][:_REFERENCES]
        pairs = list(dict.fromkeys([*references, *chosen]))[:_MOST_LINKS]
        share = _AGAIN * self.options.budget / len(pairs) / _PASSES[0]
        seconds = min(max(share, _ROUND[0]), seconds)
        rounds = [[pair] for pair in pairs]
        self._look_again(
            suspects, links, references, len(rounds), lambda: self.probe.links(rounds, seconds)
        )

    def _confirm_ranks(
        self, turns: Sequence[Sequence[int]], ranks: dict[int, Figures], findings: list[Finding]
    ) -> None:
        """Measure suspicious ranks again, beside those of a few healthy hosts."""
        if not findings:
            return
        suspects = {host for finding in findings for host in finding.hosts}
        healthy = [host for hosts in turns for host in hosts if host not in suspects]
        references = healthy[:_REFERENCES]
        chosen = {*suspects, *references}
        turns = [[host for host in hosts if host in chosen] for hosts in turns if chosen & {*hosts}]
        self._look_again(
            findings, ranks, [rank for host in references for rank in self.hosts.nodes[host]],
            _RATE_SAMPLES_AGAIN * len(turns), lambda: self.probe.ranks(turns, _RATE_SAMPLES_AGAIN),
        )  # fmt: skip

    def _look_again(
        self, suspects: Sequence[Finding], first: Looks, references: Sequence[Part], steps: int,
        look: Callable[[], Looks],
    ) -> None:  # fmt: skip
        """Judge suspects by the best figures of several looks.

        Args:
            first: the figures of the first look.
            references: healthy links or ranks.
            steps: those of the progress bar in one look.
            look: measures once more.
        """
        again: dict[Part, Figures] = {}
        for done in range(1, _PASSES[1] + 1):
            self.bar.total += steps
            for part, figures in look().items():
                again[part] = figures.merge(again.get(part, Figures()))
            healthy = [again[part] for part in references]
            is_noisy = any(is_disturbed(finding, healthy) for finding in suspects)
            if done >= _PASSES[0] and not is_noisy:
                break
        for finding in suspects:
            name = subject(finding, self.hosts.names)
            if not any(part in again for part in finding.parts):
                self.report.remarks.append(f"{name} was not tried again: too many suspects")
            elif confirmed := confirm(finding, dict(first.items()), again, healthy):
                self.report.findings += confirmed
            elif is_disturbed(finding, healthy):
                self.report.remarks.append(
                    f"{name} is suspect, but cannot be judged: healthy ones became as slow "
                    "meanwhile. Check again when other processes have ended"
                )

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
        self, links: dict[Pair, Figures], ranks: dict[int, Figures],
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
        places = {rank: names[i] for i, members in enumerate(nodes) for rank in members}
        named = {" ".join(names[host] for host in pair): look for pair, look in links.items()}
        named |= {f"rank {rank} on {places[rank]}": look for rank, look in ranks.items()}
        for name, quantity in QUANTITIES.items():
            amounts = {k: look.amounts[name] for k, look in named.items() if name in look.amounts}
            if amounts:
                worst = max(amounts, key=lambda k: quantity.ratio(amounts[k], 1.0))
                self.report.remarks.append(
                    f"{name:9}  median {number(median(amounts.values()))} {quantity.unit}, "
                    f"worst {number(amounts[worst])} {quantity.unit} ({worst})"
                )


def sample(finding: Finding, links: Mapping[Pair, Figures], sick: set[int]) -> list[Pair]:
    """Return the links of a finding to try again: of a host, the slowest few to healthy hosts."""
    quantity = finding.quantity
    assert quantity is not None
    slowest = sorted(
        (pair for pair in finding.parts if isinstance(pair, tuple)), reverse=True,
        key=lambda pair: quantity.ratio(links[pair].amounts[quantity.name], finding.typical),
    )  # fmt: skip
    return sorted(slowest, key=lambda pair: len(sick & {*pair}))[:_LINKS_OF_HOST]


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
    _, slots = _avoided(report, hosts)
    try:
        write_whole(options.hostfile, lambda fresh: fresh.write_text(hostfile(slots)))
    except ArgumentError as error:
        say(f"Error: {error}")
        return False
    return True


def _avoided(report: Report, hosts: Hosts) -> tuple[tuple[set[int], set[int]], dict[str, int]]:
    sick, spared = hosts_to_avoid(report.findings)
    return (sick, spared), hosts.slots(sick | spared)


def lines(report: Report, hosts: Hosts) -> list[str]:
    """Return the lines of a report: figures, what is sick, and the hosts for a job."""
    (sick, spared), slots = _avoided(report, hosts)
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
