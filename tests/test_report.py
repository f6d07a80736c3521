"""What a report says of records with known answers, and its commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from reporting import ALPHA_US, BETA_NS, case, fit, pair, ratio, run, story, write

from mpicoll.algorithms import Algorithm, algorithms
from mpicoll.bounds import lower_bound
from mpicoll.contract import COLLECTIVES
from mpicoll.costs import Link, Network, price
from mpicoll.errors import ArgumentError
from mpicoll.report.__main__ import target_of
from mpicoll.report.charts import drawn, heat_maps
from mpicoll.report.colours import colours
from mpicoll.report.data import Report, report
from mpicoll.report.loading import load
from mpicoll.report.markup import script_data
from mpicoll.report.output import write as write_whole
from mpicoll.report.page import page
from mpicoll.report.tables import tables
from mpicoll.report.winners import winner
from mpicoll.schedule import Receive, Send

NETWORK = Network(Link(ALPHA_US / 1e6, BETA_NS / 1e9))
SVG = "{http://www.w3.org/2000/svg}"


def reported(tmp_path: Path, *records: dict[str, Any]) -> Report:
    return report(load([write(tmp_path / "records.jsonl", records)]))


# -- loading ------------------------------------------------------------------------------


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [case(), pair(0, 1)])
    found = load([path, path])
    assert len(found.cases) == len(found.pairs) == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "nothing to report"),
        ("no json\n", "line 1, is no record"),
        ('{"schema": 9}\n', "has schema 9"),
        ('{"schema": 1, "kind": "case"}\n', "line 1, is no whole record"),
        ('{"schema": 1, "kind": "run"}\n', "line 1, is no whole record"),
    ],
)
def test_files_that_cannot_be_meant(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(ArgumentError, match=complaint):
        load([path])


def test_older_records_lack_keys(tmp_path: Path) -> None:
    old = case()
    for name in ("device", "allocated", "nodes", "kind", "samples_us", "undisturbed"):
        del old[name]
    old.update(nodes=1)
    (panel,) = reported(tmp_path, old).panels
    assert str(panel.where) == "4 ranks · float32 sum"


# -- what is kept apart -------------------------------------------------------------------


def test_runs_with_other_numbers_of_ranks_share_a_setup(tmp_path: Path) -> None:
    found = reported(tmp_path, case(), case(run=run("r2", 2), ranks=2))
    assert [setup.name for setup in found.setups] == ["A"]


@pytest.mark.parametrize(
    "change",
    [
        {"libraries": {"mpi4py": "Open MPI v5.0.11"}},
        {"machines": [{"host": "h", "ranks": 4, "processor": "Q", "kernel": "K", "cores": 8}]},
        {"environment": {"UCX_TLS": "sm"}},
        {"settings": {"timing": "loop"}},
    ],
)
def test_other_conditions_are_another_setup(tmp_path: Path, change: dict[str, Any]) -> None:
    found = reported(tmp_path, case(), case(us=3.0, run=run("r2", **change)))
    assert [setup.name for setup in found.setups] == ["A", "B"]
    assert len(found.panels) == len(found.maps) == 2
    assert any("Setup B" in each.what and each.where for each in found.notices)


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": 2, "run": run("r2", 2)}, {"nodes": 2}, {"dtype": "float64"}, {"op": "max"},
        {"in_place": True}, {"allocated": True}, {"device": "cuda"}, {"collective": "scan"},
    ],
)  # fmt: skip
def test_what_is_another_case_is_another_panel(tmp_path: Path, change: dict[str, Any]) -> None:
    found = reported(tmp_path, case(), case(**change))
    assert [len(panel.curves) for panel in found.panels] == [1, 1]


def test_backends_algorithms_and_transports_are_curves_of_one_panel(tmp_path: Path) -> None:
    records = [case(), case(backend="torch"), case("ring"), case("ring@symmetric"), case(size=64)]
    (panel,) = reported(tmp_path, *records).panels
    assert [(each.backend, each.name) for each in panel.curves] == [
        ("mpi4py", "native"), ("torch", "native"), ("mpi4py", "ring"), ("mpi4py", "ring@symmetric"),
    ]  # fmt: skip
    assert [each["bytes_total"] for each in panel.curves[0].points] == [64, 1024]


def test_the_latest_run_of_a_case_counts(tmp_path: Path) -> None:
    later = run("r0", started="2026-01-02T00:00:00+0000")
    found = reported(tmp_path, case(us=7.0, run=later), case(us=9.0))
    (record,) = found.panels[0].records()
    assert record["time_us"]["median"] == 7.0
    assert any("more than once" in each.what for each in found.notices)


def test_native_auto_and_the_best_four_are_shown_at_first(tmp_path: Path) -> None:
    found = reported(tmp_path, *story())
    assert found.panels[-1].shown() == [
        "native", "auto", "ring", "rabenseifner", "one_shot", "two_shot",
    ]  # fmt: skip


def test_of_several_transports_the_fastest_is_shown(tmp_path: Path) -> None:
    records = [case("ring", 5.0), case("ring@symmetric", 4.0), case("naive@cma", 9.0)]
    assert reported(tmp_path, *records).panels[0].shown() == ["ring@symmetric", "naive@cma"]


def test_an_algorithm_has_one_colour(tmp_path: Path) -> None:
    found = reported(tmp_path, *story())
    hues = colours(found.panels, found.maps)
    assert hues["native"] == "" and len(set(hues.values())) == len(hues) == 7


# -- winners ------------------------------------------------------------------------------


def test_the_winner_is_the_fastest_correct_one() -> None:
    found = winner([case(us=20.0), case("ring", 5.0), case("naive", 1.0, correct=False)])
    assert found is not None and found.label == "ring"
    assert found.times_native == 4.0 and not found.ties


@pytest.mark.parametrize(("us", "ties"), [(10.1, True), (10.3, False)])
def test_overlapping_intervals_tie(us: float, ties: bool) -> None:
    found = winner([case("ring", 10.0), case("naive", us)])
    assert found is not None and found.ties is ties and found.times_native is None


def test_auto_does_not_tie_with_what_it_runs() -> None:
    found = winner([case("ring", 10.0), case("auto", 10.0, executed="ring"), case(us=20.0)])
    assert found is not None and not found.ties and found.runner_up["algorithm"] == "native"


def test_the_same_schedule_on_the_other_backend_is_a_rival() -> None:
    found = winner([case("ring", 10.0), case("ring", 10.05, backend="torch")])
    assert found is not None and found.ties


def test_no_winner_where_nothing_is_right() -> None:
    assert winner([case(us=None), case("ring", correct=False)]) is None


def test_a_winner_map_has_a_row_for_each_number_of_ranks(tmp_path: Path) -> None:
    found = reported(tmp_path, *story()).maps[-1]
    assert found.rows == ((2, 1), (4, 1)) and found.sizes == (64, 1024, 16384)
    assert {cell.label for cell in found.cells.values()} == {"ring"}


# -- model and bound ----------------------------------------------------------------------


def test_measured_against_model_and_bound(tmp_path: Path) -> None:
    records = [case("ring", 100.0, 4096), case("native", 50.0, 4096), fit()]
    found = {each.record["algorithm"]: each for each in reported(tmp_path, *records).against[0]}
    # Six messages of a quarter; at least two rounds, or 1.5 times the vector.
    model = 6 * (ALPHA_US + 1024 * BETA_NS / 1000)
    bound = max(2 * ALPHA_US, 1.5 * 4096 * BETA_NS / 1000)
    assert found["ring"].over_model == pytest.approx(100 / model)
    assert found["ring"].over_bound == pytest.approx(100 / bound)
    assert found["native"].model is None
    assert found["native"].over_bound == pytest.approx(50 / bound)


@pytest.mark.parametrize(
    "change",
    [
        {"library": "Open MPI"}, {"device": "cuda"}, {"backend": "torch"},
        {"run": run("pairs", machines=[{"host": "h", "processor": "Q", "cores": 1}])},
    ],
)  # fmt: skip
def test_fits_of_something_else_do_not_serve(tmp_path: Path, change: dict[str, Any]) -> None:
    assert reported(tmp_path, case("ring"), fit(**change)).against == [[]]


def test_links_of_the_transport_that_ran(tmp_path: Path) -> None:
    fast = fit("symmetric", alpha_us=0.1, beta_ns_per_byte=0.01)
    records = [case("ring", transport="symmetric"), case("naive"), fast, fit()]
    found = reported(tmp_path, *records).against[0]
    assert [each.links for each in found] == ["symmetric", "point-to-point"]


def test_a_network_of_one_node_says_nothing_of_several(tmp_path: Path) -> None:
    assert reported(tmp_path, case("ring", nodes=2), fit()).against == [[]]
    far = fit(link="network", nodes=2)
    assert len(reported(tmp_path, case("ring", nodes=2), far).against[0]) == 1


@pytest.mark.parametrize("nbytes", [64, 1 << 20])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 8])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_no_schedule_beats_the_bound(collective: str, size: int, nbytes: int) -> None:
    nbytes = nbytes // size * size if collective != "barrier" else 0
    bound = lower_bound(collective, size, nbytes, NETWORK)
    for each in _serving(collective, size):
        at_least = bound.seconds if _has_one_port(each, size) else bound.bandwidth
        assert price(each, size, nbytes, NETWORK) >= at_least * (1 - 1e-9), each


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_nor_on_nodes_that_share_a_link(collective: str) -> None:
    nodes = ((0, 1), (2, 3), (4, 5))
    network = Network(NETWORK.between, Link(1e-7, 1e-11))
    bound = lower_bound(collective, 6, 60000, network, nodes)
    assert bound.latency >= 2 * NETWORK.between.alpha
    prices = [price(each, 6, 60000, network, nodes=nodes) for each in _serving(collective, 6)]
    assert min(prices) >= bound.bandwidth * (1 - 1e-9)


def _serving(collective: str, size: int) -> list[Algorithm]:
    return [each for each in algorithms(collective) if each.needs.holds(size)]


def _has_one_port(given: Algorithm, size: int) -> bool:
    """Whether no rank sends, or receives, two messages in a round."""
    rounds = [each for rank in range(size) for each in given.rounds(rank, size)]
    kinds = [[type(op) for op in each] for each in rounds]
    return all(each.count(Send) <= 1 and each.count(Receive) <= 1 for each in kinds)


# -- warnings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "severity", "words"),
    [
        ([case(correct=False, wrong=3, message="rank 2 has 7")], "error", "wrong results"),
        ([case(correct=None)], "warning", "not checked"),
        ([case(us=None, message="no scan")], "note", "refused"),
        ([case(run=run(oversubscribed=True))], "warning", "more ranks than cores"),
        ([case(run=run(load=5.0))], "warning", "Other work"),
        ([case(run=run(git={"commit": "c", "dirty": True}))], "warning", "changed checkout"),
        ([case(undisturbed=False)], "warning", "without enough undisturbed"),
        ([case(late_share=0.2)], "warning", "started late"),
        ([case(preempted=50)], "warning", "preempted"),
        ([case(sync_error_us=1.0)], "warning", "clocks' error"),
        ([case(time_us={"median": 1.0, "low": 1, "high": 1, "p95": 9.0})], "warning", "outliers"),
        ([pair(0, 1, 9.0), pair(0, 2), pair(0, 3)], "warning", "stand out"),
        ([case(), pair(0, 1, correct=False, message="byte 3")], "error", "bytes were wrong"),
        ([case(), case(run=run("r2", git={"commit": "d", "dirty": False}))], "warning", "commits"),
    ],
)
def test_warnings(tmp_path: Path, records: list[dict[str, Any]], severity: str, words: str) -> None:
    found = reported(tmp_path, *records).notices
    (notice,) = [each for each in found if words in each.what]
    assert notice.severity == severity and notice.where


def test_sound_records_give_no_warning(tmp_path: Path) -> None:
    found = reported(tmp_path, case(), case("ring", 5.0), fit(), pair(0, 1), pair(0, 2))
    assert found.notices == []


def test_the_worst_comes_first(tmp_path: Path) -> None:
    records = [case(us=None, message="no"), case("ring", late_share=0.5), case("x", correct=False)]
    found = reported(tmp_path, *records).notices
    assert [each.severity for each in found] == ["error", "warning", "note"]


# -- tables and charts --------------------------------------------------------------------


def test_every_table_has_its_rows(tmp_path: Path) -> None:
    found = tables(reported(tmp_path, *story()))
    counts = {name: len(each.rows) for name, each in found.items()}
    assert counts == {
        "warnings": 1, "runs": 3, "machines": 3, "variables": 3, "cases": 86, "winners": 8,
        "against": 44, "pairs": 6, "fits": 2,
    }  # fmt: skip
    assert all(len(row) == len(each.columns) for each in found.values() for row in each.rows)


def test_a_panel_as_the_page_gets_it(tmp_path: Path) -> None:
    found = reported(tmp_path, case(us=20.0), case("ring", 10.0, speedup_vs_native=ratio(2.0)))
    (panel,) = drawn(found)
    ring = panel["curves"][1]
    assert ring["x"] == [1024] and ring["time"] == {"median": [10], "low": [9.9], "high": [10.1]}
    assert ring["ratio"] == [2.0] and ring["verdict"] == ["faster"]
    for word in ("ran ring over point-to-point", "100 samples", "2.00 times native", "faster"):
        assert word in ring["text"][0]


def test_heat_maps_mark_outliers(tmp_path: Path) -> None:
    (found,) = heat_maps(reported(tmp_path, *story()))
    (latency,) = found["maps"]
    assert latency["outliers"] == [[1, 2], [2, 1]]
    assert latency["z"][1][2] == 9.0 and latency["z"][0][0] is None and latency["less"]


def test_data_cannot_end_its_element() -> None:
    text = script_data({"a": "</script><!--", "b": "&"})
    assert "<" not in text and json.loads(text) == {"a": "</script><!--", "b": "&"}


def test_a_page_escapes_what_records_hold(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    hostile = "<script>alert(1)</script>"
    content = page(reported(tmp_path, *story(hostile), case(message=hostile, correct=False)))
    assert hostile not in content and "&lt;script&gt;alert(1)" in content


def test_without_pairs_the_page_says_how_to_make_them(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    assert "mpirun -n 4 python -m mpicoll.p2p" in page(reported(tmp_path, case()))


# -- the command --------------------------------------------------------------------------


def command(*arguments: str | Path, before: str = "pass") -> subprocess.CompletedProcess[str]:
    call = "import runpy; runpy.run_module('mpicoll.report', run_name='__main__', alter_sys=True)"
    return subprocess.run(
        [sys.executable, "-c", f"import sys; {before}; {call}", *map(str, arguments)],
        capture_output=True, text=True, timeout=120,
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
        (["a.jsonl"], "Missing option"),
        (["-o", "r.html"], "Missing argument"),
    ],
)
def test_bad_usage_leaves_with_2(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    write(Path("a.jsonl"), [case()])
    done = command(*arguments)
    assert done.returncode == 2 and complaint in done.stderr
    assert "Traceback" not in done.stderr and [each.name for each in Path().iterdir()] == [
        "a.jsonl"
    ]


@pytest.mark.parametrize(("output", "module"), [("r.html", "plotly"), ("figures", "matplotlib")])
def test_a_missing_library_is_named_with_its_extra(
    output: str, module: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", [case()])
    done = command(path, "-o", tmp_path / output, before=f"sys.modules['{module}'] = None")
    assert done.returncode == 2 and f"{module}: pip install 'mpicoll[report]'" in done.stderr
    assert not (tmp_path / output).exists()


def test_neither_mpi_nor_torch_is_needed(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    path = write(tmp_path / "a.jsonl", story())
    hidden = "sys.modules.update(dict.fromkeys(('mpi4py', 'torch', 'cupy', 'matplotlib')))"
    done = command(path, "-o", tmp_path / "r.html", before=hidden)
    assert done.returncode == 0, done.stderr
    assert "r.html" in done.stdout and (tmp_path / "r.html").stat().st_size > 1_000_000


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "r.html").write_text("before")

    def fail(fresh: Path) -> None:
        fresh.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ArgumentError, match="No space left"):
        write_whole(tmp_path / "r.html", fail)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("r.html", "before")]


# -- figures ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib")
    from mpicoll.report.figures import figures

    place = tmp_path_factory.mktemp("figures")
    found = reported(place, *(each for each in story() if each.get("ranks") == 4))
    assert len(figures(found, place / "out")) == 16
    return place / "out"


FIGURES = [
    "allreduce-4-ranks-float32-sum-curves", "allreduce-4-ranks-float32-sum-speedup",
    "allreduce-4-ranks-float32-sum-bound", "allreduce-float32-sum-winners",
    "barrier-4-ranks-curves", "barrier-4-ranks-bound", "barrier-winners",
    "pairs-mpi4py-point-to-point-4-ranks-pairs",
]  # fmt: skip


def test_every_figure_is_there_twice(drawings: Path) -> None:
    expected = sorted(f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png"))
    assert sorted(each.name for each in drawings.iterdir()) == expected


@pytest.mark.parametrize("name", FIGURES)
def test_the_text_of_an_svg_is_text(drawings: Path, name: str) -> None:
    root = ElementTree.parse(drawings / f"{name}.svg").getroot()
    texts = [text for each in root.iter(f"{SVG}text") if (text := "".join(each.itertext()))]
    assert root.tag == f"{SVG}svg" and len(texts) > 3
    assert (drawings / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_curves_are_told_apart_without_colour(drawings: Path) -> None:
    text = (drawings / "allreduce-4-ranks-float32-sum-curves.svg").read_text()
    assert "stroke-dasharray" in text and ">torch<" in text and ">rabenseifner<" in text
