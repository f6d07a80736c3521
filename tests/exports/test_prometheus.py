"""Metrics for node_exporter: the text format, the conventions for names, and the values."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from synthetic_job import dump, lockstep

from mpicoll.exports.prometheus import metrics, write
from mpicoll.flight.entries import Link, Sample
from mpicoll.flight.layout import Outcome
from mpicoll.flight.reader import Dump
from mpicoll.flight.records import Location

SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} ([-+.e\d]+)')


def job() -> list[Dump]:
    rows = lockstep([[0, 0, 4], [0, 2, 0]])
    rows[2][1] = rows[2][1]._replace(end=0, outcome=Outcome.UNDER_WAY)
    samples = [Sample(1, 1, 5_000_000_000, 250_000_000, thread=7, preempted=3, faults=1)]
    dumps = [dump(rank, rows[rank], size=3)._replace(samples=samples) for rank in range(3)]
    first = reading(1, 1000)
    dumps[1] = dumps[1]._replace(links=[first._replace(local=first.peer, peer=first.local)])
    dumps[2] = dumps[2]._replace(links=[reading(1, 1000), reading(2, 4000)])
    return dumps


def reading(at: int, sent: int) -> Link:
    """Return a reading of the connection from rank 2 to another host of the job."""
    ends, ports = ("10.0.0.2", "10.0.0.1"), (2000, 1000)
    return Link(1, at, *ends, sent, 500_000, 8_000_000, 3, 120, 80, *ports)


def values(text: str) -> dict[str, dict[str, float]]:
    """Return the values by metric and labels, and check the format of every line."""
    result: dict[str, dict[str, float]] = {}
    declared = ""
    for line in text.splitlines():
        if match := re.fullmatch(r"# (HELP|TYPE) (\w+) (.*)", line):
            assert match[1] == "HELP" or match[2] == declared
            assert (match[2] in result) == (match[1] == "TYPE")
            declared = match[2]
            result.setdefault(declared, {})
            if match[1] == "TYPE":
                assert (match[3] == "counter") == declared.endswith("_total")
        else:
            match = SAMPLE.fullmatch(line)
            assert match and match[1] == declared and match[2] not in result[declared], line
            result[declared][match[2]] = float(match[3])
    return result


RANK_2 = 'run="job",rank="2",host="host0"'
CONNECTION = 'peer_host="host0",local="10.0.0.2:2000",peer="10.0.0.1:1000"'
KIND = 'group="world",collective="allreduce",location="train.py:40"'


@pytest.mark.parametrize(
    ("metric", "labels", "value"),
    [
        ("rank_failed", RANK_2, 0), ("calls_total", RANK_2, 2),
        ("group_calls_total", f'{RANK_2},group="world"', 2),
        ("call_under_way", RANK_2, 1), ("recent_calls", f"{RANK_2},{KIND}", 1),
        ("recent_call_seconds", f"{RANK_2},{KIND}", 0.00002),
        ("recent_wait_seconds", f"{RANK_2.replace('2', '0', 1)},{KIND}", 0.006),
        ("last_call_timestamp_seconds", RANK_2, 1_700_000_000.01),
        ("recent_span_seconds", RANK_2, 0.006),
        ("thread_running_seconds_total", f'{RANK_2},thread="7"', 5),
        ("thread_queued_seconds_total", f'{RANK_2},thread="7"', 0.25),
        ("thread_preemptions_total", f'{RANK_2},thread="7"', 3),
        ("tcp_bytes_acked_total", f"{RANK_2},{CONNECTION}", 4000),
        ("tcp_retransmitted_segments_total", f"{RANK_2},{CONNECTION}", 3),
        ("tcp_busy_seconds_total", f"{RANK_2},{CONNECTION}", 0.5),
        ("tcp_rtt_seconds", f"{RANK_2},{CONNECTION}", 0.00012),
        ("tcp_min_rtt_seconds", f"{RANK_2},{CONNECTION}", 0.00008),
        ("tcp_delivery_rate_bytes_per_second", f"{RANK_2},{CONNECTION}", 8_000_000),
    ],
)  # fmt: skip
def test_values(metric: str, labels: str, value: float) -> None:
    assert values(str(metrics(job())))[f"mpicoll_{metric}"][labels] == pytest.approx(value)


def test_labels_are_escaped_and_the_file_is_replaced(tmp_path: Path) -> None:
    location = Location('a "b"\\c\n\udcff.py', 1, "f")
    dumps = [
        dump._replace(entries=[entry._replace(location=location) for entry in dump.entries])
        for dump in job()
    ]
    path = tmp_path / "mpicoll.prom"
    path.write_text("old")
    write(path, dumps)
    assert r'location="a \"b\"\\c\n?.py:1"' in path.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["mpicoll.prom"]


def test_the_parser_of_prometheus_reads_it() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = list(parser.text_string_to_metric_families(str(metrics(job()))))
    assert len(families) == 19


def test_only_ranks_of_this_host_are_up_or_down() -> None:
    here = os.uname().nodename
    dumps = [dump for dump in job() if dump.rank < 2]
    process = dumps[0].process._replace(host=here)
    text = str(metrics([dumps[0]._replace(process=process), dumps[1]]))
    assert values(text)["mpicoll_up"] == {f'run="job",rank="0",host="{here}"': 0}
