"""What a report writes: tables, charts, pages, figures; and its command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from launcher import LIMIT
from reporting import case, pair, ratio, reported, run, story, write

from mpicoll.errors import ArgumentError
from mpicoll.report.__main__ import main, target_of
from mpicoll.report.charts import heat_maps, panel_values
from mpicoll.report.page import finite, page
from mpicoll.report.tables import tables
from mpicoll.text.files import write_whole

BARRIER: dict[str, Any] = {
    "collective": "barrier", "dtype": None, "op": None, "algbw_GBps": None, "busbw_GBps": None,
}  # fmt: skip
SVG = "{http://www.w3.org/2000/svg}"


def test_every_table_has_its_rows(tmp_path: Path) -> None:
    all_tables = tables(reported(tmp_path, *story()))
    counts = {name: len(table.rows) for name, table in all_tables.items()}
    assert counts == {
        "warnings": 1, "runs": 3, "machines": 3, "variables": 3, "cases": 86, "winners": 8,
        "model": 44, "pairs": 6, "fits": 2,
    }  # fmt: skip
    assert all(
        len(row) == len(table.columns) for table in all_tables.values() for row in table.rows
    )


def test_a_panel_as_the_page_gets_it(tmp_path: Path) -> None:
    report = reported(tmp_path, case(us=20.0), case("ring", 10.0, speedup_vs_native=ratio(2.0)))
    (panel,) = panel_values(report)
    ring = panel["curves"][1]
    assert ring["x"] == [1024] and ring["time"] == {"median": [10], "low": [9.9], "high": [10.1]}
    assert ring["speedup"]["ratio"] == [2.0] and ring["speedup"]["decision"] == ["faster"]
    for word in ("ran ring over point-to-point", "100 samples", "2.00 times native", "faster"):
        assert word in ring["text"][0]


def test_heat_maps_mark_outliers(tmp_path: Path) -> None:
    (maps,) = heat_maps(reported(tmp_path, *story()))
    (latency,) = maps["maps"]
    assert latency["outliers"] == [[1, 2], [2, 1]]
    assert latency["z"][1][2] == 9.0 and latency["z"][0][0] is None and latency["lessIsBetter"]


def test_a_number_that_json_lacks_is_null() -> None:
    assert finite({"a": [float("nan"), float("inf"), (1.5,)]}) == {"a": [None, None, [1.5]]}


HOSTILE = ["<script>alert(1)</script>", "</script><!--", "\"' onload='alert(1)", "{{ 7 * 7 }} &"]


class Reading(HTMLParser):
    """Every text and attribute of a page, and the data that its script reads."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.names: Counter[str] = Counter()
        self.data, self._is_data = "", False
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.update([tag, *(name for name, _ in attrs)])
        self.texts += [value for _, value in attrs if value]
        self._is_data = ("id", "data") in attrs

    def handle_data(self, data: str) -> None:
        if self._is_data:
            self.data += data
        else:
            self.texts.append(data)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_page_escapes_the_text_of_records(hostile: str, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    records = [
        case(hostile, 5.0, executed=hostile, dtype=hostile, run=run(host=hostile)),
        case(collective=hostile, message=hostile, correct=False, run=run(host=hostile)),
        pair(0, 1, 9.0, source_host=hostile), pair(0, 2), pair(0, 3),
    ]  # fmt: skip
    reading = Reading(page(reported(tmp_path, *records)))
    assert reading.names["script"] == 3 and not reading.names["onload"]
    # A setup, a winner's cell and its title, a collective, a notice, at the least.
    assert sum(hostile in text for text in reading.texts) >= 5
    assert [panel["collective"] for panel in json.loads(reading.data)["panels"]] == [
        "allreduce", hostile,
    ]  # fmt: skip


def test_without_pairs_the_page_says_how_to_make_them(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    assert "mpirun -n 4 python -m mpicoll.p2p" in page(reported(tmp_path, case()))


# -- the command --------------------------------------------------------------------------


def command(*arguments: str | Path, setup: str = "pass") -> subprocess.CompletedProcess[str]:
    call = "import runpy; runpy.run_module('mpicoll.report', run_name='__main__', alter_sys=True)"
    return subprocess.run(
        [sys.executable, "-c", f"import sys; {setup}; {call}", *map(str, arguments)],
        capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("output", "is_page"),
    [("a.html", True), ("a.HTM", True), ("figures", False), ("figures/", False)],
)
def test_the_name_says_what_is_wanted(
    output: str, is_page: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert target_of(output) == (Path(output), is_page)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["a.jsonl", "-o", "report.pdf"], "give the name of a page"),
        (["a.jsonl", "-o", "a.jsonl"], "give the name of a page"),
        (["missing.jsonl", "-o", "r.html"], "cannot read missing.jsonl"),
        (["a.jsonl", "-o", "missing/r.html"], "cannot write missing/r.html"),
        (["a.jsonl", "-o", "a.jsonl/figures"], "cannot write a.jsonl/figures"),
        (["a.jsonl", "-o", ""], "-o '' names nothing"),
        (["", "-o", "r.html"], "'' names nothing"),
        (["missing.jsonl"], "cannot read missing.jsonl"),
        (["-o", "r.html"], "give files of records, or --schema"),
        (["a.jsonl", "--schema"], "give files of records, or --schema"),
        (["a.jsonl", "-o", "missing/r.parquet"], "cannot write missing/r.parquet"),
    ],
)
def test_bad_usage_leaves_with_2(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a.jsonl"), [case()])
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and complaint in result.output and "Traceback" not in result.output
    assert [path.name for path in Path().iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(("output", "module"), [("r.html", "plotly"), ("figures", "matplotlib")])
def test_a_missing_library_is_named_with_its_extra(
    output: str, module: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", [case()])
    result = command(path, "-o", tmp_path / output, setup=f"sys.modules['{module}'] = None")
    assert result.returncode == 2 and f"{module}: pip install 'mpicoll[report]'" in result.stderr
    assert not (tmp_path / output).exists()


def test_neither_mpi_nor_torch_is_needed(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    path = write(tmp_path / "a.jsonl", story())
    hidden = "sys.modules.update(dict.fromkeys(('mpi4py', 'torch', 'cupy', 'matplotlib')))"
    result = command(path, "-o", tmp_path / "r.html", setup=hidden)
    assert result.returncode == 0, result.stderr
    assert "r.html" in result.stdout and (tmp_path / "r.html").stat().st_size > 1_000_000


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "r.html").write_text("before")

    def fail(fresh: Path) -> None:
        fresh.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ArgumentError, match="No space left"):
        write_whole(tmp_path / "r.html", fail)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("r.html", "before")]


# -- figures ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib")
    from mpicoll.report.figures import figures

    place = tmp_path_factory.mktemp("figures")
    report = reported(place, *(record for record in story() if record.get("ranks") == 4))
    assert len(figures(report, place / "out")) == 16
    return place / "out"


FIGURES = [
    "allreduce-4-ranks-float32-sum-curves", "allreduce-4-ranks-float32-sum-speedup",
    "allreduce-4-ranks-float32-sum-bound", "allreduce-float32-sum-winners",
    "barrier-4-ranks-curves", "barrier-4-ranks-bound", "barrier-winners",
    "pairs-mpi4py-point-to-point-4-ranks-pairs",
]  # fmt: skip


@pytest.mark.exhaustive
def test_every_figure_is_there_twice(drawings: Path) -> None:
    expected = sorted(f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png"))
    assert sorted(path.name for path in drawings.iterdir()) == expected


@pytest.mark.parametrize("name", FIGURES)
def test_the_text_of_an_svg_is_text(drawings: Path, name: str) -> None:
    root = ElementTree.parse(drawings / f"{name}.svg").getroot()
    texts = [text for element in root.iter(f"{SVG}text") if (text := "".join(element.itertext()))]
    assert root.tag == f"{SVG}svg" and len(texts) > 3
    assert (drawings / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_map_of_barriers_has_no_column_of_data(drawings: Path) -> None:
    text = (drawings / "barrier-winners.svg").read_text()
    assert ">moves no bytes<" in text and "no data" not in text and ">bytes in total<" not in text


def test_few_samples_are_drawn_as_such(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from mpicoll.report.figures import figures

    too_few: dict[str, Any] = {"samples": 1, "samples_us": [1.0]}
    report = reported(tmp_path, case("ring", 1.0, 64, **too_few), case("ring", 1.0, 4096), *[
        case(name, 2.0, 0, **BARRIER, **too_few) for name in ("native", "tree")
    ])  # fmt: skip
    figures(report, tmp_path / "out")
    texts = {path.stem: path.read_text() for path in (tmp_path / "out").glob("*.svg")}
    assert texts["allreduce-float32-sum-winners"].count(">n &lt; 6<") == 1
    assert texts["barrier-winners"].count(">n &lt; 6<") == 1
    for name in ("allreduce-4-ranks-float32-sum-curves", "barrier-4-ranks-curves"):
        assert "opacity: 0.3" in texts[name]
    assert "opacity: 0.3" not in texts["allreduce-float32-sum-winners"]


def test_the_page_names_no_winner_of_few_samples(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    too_few: dict[str, Any] = {"samples": 1, "samples_us": [1.0]}
    barrier = case("native", 1.0, 0, **BARRIER, **too_few)
    text = page(reported(tmp_path, case("ring", 1.0, 64, **too_few), barrier))
    assert text.count("<small>n &lt; 6</small>") == 2
    assert '<th scope="col">moves no bytes</th>' in text and ">no data<" not in text


def test_curves_are_told_apart_without_colour(drawings: Path) -> None:
    text = (drawings / "allreduce-4-ranks-float32-sum-curves.svg").read_text()
    assert "stroke-dasharray" in text and ">torch<" in text and ">rabenseifner<" in text
