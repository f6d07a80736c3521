"""Rankings, crossovers and the command that prints them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from reporting import case, fit
from reporting import run as described
from rich.console import Console

from mpicoll.algorithms.registry import find
from mpicoll.cli import verbosity
from mpicoll.costs import FatTree, Hockney, LogGP, Model, Switch, pattern_of, simulate
from mpicoll.costs.__main__ import main
from mpicoll.costs.fitting import fitted
from mpicoll.costs.ranking import Scenario, candidates, curve, rank
from mpicoll.costs.rendering import RankingOutput, tables
from mpicoll.errors import ArgumentError
from mpicoll.measurement.hockney import least_squares
from mpicoll.records.lines import Record
from mpicoll.records.reading import parse

ALPHA, BETA, GAMMA = 3e-6, 2e-10, 1e-10
MODEL: Model = Hockney(ALPHA, BETA, GAMMA)


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def records(*args: str) -> list[dict[str, Any]]:
    result = run(*args, "--format", "jsonl")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_crossover_of_two_closed_forms() -> None:
    """3 (a + m (b + g)) and 6 a + 7/8 m (2 b + g) meet at one size."""
    scenario = Scenario("allreduce", MODEL, Switch(8))
    families = candidates("allreduce", ["recursive_doubling", "rabenseifner"])
    first, last = rank(scenario, families, (8, 1 << 30)).ranges(8, 1 << 30)
    crossing = 3 * ALPHA / (3 * (BETA + GAMMA) - 7 / 8 * (2 * BETA + GAMMA))
    assert first.high == last.low == pytest.approx(crossing, rel=1e-3)
    assert (first.algorithm.name, last.algorithm.name) == ("recursive_doubling", "rabenseifner")


@pytest.mark.parametrize("name", ["ring", "two_shot", "reduce+broadcast", "rabenseifner"])
@pytest.mark.parametrize("nbytes", [100, 5000, 10**6, 3 * 10**8])
def test_curves_are_near_the_price_between_their_points(name: str, nbytes: int) -> None:
    scenario = Scenario("allreduce", MODEL, FatTree(12, radix=4, oversubscription=2))
    priced = curve(find("allreduce", name), scenario, (8, 1 << 30))
    pattern = pattern_of(find("allreduce", name), 12, nodes=scenario.topology.groups)
    exact = simulate(pattern, nbytes, MODEL, scenario.topology)
    assert priced.seconds(nbytes) == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize(
    ("collective", "name", "model", "best"),
    [
        # A wide tree, beyond radixes that are worse; and what was named, beyond all that is worse.
        ("broadcast", "kary", LogGP(1.4e-6, 3e-7, 3e-7, 4e-11), "kary(radix=4,segments=1)"),
        ("alltoall", "bruck(radix=2:16)", Hockney(2e-6, 4e-11, ports=3), "bruck(radix=16)"),
        ("broadcast", "chain(segments=4|2|1)", MODEL, "chain(segments=1)"),
    ],
)
def test_no_better_value_is_left_out(collective: str, name: str, model: Model, best: str) -> None:
    scenario = Scenario(collective, model, Switch(16))
    nbytes = 8 if collective == "broadcast" else 1 << 20
    ranked = rank(scenario, candidates(collective, [name]), (nbytes,))
    assert str(ranked.at(nbytes)[0].algorithm) == best


def test_the_best_number_of_segments_grows_with_the_size() -> None:
    scenario = Scenario("broadcast", MODEL, Switch(8))
    chains = rank(scenario, candidates("broadcast", ["chain"]), (8, 10**6, 1 << 28))
    best = [chains.at(nbytes)[0].algorithm.parameters["segments"] for nbytes in (8, 10**6, 1 << 28)]
    assert best[0] == 1 < best[1] < best[2]


AT_ONCE = """
import sys
from mpicoll.cli import progress
from mpicoll.costs.__main__ import main
progress._DELAY = 0.0
main(sys.argv[1:])
"""


def test_a_terminal_shows_the_algorithm_and_the_size_that_are_priced() -> None:
    """A ranking of thousands of ranks takes minutes; what is no terminal gets nothing."""
    command = (
        sys.executable, "-c", AT_ONCE, "allreduce", "--ranks", "64", "--algorithms", "ring",
        "--topology", "fat-tree",
    )  # fmt: skip
    terminal, end = os.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=end, env=environment, text=True
    ) as run:
        os.close(end)
        shown = "".join(_read(terminal))
        assert run.stdout is not None and "ring" in run.stdout.read()
    assert re.search(r"ring, [\d.]+ ?[KMG]?i?B?.*[01]/1", shown), shown


def test_a_ranking_names_its_algorithms_where_no_terminal_is_if_it_is_to_be_verbose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verbosity, "_verbosity", verbosity.Verbosity.NORMAL)
    args = "allreduce", "--ranks", "8", "--algorithms", "ring,swing"
    assert run(*args).stderr == ""
    lines = run(*args, "-v").stderr.splitlines()
    assert lines[-2] == "[1/2] ring" and re.fullmatch(r"\[2/2\] about 0 s left: swing", lines[-1])


@pytest.mark.parametrize(
    ("args", "seconds"),
    [((), 1.0), (("--algorithms", "ring"), 30.0), (("--patience", "7"), 7.0)],
    ids=str,
)
def test_named_algorithms_get_more_time(
    args: tuple[str, ...], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def stop(scenario: Scenario, *_: Any) -> None:
        limits.append(scenario.time_limit)
        raise ArgumentError("stopped")

    monkeypatch.setattr("mpicoll.costs.__main__.rank", stop)
    run("allreduce", "--ranks", "8", *args)
    assert limits == [seconds]


def _read(terminal: int) -> Iterator[str]:
    """Yield what a terminal shows until its last program has ended."""
    with suppress(OSError):
        while data := os.read(terminal, 1 << 16):
            yield data.decode(errors="replace")


def test_the_ranking_ends_with_the_bound_and_what_has_no_price() -> None:
    result = run(
        "allreduce", "--ranks", "6", "--bytes", "1K,1M", "--algorithms", "ring,swing,trivance"
    )
    assert result.exit_code == 0
    assert "bound" in result.output
    assert "not priced: trivance" in result.output
    rows = records("allreduce", "--ranks", "6", "--bytes", "1K", "--algorithms", "ring,trivance")
    kinds = [row["kind"] for row in rows]
    assert kinds == ["setting", "bound", "price", "cheapest", "unpriced"]
    assert rows[2]["over_bound"] >= 1
    assert "power of three" in rows[-1]["reason"]


@pytest.mark.parametrize(
    "topology",
    [
        ("switch",), ("nodes", "--ranks-per-node", "2", "--within-us", "0.1"),
        ("fat-tree", "--ranks-per-leaf", "4", "--oversubscription", "2"),
        ("torus", "--dims", "2x4"), ("dragonfly", "--routers", "2", "--ranks-per-router", "2"),
    ],
    ids=lambda values: values[0],
)  # fmt: skip
@pytest.mark.parametrize("model", [("hockney",), ("hockney", "--ports", "0"), ("loggp",)], ids=str)
def test_every_topology_under_every_model(
    topology: tuple[str, ...], model: tuple[str, ...]
) -> None:
    rows = records("allgather", "--ranks", "8", "--algorithms", "ring,lanes", "--topology",
                    *topology, "--model", *model)  # fmt: skip
    prices = [row["over_bound"] for row in rows if row["kind"] == "price"]
    assert prices and min(prices) >= 1 - 1e-9


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("allreduce", "--ranks", "8", "--topology", "torus"), "--dims 16x16x16"),
        (("allreduce", "--ranks", "8", "--topology", "torus", "--dims", "2y4"), "no shape"),
        (("allreduce", "--ranks", "8", "--bytes", "4X"), "'4X' is not a size"),
        (("allreduce", "--ranks", "8", "--sweep", "1G:8"), "'1G:8' is no smaller and larger size"),
        (("allreduce", "--ranks", "8", "--algorithms", "rng"), "did you mean 'ring'"),
        (("allreduce", "--ranks", "8", "--algorithms", "adaptive"), "mpicoll.tune now measures"),
        (("broadcast", "--ranks", "8", "--algorithms", "chain(segments=8:1)"), "is empty"),
        (("broadcast", "--ranks", "8", "--algorithms", ","), "names nothing"),
        (("broadcast", "--ranks", "8", "--root", "8"), "root 8 is not one of 8"),
        (("allreduce", "--ranks", "8", "--model", "loggp", "--alpha-us", "0.1"), "L + 2o"),
        (("allreduce", "--ranks", "8", "--algorithms", "trivance"), "power of three"),
        (("gossip", "--ranks", "8"), "unknown collective 'gossip'"),
        (("broadcast", "--ranks", "8", "--algorithms", "binomial@cma"), "leave out '@cma'"),
        (("broadcast", "--ranks", "8", "--algorithms", "auto"), "'auto' cannot be priced"),
        (("broadcast", "--ranks", "8", "--algorithms", "native:x+y"), "cannot be priced"),
        (("bcast", "--ranks", "8", "--algorithms", "mpich_default"), "mpicoll.defaults broadcast"),
        (("allreduce", "--ranks", "100000000"), "not a whole number from 1 to 1,048,576"),
        (("allreduce", "--ranks", "8", "--sweep", "8:99999999999999999999G"), "2^60 bytes"),
        (("allreduce", "--ranks", "8", "--patience", "nan"), "'nan' is not a number"),
        (("allreduce", "--ranks", "8", "--topology", "torus", "--dims", "8", "--hop-us", "inf"),
         "'inf' is not a number from 0 to 1,000,000,000"),
        (("allreduce", "--ranks", "8", "--topology", "torus", "--dims", "2x-4x-1"), "no shape"),
        (("allreduce", "--ranks", "8", "--topology", "fat-tree", "--ranks-per-leaf", "8",
          "--oversubscription", "5"), "with 2 it is 4"),
        (("allreduce", "--ranks", "8", "--dims", "2x4"), "--dims is for --topology torus"),
        (("allreduce", "--ranks", "8", "--oversubscription", "4"), "is for --topology fat-tree"),
        (("allreduce", "--ranks", "8", "--within-us", "1"), "is for --topology nodes"),
        (("allreduce", "--ranks", "8", "--hop-us", "1"), "nodes or fat-tree or torus or dragonfly"),
        (("allreduce", "--ranks", "8", "--gap-us", "1"), "is for --model loggp, not hockney"),
        (("allreduce", "--ranks", "8", "--model", "loggp", "--ports", "0"), "LogGP counts ports"),
        (("allreduce", "--ranks", "8", "--beta-ns", "1", "--bandwidth", "3"), "give one of them"),
        (("allreduce", "--ranks", "8", "--root", "0"), "--root is for broadcast, reduce"),
        (("allreduce", "--ranks", "8", "--backend", "torch"), "--backend is for --from"),
        (("barrier", "--ranks", "8", "--bytes", "8"), "barrier moves no data"),
    ],
)  # fmt: skip
def test_bad_usage(args: tuple[str, ...], message: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    "flags",
    [("--ranks", "1"), ("--ranks", "2", "--alpha-us", "0", "--beta-ns", "0", "--gamma-ns", "0")],
    ids=lambda flags: " ".join(flags),
)
def test_what_takes_no_time(flags: tuple[str, ...]) -> None:
    prices = [row for row in records("allreduce", *flags) if row["kind"] == "price"]
    assert prices and {row["seconds"] for row in prices} == {0.0}
    assert {row["over_bound"] for row in prices} == {None}


@pytest.mark.parametrize("sweep", [("7", "1000000"), (f"{(1 << 60) - 1}", f"{1 << 60}")], ids=str)
def test_sweeps_end_where_they_should(sweep: tuple[str, str]) -> None:
    args = "allreduce", "--ranks", "8", "--algorithms", "ring", "--bytes", "1K"
    last = records(*args, "--sweep", ":".join(sweep))[-1]
    assert (last["low"], last["high"]) == (int(sweep[0]), int(sweep[1]))


def test_nodes_are_filled_one_after_the_other() -> None:
    result = run("barrier", "--ranks", "9", "--topology", "nodes", "--ranks-per-node", "8")
    assert result.output.startswith("Nodes, 2 of 8 or 1 ranks; Hockney: alpha 2 us, beta 0.04 ns/B")


def test_a_barrier_has_no_sizes() -> None:
    result = run("barrier", "--ranks", "8", "--algorithms", "tree")
    assert "barrier, 8 ranks " in result.output
    assert "crossovers" not in result.output
    rows = records("barrier", "--ranks", "8", "--algorithms", "tree")
    assert [row["kind"] for row in rows] == ["setting", "bound", "price"]


def test_names_are_whole_where_there_is_little_room() -> None:
    names = candidates("allreduce", ["two_level(across=ring,local=binomial)"])
    ranking = rank(Scenario("allreduce", MODEL, Switch(8)), names, (8, 1 << 20))
    text = StringIO()
    for table in tables(RankingOutput(ranking, (1 << 20,), (8, 1 << 20))):
        Console(file=text, width=60).print(table)
    assert "…" not in text.getvalue()


def typed(lines: Sequence[dict[str, Any]]) -> list[Record]:
    return parse("".join(f"{json.dumps(line)}\n" for line in lines).encode(), Path("records"))


def measured(
    alpha: float, beta: float, gamma: float, ports: int | None = 1,
    names: Sequence[str] = ("ring", "recursive_doubling", "rabenseifner"),
) -> list[dict[str, Any]]:  # fmt: skip
    """Return records of a machine on which Hockney's model is exact."""
    model = Hockney(alpha, beta, gamma, ports)
    return [
        case(name, 1e6 * simulate(pattern_of(find("allreduce", name), ranks), nbytes, model,
                                  Switch(ranks)), nbytes, ranks=ranks, run=described(ranks=ranks))
        for name in names
        for nbytes in (8, 1024, 1 << 20)
        for ranks in (4, 8)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "ports"),
    [
        (("ring", "recursive_doubling"), 1), (("ring", "recursive_doubling"), None),
        (("one_shot", "two_shot"), 1), (("one_shot", "two_shot"), 2),
    ],
)  # fmt: skip
def test_alpha_beta_and_gamma_from_records_of_the_harness(
    names: tuple[str, str], ports: int | None
) -> None:
    model_fit = fitted(typed(measured(ALPHA, BETA, GAMMA, ports, names)), "mpi4py", ports)
    assert (*model_fit.message, model_fit.gamma) == pytest.approx((ALPHA, BETA, GAMMA), rel=1e-6)
    assert (model_fit.within, model_fit.doubts) == (None, ())
    assert model_fit.source == "12 times of schedules, with a median error of 0%"


