"""Damaged files: each is named with its line, or read; none is changed, and no command breaks."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import mutations
import pytest
from click.testing import CliRunner, Result
from mutations import COSTS, KINDS, RECORDS, Kind, failures, figures, kind_of, samples
from reporting import case, fit, pair, run, write

from mpicoll.compare.__main__ import main as compare
from mpicoll.costs.__main__ import main as costs
from mpicoll.errors import ArgumentError
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import load, only
from mpicoll.report import charts, data, draw_maps, loading
from mpicoll.report.__main__ import main as report
from mpicoll.report.checking import main as records
from mpicoll.study.__main__ import main as study


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return samples(tmp_path_factory.mktemp("samples"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_no_reader_breaks_on_a_damaged_file(kind: str, files: list[Path]) -> None:
    """See `mutations.py`: as a command it tries as many files as one likes."""
    chosen = [file for file in files if kind_of(file) == kind]
    numbers, draws = (range(150), 100) if kind == "records" else (range(30), 0)
    assert [failure.error for failure in failures(chosen, numbers, draws=draws, ways=1)] == []


def test_a_reader_that_breaks_or_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> None:
        while True:
            pass

    def planted(*_: object) -> dict[str, Callable[[], object]]:
        return {"broken": lambda: 1 // 0, "endless": never}

    monkeypatch.setitem(KINDS, "records", Kind(KINDS["records"].damage, planted))
    monkeypatch.setattr(mutations, "_is_read", lambda path: True)
    monkeypatch.setattr(mutations, "_MOST_SECONDS", 0.05)
    first, second = [*failures(RECORDS, range(5, 7))], [*failures(RECORDS, range(6, 7))]
    assert [failure.reader for failure in first] == ["broken", "endless"] * 2
    assert "ZeroDivisionError" in first[0].error and "Unending" in first[1].error
    assert second[0].content == first[2].content != first[0].content


def test_every_reader_reads_some_whole_file(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    monkeypatch.setattr(mutations.environments, "_output", mutations.succeed)
    neighbours = {kind_of(file): file for file in files} | {"records": RECORDS[1]}
    every, works = set(), set()
    for path in files:
        kind = kind_of(path)
        for name, read in KINDS[kind].readers(path, neighbours[kind], tmp_path).items():
            every.add((kind, name))
            if (kind, name) not in works and mutations._tried(read) == "read":
                works.add((kind, name))
    assert {kind for kind, _ in every} == KINDS.keys()
    assert every == works


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_files_are_whole(path: Path) -> None:
    assert len(load(path)) == len(path.read_text().splitlines())


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (case(samples_us=[10.0] * 99 + [NAN]), "samples_us"),
        (case(samples_us=[10.0] * 99 + [INFINITE]), "samples_us"),
        (case(samples_us=[10.0] * 99 + [0.0]), "samples_us"),
        (case(samples_us=[10.0] * 99 + [-10.0]), "samples_us"),
        (case(samples_us=[10.0] * 99), "samples is 100, and samples_us has 99"),
        (case(time_us=None), "samples_us without time_us"),
        (case(time_us={"median": 3, "low": 4, "high": 5}), "time_us is 3.0, outside of its"),
        (case(speedup_vs_native={"ratio": NAN, "low": 1, "high": 2, "verdict": "tie"}), "ratio"),
        (
            case(
                speedup_vs_strongest={
                    "ratio": 3,
                    "low": 1,
                    "high": 2,
                    "verdict": "faster",
                    "against": "native",
                    "environment": None,
                }
            ),
            "speedup_vs_strongest is 3.0, outside of its interval 1.0 .. 2.0",
        ),
        (case(slowest_rank=4), "slowest_rank is 4 of 4 ranks"),
        (case(nodes=5), "nodes is 5 of 4 ranks"),
        (case(algorithm="a" * 2000), "algorithm"),
        (case(first_wrong={"rank": 0, "count": 1, "index": 0, "expected": [], "got": 0}), "expect"),
        (case(run=run(cores=[[0]])), "1 ranks in run.cores and 4 in run.hosts"),
        (case(ranks=8), "ranks is 8, and run.hosts has 4"),
        (pair(0, 4), "target is 4 of 4 ranks"),
        (pair(0, 1, ranks=10**9), "ranks"),
        (pair(0, 1, quantity="one_way"), "time_us without GBps"),
        (pair(0, 1, outlier=True, typical=None), "outlier without typical"),
        (fit(GBps=INFINITE), "GBps"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_impossible_values_end_a_command_with_2_and_the_line(
    record: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    good, bad = write(tmp_path / "a", [case()]), write(tmp_path / "b", [case(), record])
    for command, arguments in (
        (compare, [good, bad]), (compare, [bad, good]), (study, [bad]),
        (report, [bad, "-o", tmp_path / "x.html"]), (costs, [*COSTS, "--from", bad]),
    ):  # fmt: skip
        result = CliRunner().invoke(command, [*map(str, arguments)])
        assert result.exit_code == 2
        text = " ".join(result.output.split())
        assert f"{bad}, line " in text and complaint in text


COMMANDS: dict[str, tuple[click.Command, tuple[str, ...]]] = {
    "compare": (compare, ("{file}", "{file}")),
    "report": (report, ("{file}", "-o", "{folder}/x.html")),
    "costs": (costs, (*COSTS, "--from", "{file}")),
    "study": (study, ("{file}",)),
    "records": (records, ("{file}",)),
}


def read_by(name: str, file: Path) -> Result:
    """Return how a command ends that reads a file."""
    if name == "report":
        pytest.importorskip("plotly")
    command, arguments = COMMANDS[name]
    filled = [argument.format(file=file, folder=file.parent) for argument in arguments]
    return CliRunner().invoke(command, filled)


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """Return a file of records that each command reads."""
    rows = [case(name, 10.0 + n, 64 << n) for n in range(3) for name in ("native", "ring")]
    return write(tmp_path / "whole", [*rows, fit()]).read_bytes()


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("form", ["gzip", "mark", "no break"])
def test_each_command_reads_whole_files_of_other_forms(
    name: str, form: str, content: bytes, tmp_path: Path
) -> None:
    forms = {"gzip": gzip.compress(content), "mark": b"\xef\xbb\xbf" + content,
             "no break": content[:-1]}  # fmt: skip
    path = tmp_path / "records.jsonl"
    outputs = []
    for form_of_it in (content, forms[form]):
        path.write_bytes(form_of_it)
        result = read_by(name, path)
        assert result.exit_code == 0, result.output
        outputs.append(result.output)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_names_a_torn_line(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(content + content[:40])
    result = read_by(name, path)
    assert result.exit_code == (1 if name == "records" else 0)
    number = content.count(b"\n") + 1
    assert f"{path}, line {number}, has no end: its writer was interrupted" in result.output


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        ("utf-16", "is UTF-16 text: give lines of JSON in UTF-8"),
        ("utf-16-le", "is UTF-16 text without a mark"),
        ("utf-32", "is UTF-32 text"),
        (bz2.compress, "is compressed by bzip2"),
        (lzma.compress, "is compressed by xz"),
        (lambda text: b"PAR1" + text, "is a Parquet table"),
        (lambda text: gzip.compress(text)[:-9], "its gzip data is damaged"),
        (lambda text: gzip.compress(text.decode().encode("utf-16")), "is UTF-16 text"),
    ],
)
def test_each_command_names_another_encoding(
    name: str, encoded: str | Callable[[bytes], bytes], message: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    changed = content.decode().encode(encoded) if isinstance(encoded, str) else encoded(content)
    path.write_bytes(changed)
    result = read_by(name, path)
    assert result.exit_code == 2 and message in " ".join(result.output.split())
    assert "no record of the benchmark" not in result.output


@pytest.mark.parametrize(
    ("changes", "maps"), [([{"ranks": 30000}, {}], 0), ([{"ranks": 2}, {}], 1), ([{"nodes": 3}], 1)]
)
def test_pairs_of_contradicting_or_of_many_ranks(
    changes: list[Any], maps: int, tmp_path: Path
) -> None:
    ends, pairs_run = ((0, 1), (2, 3)), run("pairs", 0)
    pairs = [
        pair(*ends_of_pair, **more, run=pairs_run)
        for ends_of_pair, more in zip(ends, changes, strict=False)
    ]
    path = write(tmp_path / "a", pairs)
    shown = data.report(loading.load([path]))
    assert len(charts.heat_maps(shown)) == len(list(draw_maps.pair_maps(shown))) == maps
    assert any("more than 1024 ranks" in notice.title for notice in shown.notices) == (not maps)
    figures(path, tmp_path)


def test_many_samples_are_compared(tmp_path: Path) -> None:
    samples = [10.0 + number % 7 for number in range(30_000)]
    half = [sample / 2 for sample in samples]
    files = [
        write(tmp_path / name, [case(samples_us=values, samples=len(values))])
        for name, values in (("a", samples), ("b", half))
    ]
    result = CliRunner().invoke(compare, [*map(str, files)])
    assert result.exit_code == 0 and "1 faster" in result.output


@pytest.mark.parametrize("depth", [100, 990, 5000, 200_000])
def test_deep_nesting_is_no_record(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "deep"
    line = json.dumps(case(message="nested")).replace('"nested"', "[" * depth + "]" * depth)
    path.write_text(line + "\n")
    with pytest.raises(ArgumentError, match=f"{path}, line 1, is no (whole )?record"):
        load(path)
    # A key that is not known is left out, whatever it holds.
    path.write_text(line.replace('"message"', '"new"') + "\n")
    if depth < 500:
        assert load(path)


def test_texts_cannot_steer_a_terminal(tmp_path: Path) -> None:
    hostile = "ring\x1b]0;owned\x07\x9b31m\u202e\ud800\r"
    path = write(tmp_path / "a", [case(hostile, run=run(host=hostile))])
    (record,) = only(CaseRecord, load(path))
    assert record.algorithm == r"ring\x1b]0;owned\x07\x9b31m\u202e\ud800\r"
    assert CliRunner().invoke(compare, [str(path), str(path)]).exit_code == 0


def test_texts_cannot_steer_a_page_of_markdown(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>|[a](b)`\\<script>\n# d"
    hosts = run(host=hostile, library=hostile)
    path = write(tmp_path / "a", [case("native", run=hosts), case(hostile, run=hosts)])
    comparison = CliRunner().invoke(compare, [str(path), str(path), "--format", "markdown"])
    summary = CliRunner().invoke(study, ["--records", str(path), "-o", str(tmp_path / "out")])
    tables = CliRunner().invoke(study, [str(path)])
    findings = (tmp_path / "out" / "findings.md").read_text()
    assert comparison.exit_code == summary.exit_code == tables.exit_code == 0
    assert "\\<img" in comparison.output and "\\<img" in findings
    for text in (comparison.output, findings, tables.output):
        plain = re.sub(r"\\[\\<|[`]", "", text)
        assert not re.search(r"<|\[a\]|`|^# d", plain, re.MULTILINE), text


def test_credentials_in_older_files_are_not_shown(tmp_path: Path) -> None:
    secret = "s3cr3t-value"
    run_of_secrets = run(
        environment={
            "SLURM_JWT": secret, "MPI_CREDENTIAL": secret, "HOME": secret, "UCX_TLS": "tcp",
            "NCCL_PROXY": f"http://me:{secret}@host", "FI_AUTH_KEY": secret,
        },
        argv=["bench", "--auth-token", secret, f"--password={secret}", f"tcp://me:{secret}@h:1"],
        command=["--secret", secret],
    )  # fmt: skip
    path, page = write(tmp_path / "a", [case(run=run_of_secrets)]), tmp_path / "a.html"
    pytest.importorskip("plotly")
    assert CliRunner().invoke(report, [str(path), "-o", str(page)]).exit_code == 0
    text = page.read_text()
    assert secret not in text and "SLURM_JWT" not in text and "UCX_TLS" in text
    assert "http://***@host" in text and "tcp://***@h:1" in text


def test_an_error_cannot_steer_a_terminal_by_the_name_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J"
    path.write_text("[]\n")
    result = CliRunner().invoke(study, [str(path)])
    assert result.exit_code == 2 and "\x1b" not in result.output and r"a\x1b[2J" in result.output
