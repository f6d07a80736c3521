"""The classes of records: what is written comes back, and what is none is named."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from mpicoll.errors import ArgumentError
from mpicoll.records.description import FullRun, Run
from mpicoll.records.lines import KINDS, CaseRecord, RunRecord, json_schema
from mpicoll.records.reading import encoded, full, load, only, record_of, runs
from mpicoll.report.checking import main

RUN = {
    "id": "a", "hosts": ["n1", "n1"], "cores": [[0], [1]], "load": 0.5, "quota": None,
    "libraries": {"mpi4py": "MPICH"},
}  # fmt: skip
OLDEST: dict[str, Any] = {
    "schema": 1, "run": RUN, "collective": "allreduce", "algorithm": "ring", "backend": "mpi4py",
    "dtype": "float32", "op": "sum", "root": None, "in_place": False, "ranks": 2,
    "bytes_total": 64, "time_us": {"median": 3, "low": 2, "high": 4}, "correct": True,
}  # fmt: skip
BETWEEN = {"schema": 1, "run": RUN, "backend": "mpi4py", "transport": "cma", "ranks": 2}
PAIR = {"kind": "pair", "quantity": "latency", "source": 0, "target": 1, "link": "same node",
        "bytes": 8, "time_us": None}  # fmt: skip
LINES: list[dict[str, Any]] = [
    {"schema": 1, "kind": "run", "run": RUN | {"stack": {}, "git": None}},
    OLDEST,
    OLDEST | {"kind": "case", "time_us": None, "message": "refused"},
    BETWEEN | PAIR,
    BETWEEN | {"kind": "fit", "link": "same node", "alpha_us": 1, "beta_ns_per_byte": 0.1},
    BETWEEN | {"kind": "fan_out", "source": 0, "peers": 2, "bytes": 8, "time_us": 2,
               "GBps": 3},
    {"schema": 1, "kind": "twins", "case": "x", "backend": "torch", "ranks": 2, "delay": 5,
     "verdict": "tie"},
    {"schema": 1, "kind": "launch", "configuration": "mpich-2-forced1", "launch": 3,
     "environment": "mpich", "threads": "single", "ranks": 2, "run": "a",
     "forced": {"allreduce": {"algorithm": "ring", "ours": "ring", "variables": {"A": "b"},
                              "obeyed": True, "said": "", "refused": [4]}}},
]  # fmt: skip


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.get("kind", "oldest"))
def test_a_line_is_read_written_and_read_again(line: dict[str, Any]) -> None:
    record = record_of(json.dumps(line), "here")
    assert isinstance(record, KINDS[line.get("kind", "case")])
    again = encoded(record)
    assert again.startswith('{"schema": 1, "kind": "')
    assert record_of(again, "here") == record
    written = json.loads(again)
    assert all(written[key] == line[key] for key in line if key not in ("run", "time_us"))
    validator().validate(line)
    validator().validate(written)


@cache
def validator() -> jsonschema.Draft202012Validator:
    """Return what checks lines against the schema, which a test of its own checks."""
    return jsonschema.Draft202012Validator(json_schema())


def test_every_kind_is_tested() -> None:
    assert {line.get("kind", "case") for line in LINES} == set(KINDS)


def test_an_old_case_has_defaults_and_unknown_keys_and_kinds_are_ignored(tmp_path: Path) -> None:
    (record,) = load(
        write(tmp_path / "old", [OLDEST | {"colour": 1}, {"schema": 1, "kind": "colour"}])
    )
    assert isinstance(record, CaseRecord)
    assert (record.kind, record.device, record.nodes, record.allocated) == ("case", "cpu", 1, False)
    assert (
        record.time_us is not None
        and record.time_us.median == 3.0
        and record.run.hosts == ["n1", "n1"]
    )


def test_keys_of_a_run_without_a_value_are_not_written() -> None:
    assert "gpu_copy_GBps" not in encoded(Run()) and "sizes" not in encoded(FullRun())
    assert json.loads(encoded(Run(gpu_copy_GBps=3.5)))["gpu_copy_GBps"] == 3.5


def test_the_records_of_a_kind_and_the_runs(tmp_path: Path) -> None:
    records = load(write(tmp_path / "a", LINES))
    assert [record.message for record in only(CaseRecord, records)] == [None, "refused"]
    assert runs(records) == {"a": only(RunRecord, records)[0].run}
    assert full(only(CaseRecord, records)[0].run).hosts == ["n1", "n1"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("no json", "line 1, is no record"),
        ("[1]", "line 1, is no record"),
        ('{"kind": "case"}', "line 1, is no record"),
        ('{"schema": 2}', "line 1, has schema 2: this reads 1"),
        ('{"schema": 1}', "line 1, is no whole record: .*run"),
        (json.dumps(OLDEST | {"time_us": {"median": "3"}}), r"Expected `float`.*time_us.median"),
        (json.dumps(OLDEST | {"time_us": {"median": -3}}), "time_us.median"),
        (json.dumps(OLDEST | {"ranks": 0}), "ranks"),
        (json.dumps(OLDEST | {"bytes_total": 1.5}), "bytes_total"),
        (json.dumps(OLDEST).replace("64", "NaN"), "bytes_total"),
    ],
)
def test_a_line_that_is_no_record_is_named(line: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ArgumentError, match=complaint):
        load(path)


# -- the command --------------------------------------------------------------------------


def test_the_schema_is_one_and_refuses_what_is_no_record() -> None:
    schema = json.loads(CliRunner().invoke(main, ["--schema"]).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    for bad in (OLDEST | {"ranks": "two"}, {"schema": 1, "kind": "fit"}, []):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(schema).validate(bad)


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    good = write(tmp_path / "good", LINES)
    result = CliRunner().invoke(main, [str(good)])
    assert (
        result.exit_code == 0
        and ", 2 cases, 1 pair, 1 fit, 1 fan-out, 1 A/A test," in result.stdout
    )
    bad = write(tmp_path / "bad", [*LINES, OLDEST | {"ranks": None}])
    result = CliRunner().invoke(main, [str(good), str(bad)])
    assert result.exit_code == 1
    assert f"{bad}, line {len(LINES) + 1}, is no whole record" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["--schema", "x"], ["nowhere"]])
def test_bad_usage_leaves_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, arguments).exit_code == 2