def test_nothing_is_fitted_below_zero() -> None:
    model_fit = fitted(typed(measured(ALPHA, BETA, 0.0)), "mpi4py")
    assert model_fit.gamma == pytest.approx(0.0, abs=1e-15)


def test_a_factor_that_would_be_negative_is_0() -> None:
    """x + y = 1 and 3x + 2y = 1 have the solution (-1, 2)."""
    assert least_squares(np.array([[1.0, 1.0], [3.0, 2.0]]), np.ones(2)) == pytest.approx(
        [0.0, 0.6]
    )


def test_doubts_about_what_was_fitted() -> None:
    far_off = [case("ring", us, size) for us in (1, 9) for size in (8, 1024, 1 << 20)]
    assert "times are more than" in " ".join(fitted(typed(far_off), "mpi4py").doubts)
    free = fitted(typed(measured(0.0, BETA, GAMMA)), "mpi4py").doubts
    assert free == ("alpha comes out as 0: these times do not separate it from the others",)
    moved = [case("ring", us, size, collective="allgather")
             for us, size in ((3, 8), (4, 1024), (5, 2048))]  # fmt: skip
    assert fitted(typed(moved), "mpi4py").gamma is None


@pytest.mark.parametrize("lines", [[], [case("native")] * 3, [case("ring")]], ids=len)
def test_records_that_tell_nothing(lines: list[dict[str, Any]]) -> None:
    with pytest.raises(ArgumentError, match=r"neither fits nor .* mpicoll\.p2p makes fits"):
        fitted(typed(lines), "mpi4py")


