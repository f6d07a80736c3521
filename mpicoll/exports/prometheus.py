"""The state of a job as metrics in the text format of Prometheus.

node_exporter's textfile collector reads the file. Counters grow while the job runs. Gauges describe
the calls that the flight recorder has kept, the last ones of each rank.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpicoll.flight.entries import Link
from mpicoll.flight.layout import Outcome, State
from mpicoll.flight.reader import Dump, Entry
from mpicoll.flight.records import Group
from mpicoll.text.files import write_whole
from mpicoll.verdict.clocks import align
from mpicoll.verdict.links import hosts_by_address
from mpicoll.verdict.matching import match
from mpicoll.verdict.waits import waits

_NANO, _MICRO = 1e9, 1e6
_METRICS = {
    "mpicoll_up": (
        "gauge", "1 if the process of the rank runs, else 0; only for ranks of this host."),
    "mpicoll_rank_failed": ("gauge", "1 if the rank has ended by an error, else 0."),
    "mpicoll_calls_total": ("counter", "Calls that the rank has begun, messages included."),
    "mpicoll_group_calls_total": (
        "counter", "Collective calls that the rank has begun on groups of this name."),
    "mpicoll_last_call_timestamp_seconds": (
        "gauge", "Time at which the last call of the rank began, since the epoch."),
    "mpicoll_call_under_way": ("gauge", "Calls that the rank has begun and not ended."),
    "mpicoll_recent_span_seconds": ("gauge", "Time that the kept calls of the rank cover."),
    "mpicoll_recent_calls": ("gauge", "Kept calls that have ended."),
    "mpicoll_recent_call_seconds": ("gauge", "Time of the rank in the kept calls."),
    "mpicoll_recent_wait_seconds": (
        "gauge", "Part of mpicoll_recent_call_seconds in which the rank waited for later ranks."),
    "mpicoll_thread_running_seconds_total": ("counter", "Time that the thread has run."),
    "mpicoll_thread_queued_seconds_total": (
        "counter", "Time that the thread was ready to run and had no core."),
    "mpicoll_thread_preemptions_total": ("counter", "Involuntary context switches of the thread."),
    "mpicoll_thread_major_page_faults_total": ("counter", "Major page faults of the thread."),
    "mpicoll_tcp_bytes_acked_total": ("counter", "Bytes that the peer has acknowledged."),
    "mpicoll_tcp_retransmitted_segments_total": (
        "counter", "Segments that the rank has sent again."),
    "mpicoll_tcp_busy_seconds_total": (
        "counter", "Time with data to send for which the peer had room."),
    "mpicoll_tcp_rtt_seconds": ("gauge", "Round-trip time of the connection, smoothed."),
    "mpicoll_tcp_min_rtt_seconds": ("gauge", "Least round-trip time of the connection."),
    "mpicoll_tcp_delivery_rate_bytes_per_second": (
        "gauge", "Rate at which the peer has lately acknowledged data."),
}  # fmt: skip
"""Type and help of each metric."""

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Values by metric and labels."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Labels, float]] = {
            name: defaultdict(float) for name in _METRICS
        }

    def add(self, name: str, value: float, **labels: object) -> None:
        """Add a value to those with the same labels."""
        self.values[name][tuple((label, str(text)) for label, text in labels.items())] += value

    def __str__(self) -> str:
        lines = []
        for name, values in self.values.items():
            kind, text = _METRICS[name]
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"] if values else []
            lines += [f"{name}{{{_labels(labels)}}} {value!r}" for labels, value in values.items()]
        return "".join(f"{line}\n" for line in lines)


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)


def _escaped(text: str) -> str:
    r"""Return a label's value as the format has it.

    >>> print(_escaped('a "name"\\with\na line break'))
    a \"name\"\\with\na line break
    """
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def write(path: Path, dumps: Sequence[Dump]) -> None:
    """Write the metrics of all ranks; a reader sees the old file or the new one.

    Raises:
        ArgumentError: the file cannot be written.
    """
    text = str(metrics(dumps))
    data = text.encode(errors="replace")
    write_whole(path, lambda file: file.write_bytes(data))


def metrics(dumps: Sequence[Dump]) -> Metrics:
    """Return the metrics of all ranks, in seconds and calls."""
    aligned = align(dumps).dumps
    host_of = hosts_by_address(dumps)
    result = Metrics()
    for dump in aligned:
        labels = _labels_of(dump)
        if dump.is_alive or dump.process.host == os.uname().nodename:
            is_up = dump.is_alive and dump.state is State.RUNNING
            result.add("mpicoll_up", is_up, **labels)
        result.add("mpicoll_rank_failed", dump.state is State.FAILED, **labels)
        _add_calls(result, dump, labels)
        _add_kinds(result, dump, labels)
        _add_samples(result, dump, labels)
        _add_links(result, dump, labels, host_of)
    _add_waits(result, aligned)
    return result


def _labels_of(dump: Dump) -> dict[str, object]:
    """Return the labels of a rank: the run tells apart the jobs of a directory of textfiles."""
    parts = dump.path.name.split(".")
    run = parts[1] if len(parts) == 4 else dump.path.parent.name
    return {"run": run, "rank": dump.rank, "host": dump.process.host}


def _add_calls(result: Metrics, dump: Dump, labels: dict[str, object]) -> None:
    entries = dump.entries
    result.add("mpicoll_calls_total", entries[-1].number if entries else 0, **labels)
    is_open = [entry.outcome is Outcome.UNDER_WAY for entry in entries]
    result.add("mpicoll_call_under_way", sum(is_open), **labels)
    if not entries:
        return
    result.add("mpicoll_last_call_timestamp_seconds", entries[-1].start / _NANO, **labels)
    end = max(max(entry.start, entry.end) for entry in entries)
    result.add("mpicoll_recent_span_seconds", (end - entries[0].start) / _NANO, **labels)
    groups: dict[Group, int] = {}
    for entry in entries:
        if entry.group is not None and not entry.group.messages:
            groups[entry.group] = max(groups.get(entry.group, 0), entry.sequence)
    for group, calls in groups.items():
        result.add("mpicoll_group_calls_total", calls, **labels, group=group.name)


def _kind(entry: Entry) -> dict[str, object]:
    location = entry.location
    return {
        "group": entry.group.name if entry.group else "", "collective": entry.call.collective,
        "location": f"{location.file}:{location.line}" if location else "",
    }  # fmt: skip


def _add_kinds(result: Metrics, dump: Dump, labels: dict[str, object]) -> None:
    for entry in dump.entries:
        if entry.outcome is not Outcome.UNDER_WAY:
            kind = _kind(entry)
            result.add("mpicoll_recent_calls", 1, **labels, **kind)
            seconds = (entry.end - entry.start) / _NANO
            result.add("mpicoll_recent_call_seconds", seconds, **labels, **kind)


def _add_waits(result: Metrics, dumps: Sequence[Dump]) -> None:
    labels = {dump.rank: _labels_of(dump) for dump in dumps}
    for call in match(dumps):
        for rank, wait in waits(call).items():
            if call.rows[rank].outcome is not Outcome.UNDER_WAY:
                kind = _kind(call.rows[rank])
                result.add("mpicoll_recent_wait_seconds", wait / _NANO, **labels[rank], **kind)


def _add_samples(result: Metrics, dump: Dump, labels: dict[str, object]) -> None:
    for sample in {sample.thread: sample for sample in dump.samples}.values():
        values = {
            "running_seconds": sample.running / _NANO, "queued_seconds": sample.queued / _NANO,
            "preemptions": sample.preempted, "major_page_faults": sample.faults,
        }  # fmt: skip
        for name, value in values.items():
            result.add(f"mpicoll_thread_{name}_total", value, **labels, thread=sample.thread)


def _add_links(
    result: Metrics, dump: Dump, labels: dict[str, object], host_of: Mapping[str, str]
) -> None:
    """Add the last reading of each connection.

    Args:
        host_of: the host of each address.
    """
    for link in {link.connection: link for link in dump.links}.values():
        ends = {
            "peer_host": host_of.get(link.peer, link.peer),
            "local": _endpoint(link.local, link.local_port),
            "peer": _endpoint(link.peer, link.peer_port),
        }
        for name, value in _tcp_values(link).items():
            result.add(f"mpicoll_tcp_{name}", value, **labels, **ends)


def _tcp_values(link: Link) -> dict[str, float]:
    return {
        "bytes_acked_total": link.sent, "retransmitted_segments_total": link.retransmitted,
        "busy_seconds_total": link.busy / _MICRO, "rtt_seconds": link.rtt / _MICRO,
        "min_rtt_seconds": link.rtt_min / _MICRO,
        "delivery_rate_bytes_per_second": link.rate,
    }  # fmt: skip


def _endpoint(address: str, port: int) -> str:
    """Return one end of a connection.

    >>> _endpoint("10.0.0.7", 4000), _endpoint("fe80::1", 4000)
    ('10.0.0.7:4000', '[fe80::1]:4000')
    """
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
