"""Records as tables: rows, types, and the example of the documentation."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from launcher import ROOT
from msgspec import UNSET
from msgspec.structs import replace

from mpicoll.errors import ArgumentError
from mpicoll.records.lines import KINDS, CaseRecord, SpeedupVsStrongest
from mpicoll.records.reading import load, only
from mpicoll.report.checking import main

pyarrow = pytest.importorskip("pyarrow")
FILE = Path(__file__).parent / "files" / "bench_1.jsonl"
PAIRS = FILE.with_name("pairs.jsonl")
PAGE = ROOT / "mpicoll" / "docs" / "howto" / "figures_for_a_paper.md"


def cases() -> list[CaseRecord]:
    return only(CaseRecord, load(FILE))


def test_a_row_for_each_case() -> None:
    from mpicoll.records.columns import table

    rows = table(cases()).to_pylist()
    assert [row["time_us.median"] for row in rows] == [
        record.time_us.median if record.time_us else None for record in cases()
    ]
    assert {row["run.id"] for row in rows} == {record.run.id for record in cases()}
    assert not [row for row in rows if "samples_us" in row]


def test_a_column_of_nulls_has_its_type() -> None:
    from mpicoll.records.columns import table

    empty = table([])
    assert empty.num_rows == 0
    assert empty.schema.field("time_us.p99").type == pyarrow.float64()
    assert empty.schema.field("root").type == pyarrow.int64()
    assert empty.schema.field("correct").type == pyarrow.bool_()
    assert empty.schema.field("speedup_vs_native.verdict").type == pyarrow.string()


def test_the_cells_of_a_study_keep_all_their_fields() -> None:
    from mpicoll.records.columns import table

    strongest = SpeedupVsStrongest(1.5, 1.2, 1.7, "faster", "native", "open_mpi")
    cell = replace(cases()[0], launches=7, spread_between=0.25, speedup_vs_strongest=strongest)
    cell_row, case_row = table([cell, cases()[0]]).to_pylist()
    assert (cell_row["launches"], cell_row["spread_between"]) == (7, 0.25)
    assert cell_row["speedup_vs_strongest.environment"] == "open_mpi"
    assert case_row["launches"] is None and case_row["speedup_vs_strongest.ratio"] is None


@pytest.mark.parametrize("name", ["records.parquet", "records.arrow"])
def test_the_command_writes_a_file(tmp_path: Path, name: str) -> None:
    from pyarrow import feather, parquet

    result = CliRunner().invoke(main, [str(FILE), str(FILE), "-o", str(tmp_path / name)])
    assert result.exit_code == 0, result.output
    read = parquet.read_table if name.endswith("parquet") else feather.read_table
    assert read(str(tmp_path / name)).num_rows == 2 * len(cases())
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["records.parquet", "records.arrow"])
def test_a_table_is_read_as_the_file_it_came_from(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert CliRunner().invoke(main, [str(FILE), str(PAIRS), "-o", str(path)]).exit_code == 0
    restored = {kind: [r for r in load(path) if r.kind == kind] for kind in KINDS}
    lines = [*load(FILE), *load(PAIRS)]
    original = {kind: [r for r in lines if r.kind == kind] for kind in KINDS}
    for record in original["case"]:
        record.samples_us, record.blocks, record.first_wrong = [], UNSET, None
    for record in original["pair"]:
        record.samples_us, record.visits_us = [], []
    runs = {record.run.id: record.run for record in restored["run"]}
    for record in restored["case"]:
        assert runs[record.run.id].hosts == record.run.hosts
    assert restored == original
    result = CliRunner().invoke(main, [str(path)])
    assert result.exit_code == 0 and f"{len(cases())} cases" in result.output


@pytest.mark.parametrize("content", ["rows", b"PAR1 and no more", b"", None])
def test_a_foreign_table_is_refused(tmp_path: Path, content: bytes | str | None) -> None:
    from pyarrow import parquet

    path = tmp_path / "records.parquet"
    if content == "rows":
        parquet.write_table(pyarrow.table({"size": [1]}), path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(ArgumentError, match=re.escape(str(path))):
        load(path)


def test_another_extension_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(FILE), "-o", str(tmp_path / "records.xlsx")])
    assert result.exit_code == 2
    assert "give the name of a table, .parquet or .arrow" in result.stderr


def test_the_example_draws_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    from mpicoll.records.columns import save

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    save(cases(), Path("records.parquet"), ".parquet")
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(block, names)
    curves = names["curves"]
    medians = {
        (record.bytes_total, record.algorithm): record.time_us.median
        for record in cases()
        if record.collective == "allreduce" and record.time_us
    }
    assert {key: curves.loc[key] for key in medians} == medians  # type: ignore[attr-defined]
    assert Path("allreduce.svg").read_text().count("<svg") == 1
    assert "pandas" in sys.modules