def test_parameters_from_a_file(tmp_path: Path) -> None:
    args = from_file(tmp_path, *measured(ALPHA, BETA, GAMMA))
    assert records(*args)[0]["model"][1]["alpha"] == pytest.approx(ALPHA)
    assert records(*args, "--alpha-us", "7")[0]["model"][1]["alpha"] == pytest.approx(7e-6)


def from_file(place: Path, *lines: dict[str, Any]) -> tuple[str, ...]:
    """Write records and return the arguments that price with them."""
    path = place / "records.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "allreduce", "--ranks", "8", "--algorithms", "ring", "--from", str(path)


def test_fits_of_single_messages_leave_folds_as_they_are(tmp_path: Path) -> None:
    near = from_file(tmp_path, fit())
    assert records(*near)[0]["model"][1]["gamma"] == pytest.approx(0.05e-9)
    remarks = run(*near).stderr
    assert "gamma 0.05 ns/B, the default" in remarks
    assert "warning: no pair on two nodes was measured" in remarks
    far = run(*from_file(tmp_path, fit(link="network")), "--gamma-ns", "1").stderr
    assert far == "alpha and beta from fits of single messages\n"


@pytest.mark.parametrize(
    ("link", "values", "message"),
    [
        ("network", {"error": 0.87}, "messages between nodes: half of the times are more than 87%"),
        ("network", {"beta_ns_per_byte": 0.0, "GBps": None}, "nodes: beta comes out as 0"),
        ("same socket", {"alpha_us": 0.0}, "messages within a node: alpha comes out as 0"),
    ],
)  # fmt: skip
def test_a_bad_fit_of_single_messages_is_doubted(
    tmp_path: Path, link: str, values: dict[str, Any], message: str
) -> None:
    result = run(*from_file(tmp_path, fit(link=link, **values)))
    assert result.exit_code == 0
    assert "warning: " in result.stderr and message in result.stderr


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (fit(alpha_us="x"), "Expected `float`, got `str` - at `$.alpha_us`"),
        (fit(alpha_us=-3.0), "Expected `float` >= 0.0 - at `$.alpha_us`"),
        (fit(transport=None), "Expected `str`, got `null` - at `$.transport`"),
        (case("ring", ranks=0), "Expected `int` >= 1 - at `$.ranks`"),
        (case("ring", ranks=2.5), "Expected `int`, got `float` - at `$.ranks`"),
        (case("ring", time_us=[1]), "Expected `object | null`, got `array` - at `$.time_us`"),
        (
            case("ring", time_us={"median": 0, "low": 0, "high": 0}),
            "Expected `float` >= 1e-15 - at `$.time_us.median`",
        ),
        (case("binomial", collective="broadcast"), "a damaged record: root is None of 4 ranks"),
        (case("binomial", collective="broadcast", root=4), "root is 4 of 4 ranks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_records(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    result = run(*from_file(tmp_path, record))
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
